"""The page: one HTML file that holds everything it shows."""

import base64
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from ...backends import libraries
from . import numbers
from .cards import cards
from .charts import cost, curves, divergence, drawing, returns, theme
from .charts.chart import DESK, PHONE, Chart
from .contents import series, tables
from .environments import aggregate_chart, curves_by_environment, environment_names
from .groups import equal_libraries
from .matrix import details, matrix
from .tables import as_csv

ASSETS = Path(__file__).parent / "assets"
RATE_WIDTH = 330  # of a small plot, in pixels


def page(result: Mapping[str, Any], *, comparison_json: str) -> str:
    """Build the page.

    Args:
      result: what is shown, thinned.
      comparison_json: the text that the page offers as `comparison.json`.

    Returns:
      HTML without references to anything outside of it.
    """
    drawn = [chart for chart in _charts(result) if chart is not None]
    found = tables(result)
    rates = cost.rate_charts(result["cost"]) if result.get("cost") else []
    template = _environment().get_template("page.html")
    return template.render(
        result=result,
        title=title(result),
        verdict=result["verdict"],
        levels=numbers.LEVELS,
        sections=_sections(result, drawn),
        cards=cards(result),
        findings=[
            (name, cause)
            for name, facts in result["backends"].items()
            for cause in facts.get("causes") or ()
        ],
        charts={chart.name: chart for chart in drawn},
        plots={chart.name: _drawn(chart) for chart in drawn},
        specs={chart.name: drawing.live_spec(chart) for chart in drawn},
        groups=equal_libraries(result),
        envs=environment_names(result),
        curves_in={env: c.name for env, c in curves_by_environment(result).items()},
        measures=divergence.measures(result),
        equal_pairs=[numbers.pair_title(pair) for pair in divergence.equal_pairs(result)],
        matrix=matrix(result),
        details=details(result),
        rates=[(s, Markup(drawing.svg(c, RATE_WIDTH, narrow=True)), c) for s, c in rates],
        tables={table.name: table for table in found},
        downloads=_downloads([*found, *series(result)], comparison_json),
        code=_code(result.get("code")),
        colours=theme.colours(list(result["backends"])),
        style=Markup(_style()),
        script=Markup((ASSETS / "page.js").read_text()),
        library=drawing.script(),
        n=numbers,
        titled=libraries.title,
    )


def title(result: Mapping[str, Any]) -> str:
    """Name a comparison."""
    envs = environment_names(result)
    where = envs[0] if len(envs) == 1 else f"{len(envs)} environments"
    return f"{result['algorithm']} on {where}"


def _sections(result: Mapping[str, Any], drawn: Sequence[Chart]) -> list[tuple[str, str]]:
    """List the sections that the page has: their identifiers and short names."""
    names = {chart.name for chart in drawn}
    present = {
        "against": ("Since then", result.get("against")),
        "curves": ("Curves", "curves" in names),
        "environments": ("Environments", result.get("environments")),
        "returns": ("Returns", "returns" in names),
        "divergence": ("Divergence", result.get("divergence")),
        "pairs": ("Libraries", result.get("pairs")),
        "ladder": ("Ladder", result.get("ladder")),
        "cost": ("Cost", True),
        "programs": ("Programs", result.get("programs")),
        "code": ("Code", result.get("code")),
        "run": ("Run", True),
    }
    return [(name, title) for name, (title, shown) in present.items() if shown]


def _charts(result: Mapping[str, Any]) -> list[Chart | None]:
    return [
        curves.curves_chart(result),
        divergence.divergence_chart(result),
        *curves_by_environment(result).values(),
        aggregate_chart(result),
        returns.returns_chart(result),
        returns.profiles_chart(result),
        returns.ladder_chart(result.get("ladder"), list(result["backends"])),
        cost.start_chart(result["cost"]) if result.get("cost") else None,
    ]


def _drawn(chart: Chart) -> dict[str, Markup]:
    return {
        "desk": Markup(drawing.svg(chart, DESK)),
        "phone": Markup(drawing.svg(chart, PHONE, narrow=True)),
    }


def _downloads(found: Sequence[Any], comparison_json: str) -> list[tuple[str, str, int]]:
    """List the files that the page offers: name, data URI, bytes."""
    offered = [
        (
            "comparison.json",
            "data:application/json;base64," + base64.b64encode(comparison_json.encode()).decode(),
            len(comparison_json.encode()),
        )
    ]
    for table in found:
        text = as_csv(table)
        uri = f"data:text/csv;charset=utf-8,{quote(text, safe=' ,;:/()[]')}"
        offered.append((f"{table.name}.csv", uri, len(text.encode())))
    return offered


def _code(code: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    longest = max((each["lines"] for each in (code or {}).values()), default=1)
    return [
        {
            "library": name,
            "path": each["path"],
            "lines": each["lines"],
            "share": each["lines"] / max(longest, 1),
            "source": Markup(_highlighted(each["source"])),
        }
        for name, each in (code or {}).items()
    ]


def _highlighted(source: str) -> str:
    return highlight(source, PythonLexer(stripnl=True), HtmlFormatter(nowrap=True))


def _style() -> str:
    """Give each colour of the plots a variable, which is another colour where the page is dark."""
    light = (*theme.DARK, *theme.LIBRARIES.values(), *theme.OTHERS)
    variables = "".join(f"{_variable(colour)}:{colour};" for colour in dict.fromkeys(light))
    dark = "".join(f"{_variable(colour)}:{other};" for colour, other in theme.DARK.items())
    marks = "".join(
        f'svg [{part}="{colour}"]{{{part}:var({_variable(colour)})}}'
        for colour in theme.DARK
        for part in ("fill", "stroke")
    )
    return (
        f":root{{{variables}}}\n"
        f"@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"
        f"{marks}\n{(ASSETS / 'page.css').read_text()}"
    )


def _variable(colour: str) -> str:
    return f"--c-{colour.removeprefix('#')}"


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["variable"] = lambda colour: f"var({_variable(colour)})"
    environment.filters["spec"] = lambda spec: Markup(
        json.dumps(spec, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    )
    return environment
