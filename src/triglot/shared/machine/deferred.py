"""Load three slow modules when they are first used, not when a library imports them."""

import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, ForwardRef

# gymnax imports the first two, which draw some environments; rlax the third, and with it TensorFlow
# Probability, for deprecated distributions. Together they take 1.4 of the 2.9 s of CPU in which an
# agent and CartPole are made.
UNUSED_AT_START = ("matplotlib.pyplot", "seaborn", "distrax")
# What libraries read when they are imported, for annotations.
_ANNOTATIONS = {"distrax": ("DistributionLike",)}
# Special names that a module defines itself; Python asks for others, such as `__file__`, of any.
_DEFINED_BY_MODULES = ("__all__", "__version__")
_lock = threading.Lock()


def defer(names: Sequence[str]) -> None:
    """Let imports of these modules succeed at once, and load each when one of its names is used.

    `importlib.util.LazyLoader` defers one import only: the second one loads the module. This is for
    programs, such as the command line; a library must not decide it for its users.

    Args:
      names: of modules, such as `seaborn`; those that are imported already stay as they are.
    """
    finders = [finder for finder in sys.meta_path if isinstance(finder, _Finder)]
    if new := set(names).difference(sys.modules, *(finder.names for finder in finders)):
        sys.meta_path.insert(0, _Finder(new))


class _Finder(MetaPathFinder, Loader):
    """Gives a stand-in for the first import of each module."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self.names else None
        if spec is not None:
            self.names.remove(fullname)
            spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Deferred(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        for name in _ANNOTATIONS.get(module.__name__, ()):
            setattr(module, name, ForwardRef(f"{module.__name__}.{name}"))


class _Deferred(ModuleType):
    """Stands for a module, which it imports when a name is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _DEFINED_BY_MODULES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _lock:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        # Arrays that the module creates must not become tracers where a traced function loads it.
        jax = sys.modules.get("jax")
        with nullcontext() if jax is None else jax.ensure_compile_time_eval():
            module = import_module(self.__name__)
        # Submodules may have been imported before their package.
        for child, value in dict(vars(self)).items():
            if isinstance(value, ModuleType):
                vars(module).setdefault(child, value)
        return getattr(module, name)
