"""`triglot list`: list components, and what is installed, without importing any library."""

import ast
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from ..backends.libraries import LIBRARIES
from ..core import plugins
from ..core.errors import unknown
from ..core.wrappers.options import WRAPPERS
from ..runs.registry.algorithms import ALGORITHMS, EXTENSIONS, by_family
from ..runs.registry.environments import SUITES, load_suite, suites
from ..runs.registry.presets.describe import listing
from ..shared.machine.version import package_version

PACKAGE = Path(__file__).parents[1]
BUILT_IN = {"algorithm": ALGORITHMS, "backend": LIBRARIES, "environment": SUITES, "network": ()}
TITLES = {
    "algorithm": "algorithms",
    "backend": "backends",
    "environment": "environments, by suite (`triglot list gymnax` lists those of one)",
    "network": "networks",
}
WRAPPERS_TITLE = "wrappers (options of any environment in JAX: gridworld:8x8,time_limit=50)"


def everything() -> str:
    """List algorithms, backends and environments, and whether their libraries are installed.

    Components of installed packages are listed with the package, without importing it. The options
    that wrap environments follow.
    """
    rows: dict[str, list[tuple[str, ...]]] = {
        "algorithm": [(name, _about(path.partition(":")[0])) for name, path in ALGORITHMS.items()],
        "backend": [
            (name, _state(library.distribution, library.install_command), _about(library.folder))
            for name, library in LIBRARIES.items()
        ],
        "environment": [
            (
                name,
                _state(suite.library, f"pip install 'triglot[{suite.library}]'"),
                _about(suite.module),
                f"{name}:{suite.example}",
            )
            for name, suite in SUITES.items()
        ],
        "network": [],
    }
    for kind, built_in in BUILT_IN.items():
        for plugin in plugins.installed(kind):
            if plugin.name not in built_in:
                name = f"{plugin.name}:..." if plugin.is_suite else plugin.name
                state = ("installed",) if kind in ("backend", "environment") else ()
                origin = f"from {plugin.distribution}, {plugin.path}"
                rows[kind].append((name, *state, origin))
    lines = [[TITLES[kind], *_aligned(entries), ""] for kind, entries in rows.items() if entries]
    wrappers = [(f"{name}={option.value}", option.about) for name, option in WRAPPERS.items()]
    lines.append([WRAPPERS_TITLE, *_aligned(wrappers), ""])
    end = "Give custom components as package.module:object; see `triglot train --help`."
    return "\n".join([*chain(*lines), *_clashes(), end])


def suite(name: str) -> str:
    """List the environments of one suite, which imports its library; algorithms; or presets.

    Raises:
      TriglotError: if there is no such suite, or its library is not installed.
    """
    if name == "presets":
        return listing()
    if name == "algorithms":
        return algorithms()
    if name not in suites():
        raise unknown("environment suite", name, [*suites(), "algorithms", "presets"])
    return "\n".join(f"{name}:{environment}" for environment in load_suite(name).names())


def algorithms() -> str:
    """List the built-in algorithms by family, with a line that says when to choose each."""
    lines = []
    for family, names in by_family(ALGORITHMS).items():
        rows = [(name, _about(ALGORITHMS[name].partition(":")[0])) for name in names]
        lines += [family, *_aligned(rows, max(map(len, ALGORITHMS))), ""]
    rows = [(f"+{name}", _about(path.partition(":")[0])) for name, path in EXTENSIONS.items()]
    lines += ["extensions, as in `triglot train ppo+rnd`", *_aligned(rows), ""]
    lines.append(
        "docs/algorithms has a page on each; `triglot train NAME --help` lists its options."
    )
    return "\n".join(lines)


def _clashes() -> list[str]:
    """List the names of installed packages that cannot be used, one line each."""
    lines = [f"The entry points of {package} cannot be read." for package in plugins.broken()]
    for kind, built_in in BUILT_IN.items():
        installed = plugins.installed(kind)
        count = Counter(plugin.name for plugin in installed)
        for plugin in installed:
            if plugin.name in built_in:
                lines.append(f"The {plugin} is hidden by triglot's own {plugin.name!r}.")
            elif count[plugin.name] > 1:
                lines.append(f"The {plugin} has the same name as another package's.")
    return [*lines, ""] if lines else []


def _state(distribution: str | None, install_command: str | None) -> str:
    if distribution is None:
        return "needs nothing"
    version = package_version(distribution)
    if version is None:
        return f"needs {distribution}: {install_command}"
    return f"{distribution} {version} installed"


def _about(module: str) -> str:
    """Read the first line of a module's docstring without importing it."""
    return (ast.get_docstring(ast.parse(source_of(module))) or "").partition("\n")[0]


def source_of(module: str) -> str:
    """Read the source of a module of triglot without importing it."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def _aligned(rows: Sequence[tuple[str, ...]], least: int = 0) -> list[str]:
    """Align the first two columns; a third stands below them, where a terminal has no place."""
    width = max([least, *(len(name) for name, *_ in rows)])
    lines = []
    for name, text, *rest in rows:
        lines += [f"  {name:<{width}}   {text}", *(f"      {line}" for line in rest)]
    return lines
