"""What `triglot list` shows; no library is imported to say whether it is installed."""

import ast
import importlib
import importlib.util
from pathlib import Path

from ..core.errors import unknown
from .registry import ALGORITHMS, SUITES
from .version import package_version
from .worker import LIBRARIES

PACKAGE = Path(__file__).parents[1]
DISTRIBUTIONS = {"haiku": "dm-haiku"}  # where a library is installed under another name
# What each backend needs; the table needs nothing.
BACKEND_NEEDS = {**{name: library for name, (library, _) in LIBRARIES.items()}, "table": None}


def everything() -> str:
    """List algorithms, backends and environments with what each needs and whether it is there."""
    algorithms = [(name, _about(path.partition(":")[0])) for name, path in ALGORITHMS.items()]
    backends = [
        (name, _state(library), _about(f"triglot.backends.{name}"))
        for name, library in BACKEND_NEEDS.items()
    ]
    environments = [
        (f"{name}:{suite.example}", _state(suite.library), _about(suite.module))
        for name, suite in SUITES.items()
    ]
    return "\n".join(
        [
            "algorithms",
            *_aligned(algorithms),
            "",
            "backends",
            *_aligned(backends),
            "",
            "environments (one of each suite; `triglot list gymnax` lists all of one)",
            *_aligned(environments),
            "",
            "Your own are given as package.module:object; see `triglot train --help`.",
        ]
    )


def suite(name: str) -> str:
    """List the environments of one suite, which imports its library.

    Raises:
      TriglotError: if there is no such suite, or its library is not installed.
    """
    if name not in SUITES:
        raise unknown("environment suite", name, SUITES)
    environments = importlib.import_module(SUITES[name].module).names()
    return "\n".join(f"{name}:{environment}" for environment in environments)


def _state(library: str | None) -> str:
    if library is None:
        return "needs nothing"
    name = library.partition(".")[0]
    distribution = DISTRIBUTIONS.get(name, name)
    if importlib.util.find_spec(name) is None:
        return f"needs {distribution}: pip install 'triglot[{name}]'"
    return f"{distribution} {package_version(distribution)} installed"


def _about(module: str) -> str:
    """Read the first line of a module's docstring without importing it."""
    source = PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text()
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [map(str.ljust, row, widths) for row in rows]
    return ["  " + "   ".join(row).rstrip() for row in padded]
