"""Load modules when they are first used, not when a library imports them."""

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

# gymnax imports these for the pictures of four environments; they take half a second.
DRAWING = ("matplotlib.pyplot", "seaborn")


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
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self.names else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Deferring(spec.loader)
        return spec


class _Deferring(Loader):
    """Makes a module that loads itself by `loader`."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Deferred(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing yet."""


class _Deferred(ModuleType):
    """A module that is loaded when a name is asked for that it does not have yet."""

    _lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # such as `__path__`, by which Python recognizes packages
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with self._lock:
            spec = self.__spec__
            if spec is not None and isinstance(spec.loader, _Deferring):
                loader = spec.loader = self.__loader__ = spec.loader.loader
                loader.exec_module(self)
                self.__class__ = ModuleType  # pyright: ignore[reportAttributeAccessIssue]
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
