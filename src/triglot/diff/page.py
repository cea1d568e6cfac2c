"""The page of `triglot diff`: verdict, causes with code, both networks' modules side by side."""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from ..shared.pages.numbers import capitalized
from ..shared.pages.page import ASSETS, environment

AROUND = 3  # lines of code before and after the one that is named
MAX_RUN = 6  # rows of equal modules that stand in the page one by one
MAX_CONTEXT = 2  # of them, before a difference
MAX_PAIRS = 400  # of parameters
EQUAL = "equal"

Json: TypeAlias = Mapping[str, Any]
Row: TypeAlias = tuple[Json | None, Json | None, str]  # a module of each network, and the state


def page(content: Json, command: str) -> str:
    """Build the page of a comparison of two networks.

    Args:
      content: the result of `Report.to_json`.
      command: the command that made the comparison.

    Returns:
      HTML without references to anything outside of it.
    """
    style = (ASSETS / "page.css").read_text() + (ASSETS / "difference.css").read_text()
    return _render("difference.html", content, style=Markup(style), command=command)


def fragment(content: Json) -> str:
    """Build what a notebook shows of a comparison: verdict, causes and modules."""
    style = (ASSETS / "difference.css").read_text()
    return _render("difference_parts.html", content, style=Markup(style), whole=False)


def _render(template: str, content: Json, **more: object) -> str:
    parts = content["parts"]
    return (
        environment()
        .get_template(template)
        .render(
            report=content,
            labels=content["networks"],
            rows=list(_fold_rows(list(rows(parts["one"], parts["other"])))),
            recorded=content["modules"],
            excerpts=_excerpts(content["first_difference"]),
            max_pairs=MAX_PAIRS,
            number=_number,
            capitalized=capitalized,
            **more,
        )
    )


def rows(first_modules: Sequence[Json], second_modules: Sequence[Json]) -> Iterator[Row]:
    """Align the modules of two networks, in the order of their programs.

    Yields:
      The module of each, None if there is no counterpart, and their state.
    """
    place = 0
    for first in first_modules:
        index = first["counterpart"]
        if index is None:
            yield first, None, first["state"]
            continue
        for second in second_modules[place:index]:
            yield None, second, second["state"]
        place = max(place, index + 1)
        yield first, second_modules[index], _state(first["state"], second_modules[index]["state"])
    for second in second_modules[place:]:
        yield None, second, second["state"]


def _state(*states: str) -> str:
    return next((state for state in ("different", "follows", "inner") if state in states), EQUAL)


def _fold_rows(aligned: Sequence[Row]) -> Iterator[tuple[bool, list[Row]]]:
    """Yield runs of rows, and whether they are folded: many equal ones, but for the last."""
    for state, run in itertools.groupby(aligned, key=lambda row: row[2].replace("inner", EQUAL)):
        run_rows = list(run)
        if state != "different" and len(run_rows) > MAX_RUN:
            yield True, run_rows[:-MAX_CONTEXT]
            run_rows = run_rows[-MAX_CONTEXT:]
        yield False, run_rows


def _excerpts(first: Json | None) -> list[Markup | None]:
    """Highlight the code at which two networks differ first; None where there is no file."""
    operations = (first["one"], first["other"]) if first else ()
    return [operation and _excerpt(operation["source"]) for operation in operations]


def _excerpt(source: str) -> Markup | None:
    file, _, line = source.rpartition(":")
    path = Path(file)
    # A recording may name any file of this machine, and the page is shared: only the code of this
    # program is shown.
    if not line.isdigit() or path.resolve() not in _imported_files() or not path.is_file():
        return None
    number, lines = int(line), path.read_text(errors="replace").splitlines()
    start = max(number - AROUND, 1)
    code = "\n".join(lines[start - 1 : number + AROUND])
    formatter = HtmlFormatter(
        linenos="inline", linenostart=start, hl_lines=[number - start + 1], nobackground=True
    )
    return Markup(highlight(code, PythonLexer(stripnl=False), formatter))


def _imported_files() -> set[Path]:
    """List the files of the modules that this program has imported."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {Path(file).resolve() for file in files if isinstance(file, str)}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
