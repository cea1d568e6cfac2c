"""The page: one HTML file that holds everything it shows."""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from ...backends import libraries
from . import embedded, numbers
from .cards import cards
from .charts import cost, divergence, drawing, figures, theme
from .charts.chart import DESK, PHONE, RATE, Chart
from .contents import series, speeds_table, tables
from .environments import curves_by_environment, environment_names
from .groups import equal_libraries
from .matrix import details, matrix
from .programs import program_pairs


def page(result: Mapping[str, Any], *, comparison_json: str) -> str:
    """Build the page.

    Args:
      result: what is shown, thinned.
      comparison_json: the text that the page offers as `comparison.json`.

    Returns:
      HTML without references to anything outside of it.
    """
    drawn = figures.page_charts(result)
    rates = cost.rate_charts(result["cost"]) if result.get("cost") else []
    found = tables(result)
    template = _environment().get_template("page.html")
    return template.render(
        result=result,
        title=title(result),
        verdict=result["verdict"],
        sections=_sections(result, drawn),
        cards=cards(result),
        findings=_findings(result),
        groups=equal_libraries(result),
        envs=environment_names(result),
        curves_in={env: c.name for env, c in curves_by_environment(result).items()},
        measures=divergence.measures(result),
        equal_pairs=[numbers.pair_title(pair) for pair in divergence.equal_pairs(result)],
        matrix=matrix(result),
        details=details(result),
        programs=program_pairs(result),
        code=embedded.code(result.get("code")),
        charts={chart.name: chart for chart in drawn},
        plots={chart.name: _drawn(chart) for chart in drawn},
        specs={chart.name: drawing.live_spec(chart) for chart in drawn},
        rates=[(stage, Markup(drawing.svg(chart, RATE)), chart) for stage, chart in rates],
        speeds=speeds_table(result),
        tables={table.name: table for table in found},
        figures=list(figures.figures(result)),
        downloads=embedded.downloads([*found, *series(result)], comparison_json),
        colours=theme.colours(list(result["backends"])),
        style=Markup(embedded.style()),
        script=Markup((embedded.ASSETS / "page.js").read_text()),
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
    return [(name, heading) for name, (heading, shown) in present.items() if shown]


def _findings(result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, str]]]:
    """List what was found in one library, such as memory that grows."""
    return [
        (name, cause)
        for name, facts in result["backends"].items()
        for cause in facts.get("causes") or ()
    ]


def _drawn(chart: Chart) -> dict[str, Markup]:
    return {
        "desk": Markup(drawing.svg(chart, DESK)),
        "phone": Markup(drawing.svg(chart, PHONE, narrow=True)),
    }


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(embedded.ASSETS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["variable"] = lambda colour: f"var({embedded.variable(colour)})"
    environment.filters["spec"] = _as_script
    return environment


def _as_script(spec: Mapping[str, Any]) -> Markup:
    """Format JSON for a script element, which `</` would end."""
    text = json.dumps(spec, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c"))
