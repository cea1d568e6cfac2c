"""What the page embeds: its style, the files that it offers, and highlighted code."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from .charts import theme
from .tables import Table, as_csv

ASSETS = Path(__file__).parent / "assets"


def style() -> str:
    """Give each colour of the plots a variable, which is another colour where the page is dark."""
    light = (*theme.DARK, *theme.LIBRARIES.values(), *theme.OTHERS)
    variables = "".join(f"{variable(colour)}:{colour};" for colour in dict.fromkeys(light))
    dark = "".join(f"{variable(colour)}:{other};" for colour, other in theme.DARK.items())
    marks = "".join(
        f'svg [{part}="{colour}"]{{{part}:var({variable(colour)})}}'
        for colour in theme.DARK
        for part in ("fill", "stroke")
    )
    return (
        f":root{{{variables}}}\n"
        f"@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"
        f"{marks}\n{(ASSETS / 'page.css').read_text()}"
    )


def variable(colour: str) -> str:
    """Name the style sheet's variable of a colour of the plots."""
    return f"--c-{colour.removeprefix('#')}"


def downloads(
    tables: Sequence[Table], result_json: str, name: str = "comparison.json"
) -> list[tuple[str, str, int]]:
    """List the files that the page offers, also without JavaScript.

    Args:
      tables: offered as CSV.
      result_json: the result as text.
      name: of its file.

    Returns:
      Name, data URI and number of bytes.
    """
    content = result_json.encode()
    json_uri = f"data:application/json;base64,{base64.b64encode(content).decode()}"
    offered = [(name, json_uri, len(content))]
    for table in tables:
        text = as_csv(table)
        uri = f"data:text/csv;charset=utf-8,{quote(text, safe=' ,;:/()[]')}"
        offered.append((f"{table.name}.csv", uri, len(text.encode())))
    return offered


def code(found: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Highlight the code of each library's network, with its length relative to the longest."""
    known = {name: each for name, each in (found or {}).items() if each.get("source")}
    longest = max((each["lines"] for each in known.values()), default=1)
    return [
        {
            "library": name,
            "path": each["path"],
            "lines": each["lines"],
            "share": each["lines"] / max(longest, 1),
            "source": Markup(highlight(each["source"], PythonLexer(), HtmlFormatter(nowrap=True))),
        }
        for name, each in known.items()
    ]
