"""What the page embeds: its style, the files that it offers, and highlighted code."""

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

SAFE = " ,;:/()[]{}"  # characters that mean nothing in a data URI
ASSETS = Path(__file__).parent / "assets"


def style() -> str:
    """Give each colour of the plots a variable, which is another colour where the page is dark."""
    light = (*theme.DARK, *theme.PALETTE)
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
    files = [(name, "application/json", result_json)]
    files += [(f"{table.name}.csv", "text/csv", as_csv(table)) for table in tables]
    return [
        # In base64, numbers would be longer.
        (name, f"data:{kind};charset=utf-8,{quote(text, safe=SAFE)}", len(text.encode()))
        for name, kind, text in files
    ]


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
