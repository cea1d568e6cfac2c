"""Load modules when they are first used, not when a library imports them."""

import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, ForwardRef

# Libraries import these for functions that a training may never call; together they take 0.6 s
# of CPU. gymnax draws some environments; Flax prints tables of modules; rlax's deprecated
# distributions need distrax, which imports TensorFlow Probability; JAX needs two extensions of
# scipy.linalg; SciPy lists all of NumPy.
UNUSED_AT_START = (
    "matplotlib.pyplot", "seaborn", "rich.console", "rich.table", "rich.text", "yaml", "distrax",
    "scipy.linalg", "numpy.f2py",
)  # fmt: skip
# Extensions that JAX imports, which need nothing of their package. Other submodules load it first.
_ALONE = ("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack")
# What a library reads of a deferred module in annotations only, which does not load the module.
_ANNOTATIONS = {"rlax": ("distrax.DistributionLike",)}
# Special names that a module defines itself, so that asking for one loads it.
_DEFINED_BY_MODULES = ("__all__", "__version__")


def defer(names: Sequence[str]) -> None:
    """Let imports of these modules succeed at once, and load each when one of its names is used.

    `importlib.util.LazyLoader` defers one import only: the second one loads the module. This is for
    programs, such as the command line; a library must not decide it for its users.

    Args:
      names: of modules, such as `seaborn`; those that are imported already stay as they are.
    """
    finder = _Finder(frozenset(names))
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


@dataclass(frozen=True)
class _Finder(MetaPathFinder):
    names: frozenset[str]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = sys.modules.get(fullname.rpartition(".")[0])
        if isinstance(package, _Deferred) and fullname not in (*self.names, *_ALONE):
            # Another thread that loads the package may wait for this import.
            package.__deferring__.load(package, wait=False)
            return _Loaded.spec_of(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self.names else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Deferring(spec.loader, self.names)
        return spec


class _Deferring(Loader):
    """Makes a module that loads itself by `loader`."""

    def __init__(self, loader: Loader, names: frozenset[str]) -> None:
        self.loader = loader
        self.names = names  # of all deferred modules
        self._lock, self._started = threading.RLock(), False

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _Deferred(spec.name)
        module.__deferring__ = self
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing yet."""

    def load(self, module: ModuleType, *, wait: bool = True) -> None:
        """Run the module's code once; other threads wait for it, or do nothing."""
        if not self._lock.acquire(blocking=wait):
            return
        try:
            if not self._started:
                self._load(module)
        finally:
            self._lock.release()

    def _load(self, module: ModuleType) -> None:
        self._started = True
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        try:
            with _outside_of_tracing():
                self.loader.exec_module(module)
        except BaseException:
            self._started = False  # the next use tries again, as an import would
            raise
        module.__class__ = ModuleType  # pyright: ignore[reportAttributeAccessIssue]


class _Loaded(Loader):
    """Gives a module that was imported while Python looked for it, by its package."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    @classmethod
    def spec_of(cls, name: str) -> ModuleSpec | None:
        return ModuleSpec(name, cls(sys.modules[name])) if name in sys.modules else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Keep the module as it is; Python has replaced its specification."""
        module.__spec__ = self.spec


class _Deferred(ModuleType):
    """A module that is loaded when a name is asked for that it does not have yet."""

    __deferring__: _Deferring

    def __getattr__(self, name: str) -> Any:
        full, deferring = f"{self.__name__}.{name}", self.__deferring__
        missing = AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name.startswith("__") and name not in _DEFINED_BY_MODULES:
            raise missing  # such as `__path__`, by which Python recognizes packages
        if full in deferring.names:
            return import_module(full)
        library = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        if full in _ANNOTATIONS.get(library, ()):
            return ForwardRef(full)
        deferring.load(self)
        if type(self) is ModuleType:
            return getattr(self, name)  # which the module itself may compute
        if name in self.__dict__:  # it is being loaded
            return self.__dict__[name]
        raise missing


def _outside_of_tracing() -> Any:
    """Keep arrays that a module creates from becoming tracers where a traced function loads it."""
    jax = sys.modules.get("jax")
    return nullcontext() if jax is None else jax.ensure_compile_time_eval()
