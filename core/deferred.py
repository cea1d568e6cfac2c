"""Modules that a library imports and rarely uses are loaded when they are first used."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, ForwardRef

# What libraries read when they are imported, for annotations.
_ANNOTATIONS = {
    "distrax": ("DistributionLike",),
    "matplotlib.pyplot": ("Axes", "Circle", "Figure", "Line2D", "Rectangle", "Text"),
    "trimesh": ("Trimesh",),
}
# Special names that a module defines itself; Python asks for others, such as `__file__`, of any.
_DEFINED_BY_MODULES = ("__all__", "__version__")
_lock = threading.Lock()


@contextmanager
def deferred(*names: str) -> Iterator[None]:
    """Let a library import these modules at once; each is loaded when one of its names is used.

    A module that is imported already stays as it is, and outside of the `with` block, what has not
    been imported is imported as usual. `importlib.util.LazyLoader` defers one import only: the
    second one loads the module.

    Args:
      names: of modules, such as `seaborn`.
    """
    for name in names:
        _stand_for_annotations(sys.modules.get(name))
    finder = _Finder(set(names).difference(sys.modules))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in names:
            _forget_annotations(sys.modules.get(name))


class _Finder(MetaPathFinder, Loader):
    """Gives a stand-in for the first import of each module."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.loaders: dict[str, Any] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self.names else None
        if spec is not None:
            self.names.remove(fullname)
            self.loaders[fullname], spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Deferred(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        _stand_for_annotations(module)

    def get_resource_reader(self, fullname: str) -> Any:
        """Let `importlib.resources` read a package's files without importing the package."""
        return self.loaders[fullname].get_resource_reader(fullname)


class _Deferred(ModuleType):
    """Stands for a module, which it imports when a name is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _DEFINED_BY_MODULES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        submodule = f"{self.__name__}.{name}"
        if any(
            isinstance(finder, _Finder) and submodule in finder.names for finder in sys.meta_path
        ):
            # `from package import module` then imports it, and it is deferred too.
            raise AttributeError(f"{submodule} has not been imported")
        return getattr(self._load(), name)

    def __dir__(self) -> list[str]:
        return dir(self._load())

    def _load(self) -> ModuleType:
        package = sys.modules.get(self.__name__.rpartition(".")[0])
        if isinstance(package, _Deferred):
            package._load()
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
        return module


def _stand_for_annotations(module: ModuleType | None) -> None:
    if isinstance(module, _Deferred):
        for name in _ANNOTATIONS.get(module.__name__, ()):
            setattr(module, name, ForwardRef(f"{module.__name__}.{name}"))


def _forget_annotations(module: ModuleType | None) -> None:
    """Remove what stood for classes, for which whoever imports the module later asks."""
    if isinstance(module, _Deferred):
        for name in _ANNOTATIONS.get(module.__name__, ()):
            vars(module).pop(name, None)
