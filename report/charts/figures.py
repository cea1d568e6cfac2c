"""All charts of a comparison: those of the page, and the files of them for papers."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .. import numbers
from . import cost, curves, divergence, drawing, returns
from .chart import Chart

CURVES = "curves"
FOLDER = "figures"  # of all files but the learning curves


def page_charts(result: Mapping[str, Any]) -> list[Chart]:
    """Build the charts that the page shows in its width, without those that have no data."""
    others = list((result.get("environments") or {}).items())[1:]
    built = [
        curves.curves_chart(result),
        *(
            curves.curves_chart(one, curves_name(env), f"{curves.TITLE} on {env}")
            for env, one in others
        ),
        returns.aggregate_chart(result),
        divergence.divergence_chart(result),
        returns.returns_chart(result),
        returns.profiles_chart(result),
        returns.ladder_chart(result),
        cost.start_chart(result),
    ]
    return [chart for chart in built if chart is not None]


def curves_name(env: str) -> str:
    """Name the learning curves in an environment that is not the first."""
    return "curves-" + re.sub(r"[^\w.-]+", "_", env)


def path(chart: Chart) -> str:
    """Return the path of a chart's files, without the suffix."""
    return chart.name if chart.name == CURVES else f"{FOLDER}/{chart.name}"


def draw(charts: Sequence[Chart], result: Mapping[str, Any], title: str) -> dict[str, str | bytes]:
    """Draw the contents of an SVG and a PNG of each chart, by path.

    Args:
      charts: what is drawn.
      result: the comparison.
      title: of the comparison.
    """
    facts = (
        f"{numbers.seeds(result['num_seeds'])}, {result['arithmetic']} arithmetic; "
        f"verdict: {result['verdict']['level']}"
    )
    files: dict[str, str | bytes] = {}
    for chart in charts:
        file = path(chart)
        lines = [title, facts] if file == CURVES else [chart.heading, f"{title}; {facts}"]
        files[f"{file}.svg"], files[f"{file}.png"] = drawing.files(chart, lines)
    return files
