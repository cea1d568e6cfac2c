"""Build a page: one HTML file that holds everything it shows, from a template of `assets`."""

import functools
import re
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from ...core.errors import TriglotError, counted
from ...core.records import JSON
from . import numbers
from .charts import drawing, theme
from .charts.chart import Chart
from .tables import Table, as_csv

PAGE = "report.html"
SAFE = " ,;:/()[]{}"  # characters that mean nothing in a data URI
ASSETS = Path(__file__).parent / "assets"
HYPHENATED = re.compile(r"--[a-z][\w-]*|\d[\d.]*e-\d+")  # an option, a small number


def page(
    command: str,
    result: JSON,
    *,
    drawn: Sequence[Chart],
    tables: Sequence[Table],
    files: Mapping[str, str],
    **content: Any,
) -> str:
    """Build the page of a command's result.

    Args:
      command: `compare` or `sweep`; the template has its name.
      result: what is shown, as its JSON file holds it.
      drawn: the charts, shown by name.
      tables: shown by name.
      files: texts that the page offers, by name, also without JavaScript.
      content: what the template shows besides: `title`, and `figures`, the paths of the pictures in
        the page's folder, without suffix.

    Returns:
      HTML without references to anything outside of it.
    """
    kinds = {".json": "application/json", ".csv": "text/csv"}
    return (
        environment()
        .get_template(f"{command}.html")
        .render(
            command=command,
            result=result,
            charts={chart.name: chart for chart in drawn},
            plots={
                chart.name: {
                    "desk": Markup(drawing.svg(chart, drawing.DESK)),
                    "phone": Markup(drawing.svg(chart, drawing.PHONE, narrow=True)),
                }
                for chart in drawn
            },
            tables={table.name: table for table in tables},
            downloads=[
                # In base64, numbers would be longer.
                (
                    name,
                    f"data:{kinds[Path(name).suffix]};charset=utf-8,{quote(text, safe=SAFE)}",
                    len(text.encode()),
                )
                for name, text in files.items()
            ],
            sections=[],  # the template adds those that it shows
            style=Markup(_style(drawn)),
            script=Markup((ASSETS / "page.js").read_text()),
            n=numbers,
            counted=counted,
            **content,
        )
    )


def as_files(tables: Sequence[Table]) -> dict[str, str]:
    """Format tables as CSV files, by name."""
    return {f"{table.name}.csv": as_csv(table) for table in tables}


def open_report(folder: Path) -> None:
    """Open the page in a folder in the web browser.

    Raises:
      TriglotError: if there is no browser that could open it.
    """
    file = (folder / PAGE).resolve()
    if not webbrowser.open(file.as_uri()):
        raise TriglotError(f"no web browser was found; open {file} in one.")


def _style(drawn: Sequence[Chart]) -> str:
    """Build the style sheet, with a variable for each colour of the plots and their switches."""
    light = (*theme.DARK, *theme.PALETTE)
    variables = "".join(f"{theme.variable(colour)}:{colour};" for colour in dict.fromkeys(light))
    dark = "".join(f"{theme.variable(colour)}:{other};" for colour, other in theme.DARK.items())
    keys = dict.fromkeys(
        part.key
        for chart in drawn
        for part in (*(chart.series if chart.can_hide else ()), *chart.switches)
    )
    hidden = "\n".join(
        f".plot:has([data-shows={key}]:not(:checked)) .{key}{{display:none}}" for key in keys
    )
    return (
        f":root{{{variables}}}\n"
        f"@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"
        f"{(ASSETS / 'page.css').read_text()}{hidden}"
    )


@functools.cache
def environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["variable"] = lambda colour: f"var({theme.variable(colour)})"
    environment.filters["unbroken"] = _unbroken
    return environment


def _unbroken(text: str) -> Markup:
    """Keep options and numbers in one line, where a browser would break them at a hyphen."""
    escaped = str(escape(text))  # of a Markup, `sub` would escape the tags too
    return Markup(HYPHENATED.sub(r'<span class="unbroken">\g<0></span>', escaped))
