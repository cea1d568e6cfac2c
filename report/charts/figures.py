"""All charts of a comparison: those of the page, and the files of them for papers."""

import re
from collections.abc import Mapping
from typing import Any

from ..environments import aggregate_chart, curves_by_environment
from . import cost, curves, divergence, drawing, returns
from .chart import Chart

CURVES = "curves"
FOLDER = "figures"  # of all files but the learning curves
HEADINGS = {
    CURVES: "Learning curves",
    "aggregate": "Normalized scores over all environments",
    "returns": "Return after training",
    "profiles": "Performance profiles",
    "ladder": "Return after training on each rung of the ladder",
    "cost": "Seconds until training runs",
}


def page_charts(result: Mapping[str, Any]) -> list[Chart]:
    """Build the charts that the page shows in its width, without those that have no data."""
    built = [
        curves.curves_chart(result),
        *curves_by_environment(result).values(),
        aggregate_chart(result),
        divergence.divergence_chart(result),
        returns.returns_chart(result),
        returns.profiles_chart(result),
        returns.ladder_chart(result.get("ladder"), list(result["backends"])),
        cost.start_chart(result["cost"]) if result.get("cost") else None,
    ]
    return [chart for chart in built if chart is not None]


def figures(result: Mapping[str, Any]) -> dict[str, tuple[Chart, str]]:
    """List the charts that are written as files.

    Returns:
      By path without the suffix, such as `curves` and `figures/divergence`: the chart and its
      heading.
    """
    envs = {chart.name: env for env, chart in curves_by_environment(result).items()}
    found = {}
    for chart in page_charts(result):
        path = chart.name if chart.name == CURVES else f"{FOLDER}/{chart.name}"
        heading = HEADINGS.get(chart.name, "")
        if chart.name in envs:
            env = envs[chart.name]
            path = f"{FOLDER}/{CURVES}-" + re.sub(r"[^\w.-]+", "_", env)
            heading = f"{HEADINGS[CURVES]} on {env}"
        elif chart.name == "divergence":
            heading = f"Largest difference of {divergence.first_measure(result)}"
        found[path] = chart, heading
    return found


def draw(result: Mapping[str, Any], title: str) -> dict[str, str | bytes]:
    """Draw all figures: the contents of an SVG and a PNG each, by path.

    Args:
      result: what is drawn, thinned.
      title: of the comparison.
    """
    seeds = f"{result['num_seeds']} seed{'' if result['num_seeds'] == 1 else 's'}"
    facts = f"{seeds}, {result['arithmetic']} arithmetic; verdict: {result['verdict']['level']}"
    files: dict[str, str | bytes] = {}
    for path, (chart, heading) in figures(result).items():
        lines = [title, facts] if path == CURVES else [heading, f"{title}; {facts}"]
        files[f"{path}.svg"], files[f"{path}.png"] = drawing.files(chart, lines)
    return files
