"""Files of the user's modules: which of them changed, and how they are imported again.

Imports are read from the text of the files, also those inside of functions, and nothing is executed
for that. Files of Python, of installed packages and of triglot itself are left out.
"""

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TypeAlias

from ..core.errors import in_library

Stamp: TypeAlias = tuple[int, int, int] | None  # time, size and inode; None for a missing file

# Words of files that may import what no import statement names.
DYNAMIC = re.compile(rb"\b(importlib|import_module|__import__|exec|runpy|pkgutil)\b")
# Top-level modules that are no user's.
SYSTEM = {*sys.stdlib_module_names, "__main__", __name__.partition(".")[0]}
# Nanoseconds: files are stamped with the time of the last tick of the system's clock.
TICK = 50_000_000


@dataclass(frozen=True)
class Source:
    """One module of the user, as its file was when it was looked at.

    Attributes:
      path: the file.
      stamp: what changes when the file is written.
      imports: names of the modules that it may import, and of the packages that hold it.
      is_dynamic: whether it may import modules that no import statement names.
    """

    path: Path
    stamp: Stamp
    imports: frozenset[str]
    is_dynamic: bool


class Sources:
    """The files of some modules, and of all that these import.

    `forget` comes first: modules that were imported before may be older than their files.

    Attributes:
      roots: names of the modules.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = tuple(dict.fromkeys(roots))
        self._imported_before = frozenset(sys.modules)  # what was imported for other reasons
        self._sources: dict[str, Source] = {}
        self._absent: frozenset[str] = frozenset()

    @property
    def paths(self) -> list[Path]:
        """The files, those of `roots` first."""
        first = [self._sources[name].path for name in self.roots if name in self._sources]
        return list(dict.fromkeys([*first, *(each.path for each in self._sources.values())]))

    def add_imported(self, since: int) -> None:
        """Add files of modules that were imported, though no import statement names them.

        Args:
          since: when the imports began, in nanoseconds since the epoch. A file that was written
            after it counts as changed, since an import may have read it before.
        """
        previous = self._sources
        self._read_all()
        for name, source in self._sources.items():
            if name in previous:
                self._sources[name] = previous[name]
            elif source.stamp is not None and source.stamp[0] >= since - TICK:
                self._sources[name] = Source(source.path, None, source.imports, source.is_dynamic)
        self._sources = {**previous, **self._sources}

    def changed(self) -> list[Path]:
        """Return the files that were written since they were looked at; deleted ones are not."""
        written = [
            each.path
            for each in self._sources.values()
            if stamp_of(each.path) not in (None, each.stamp)
        ]
        return [*written, *(path for path in map(find_file, self._absent) if path is not None)]

    def forget(self) -> set[str]:
        """Remove changed modules, and all that import them, so that they are imported again.

        Returns:
          The names of these modules.
        """
        previous = self._sources
        self._read_all()
        stale = {
            name
            for name, source in previous.items()
            if stamp_of(source.path) is None or self._sources.get(name) != source
        }
        stale |= self._sources.keys() - previous.keys()
        while True:
            readers = {
                name
                for name, source in previous.items()
                if source.is_dynamic or not stale.isdisjoint(source.imports)
            }
            if not stale or readers <= stale:
                break
            stale |= readers
        for name in stale:
            _forget(name, [each[name].path for each in (previous, self._sources) if name in each])
        importlib.invalidate_caches()
        return stale

    def _read_all(self) -> None:
        """Read the files of `roots` and of all that they import."""
        sources: dict[str, Source] = {}
        absent = set()
        queue = list(self.roots)
        while queue:
            name = queue.pop(0)
            if name in sources or name in absent:
                continue
            path = find_file(name)
            if path is not None:
                sources[name] = _read_source(name, path, self._sources.get(name))
                queue += sorted(sources[name].imports)
                if sources[name].is_dynamic:
                    queue += sys.modules.keys() - self._imported_before
            elif not _is_installed(name):
                absent.add(name)
        self._sources, self._absent = sources, frozenset(absent)


def stamp_of(path: Path) -> Stamp:
    """Return what changes when a file is written; None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def find_file(name: str) -> Path | None:
    """Find the file of a module without importing it; None if it is not one of the user's."""
    spec, places = None, None
    words = name.split(".")
    if words[0] in SYSTEM:
        return None
    for end in range(1, len(words) + 1):
        spec = None
        with suppress(Exception):  # of a finder of the user, or a folder that is not imported yet
            spec = PathFinder.find_spec(".".join(words[:end]), places)
        if spec is None or (spec.submodule_search_locations is None and end < len(words)):
            spec = None
            break
        places = spec.submodule_search_locations
    file = spec.origin if spec is not None else getattr(sys.modules.get(name), "__file__", None)
    if file is None or not file.endswith(".py") or in_library(file):
        return None
    return Path(file)


def _is_installed(name: str) -> bool:
    """Return whether a module exists that is not one of the user's, or a name in a module."""
    top = name.partition(".")[0]
    if top in SYSTEM:
        return True
    spec = PathFinder.find_spec(top)
    if spec is None:
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return any(map(in_library, places))


def _read_source(name: str, path: Path, previous: Source | None) -> Source:
    """Read what a file imports, unless it is known."""
    stamp = stamp_of(path)
    if (
        previous is not None
        and stamp is not None
        and (previous.path, previous.stamp) == (path, stamp)
    ):
        return previous
    text = b""
    with suppress(OSError):
        text = path.read_bytes()
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):  # which its import reports
        nodes = []
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    names = {each for node in nodes for each in _imported_names(node, package)} | {name}
    with_parents = {
        ".".join(words[:end])
        for words in (each.split(".") for each in names)
        for end in range(1, len(words) + 1)
    }
    return Source(path, stamp, frozenset(with_parents - {name}), bool(DYNAMIC.search(text)))


def _imported_names(node: ast.AST, package: str) -> Iterator[str]:
    """Name the modules that an import statement may import."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        words = package.split(".")
        parents = words[: len(words) - node.level + 1] if node.level else []
        base = ".".join(filter(None, [*parents, node.module]))
        if base:
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _forget(name: str, paths: Sequence[Path]) -> None:
    """Remove a module, and its bytecode: files of equal times and sizes may have other texts."""
    sys.modules.pop(name, None)
    parent, _, last = name.rpartition(".")
    with suppress(AttributeError):  # `from package import module` would find it
        delattr(sys.modules.get(parent), last)
    for path in paths:
        with suppress(OSError, NotImplementedError):
            Path(importlib.util.cache_from_source(path)).unlink()
