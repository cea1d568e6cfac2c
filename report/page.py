"""The page: one HTML file that holds everything it shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ..backends import libraries
from . import embedded, numbers, template
from .cards import cards
from .charts import cost, divergence, drawing, figures, theme
from .charts.chart import RATE, Chart
from .contents import series, speeds_table, tables
from .environments import curves_by_environment, environment_names
from .groups import equal_libraries
from .matrix import details, matrix
from .programs import program_pairs

SLOWER = "slower"  # the cause of costs above another library's


def page(result: Mapping[str, Any], drawn: Sequence[Chart], *, comparison_json: str) -> str:
    """Build the page.

    Args:
      result: what is shown, thinned.
      drawn: its charts.
      comparison_json: the text that the page offers as `comparison.json`.

    Returns:
      HTML without references to anything outside of it.
    """
    rates = cost.rate_charts(result["cost"]) if result.get("cost") else []
    found = tables(result)
    return template.render(
        "page.html",
        result=result,
        title=title(result),
        verdict=result["verdict"],
        sections=_sections(result, drawn),
        cards=cards(result),
        findings=_findings(result),
        groups=equal_libraries(result)[0],
        envs=environment_names(result),
        curves_in={env: c.name for env, c in curves_by_environment(result).items()},
        measures=divergence.measures(result),
        equal_pairs=[numbers.pair_title(pair) for pair in divergence.equal_pairs(result)],
        matrix=matrix(result),
        details=details(result),
        programs=program_pairs(result),
        code=embedded.code(result.get("code")),
        drawn=drawn,
        rates=[(stage, Markup(drawing.svg(chart, RATE)), chart) for stage, chart in rates],
        speeds=speeds_table(result),
        tables={table.name: table for table in found},
        figures=list(map(figures.path, drawn)),
        downloads=embedded.downloads([*found, *series(result)], comparison_json),
        colours=theme.colours(list(result["backends"])),
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
    """List what was found in one library, such as memory that grows; all its costs in one line."""
    findings = []
    slower = (result.get("cost") or {}).get("slower") or ()
    for name, facts in result["backends"].items():
        found = facts.get("causes") or ()
        findings += [(name, cause) for cause in found if cause["name"] != SLOWER]
        costs = [row for row in slower if row["backend"] == name]
        if costs:
            evidence = "; ".join(row["sentence"].removesuffix(".") for row in costs)
            findings.append((name, {"name": SLOWER, "where": "its costs", "evidence": evidence}))
    return findings
