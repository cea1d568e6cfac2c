"""`triglot list`: list components, and what is installed, without importing any library."""

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from ..backends.libraries import LIBRARIES
from ..core import plugins
from ..core.errors import unknown
from ..machine.version import package_version
from ..registry.algorithms import ALGORITHMS
from ..registry.environments import SUITES, load_suite, suites
from ..registry.presets.describe import listing

PACKAGE = Path(__file__).parents[1]


def everything() -> str:
    """List algorithms, backends and environments, and whether their libraries are installed.

    Components of installed packages are listed with the package, without importing it.
    """
    algorithms = [(name, _about(path.partition(":")[0])) for name, path in ALGORITHMS.items()]
    algorithms += [(plugin.name, _origin(plugin)) for plugin in _added("algorithm", ALGORITHMS)]
    backends = [
        (name, _state(library.distribution, library.extra), _about(library.adapter))
        for name, library in LIBRARIES.items()
    ]
    backends += [
        (plugin.name, "installed", _origin(plugin)) for plugin in _added("backend", LIBRARIES)
    ]
    environments = [
        (f"{name}:{suite.example}", _state(suite.library, suite.library), _about(suite.module))
        for name, suite in SUITES.items()
    ]
    environments += [
        (f"{plugin.name}:..." if plugin.is_suite else plugin.name, "installed", _origin(plugin))
        for plugin in _added("environment", SUITES)
    ]
    sections: dict[str, Sequence[tuple[str, ...]]] = {
        "algorithms": algorithms,
        "backends": backends,
        "environments (one of each suite; `triglot list gymnax` lists all of one)": environments,
        "networks": [(plugin.name, _origin(plugin)) for plugin in _added("network", ())],
    }
    lines = [[title, *_aligned(rows), ""] for title, rows in sections.items() if rows]
    end = "Give custom components as package.module:object; see `triglot train --help`."
    return "\n".join([*chain(*lines), *_clashes(), end])


def suite(name: str) -> str:
    """List the environments of one suite, which imports its library; or the presets.

    Raises:
      TriglotError: if there is no such suite, or its library is not installed.
    """
    if name == "presets":
        return listing()
    if name not in suites():
        raise unknown("environment suite", name, [*suites(), "presets"])
    return "\n".join(f"{name}:{environment}" for environment in load_suite(name).names())


def _added(kind: str, built_in: Iterable[str]) -> list[plugins.Plugin]:
    return [plugin for plugin in plugins.installed(kind) if plugin.name not in built_in]


def _origin(plugin: plugins.Plugin) -> str:
    return f"from {plugin.distribution}, {plugin.path}"


def _clashes() -> list[str]:
    """List the names of installed packages that cannot be used, one line each."""
    lines = [f"The entry points of {package} cannot be read." for package in plugins.broken()]
    kinds = {"algorithm": ALGORITHMS, "backend": LIBRARIES, "environment": SUITES, "network": ()}
    for kind, built_in in kinds.items():
        found = plugins.installed(kind)
        count = Counter(plugin.name for plugin in found)
        for plugin in found:
            if plugin.name in built_in:
                lines.append(f"The {plugin} is hidden by triglot's own {plugin.name!r}.")
            elif count[plugin.name] > 1:
                lines.append(f"The {plugin} has the same name as another package's.")
    return [*lines, ""] if lines else []


def _state(distribution: str | None, extra: str | None) -> str:
    if distribution is None:
        return "needs nothing"
    version = package_version(distribution)
    if version is None:
        return f"needs {distribution}: pip install 'triglot[{extra}]'"
    return f"{distribution} {version} installed"


def _about(module: str) -> str:
    """Read the first line of a module's docstring without importing it."""
    return (ast.get_docstring(ast.parse(source_of(module))) or "").partition("\n")[0]


def source_of(module: str) -> str:
    """Read the source of a module of triglot without importing it."""
    return PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text()


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align the first two columns; a third stands below them, where a terminal has no place."""
    width = max((len(name) for name, *_ in rows), default=0)
    lines = []
    for name, text, *rest in rows:
        lines += [f"  {name:<{width}}   {text}", *(f"      {each}" for each in rest)]
    return lines
