"""Components that installed packages add by entry points, listed without importing them."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from .errors import TriglotError, user_error_context

GROUPS = {
    "algorithm": "triglot.algorithms",
    "backend": "triglot.backends",
    "environment": "triglot.environments",
    "network": "triglot.networks",
}


@dataclass(frozen=True)
class Plugin:
    """One component of an installed package, not imported.

    Attributes:
      kind: a key of `GROUPS`.
      name: its name in commands.
      distribution: the package's name and version.
      entry_point: the module and the object.
    """

    kind: str
    name: str
    distribution: str
    entry_point: metadata.EntryPoint

    @property
    def path(self) -> str:
        """The location, as package.module:object."""
        return self.entry_point.value

    @property
    def is_suite(self) -> bool:
        """Whether it is a module of environments instead of one object."""
        return self.kind == "environment" and ":" not in self.path

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.distribution} ({self.path})"

    def load(self) -> Any:
        """Import it.

        Raises:
          TriglotError: naming the package, if the import fails.
        """
        if not self.entry_point.pattern.match(self.path):
            raise TriglotError(f"the {self} is not of the form package.module:object.")
        with user_error_context(f"the {self} cannot be loaded"):
            loaded = self.entry_point.load()
        if self.is_suite and not (hasattr(loaded, "make") and hasattr(loaded, "names")):
            raise TriglotError(
                f"the {self} is not a suite: its module needs make(name, **options) and names()."
            )
        return loaded


def installed(kind: str) -> list[Plugin]:
    """List the components of one kind that installed packages add, by name."""
    plugins = [
        Plugin(kind, point.name, _title(distribution), point)
        for distribution in _distributions()
        if not _is_broken(distribution)
        for point in distribution.entry_points
        if point.group == GROUPS.get(kind)
    ]
    return sorted(plugins, key=lambda plugin: (plugin.name, plugin.distribution))


def find(kind: str, name: str) -> Plugin | None:
    """Find the component of an installed package with this name.

    Raises:
      TriglotError: if two packages have one.
    """
    matching = [plugin for plugin in installed(kind) if plugin.name == name]
    if len(matching) > 1:
        both = " and ".join(f"{plugin.distribution} ({plugin.path})" for plugin in matching)
        raise TriglotError(
            f"two packages have {kind} {name!r}: {both}. Uninstall one, or give the one you mean "
            "as package.module:object."
        )
    return matching[0] if matching else None


def names(kind: str) -> list[str]:
    """List the names that installed packages add."""
    return [plugin.name for plugin in installed(kind)]


def broken() -> list[str]:
    """List the packages whose entry points cannot be read."""
    return [_title(distribution) for distribution in _distributions() if _is_broken(distribution)]


def _distributions() -> Iterator[metadata.Distribution]:
    """Yield each package with entry points of triglot once, the one that Python imports."""
    names: set[str] = set()
    for distribution in metadata.distributions():
        if "[triglot." in (distribution.read_text("entry_points.txt") or ""):
            name = _title(distribution).partition(" ")[0]
            if name not in names:
                names.add(name)
                yield distribution


def _is_broken(distribution: metadata.Distribution) -> bool:
    # `metadata.entry_points` raises for all packages if the file of one is malformed.
    try:
        return distribution.entry_points is None
    except Exception:
        return True


def _title(distribution: metadata.Distribution) -> str:
    facts = distribution.metadata  # empty if the file is missing
    return " ".join(str(facts[name]) for name in ("Name", "Version") if name in facts)
