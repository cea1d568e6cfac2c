"""The charts of a sweep: the return over what was swept, and the curves of the best settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..numbers import format_value
from .chart import SHORT, Chart, number
from .curves import seeds_chart
from .estimates import estimates, row_of, rows_chart
from .series import Series
from .several_names import RETURN, heat_map, is_grid, is_log, is_number, parallel_chart, values_of
from .theme import LIBRARIES, PALETTE, Spec

MAX_TICKS = 10  # values that an axis shows one by one
BLUE = LIBRARIES["haiku"]


def main_chart(records: Sequence[Mapping[str, Any]], names: Sequence[str], name: str) -> Chart:
    """Build the chart that shows how the return depends on what was swept.

    Args:
      records: the settings of one environment that have a return, as `sweep.json` holds them.
      names: what was swept in it, at least one name.
      name: of the chart.
    """
    if len(names) == 1:
        return one_name_chart(records, names[0], name)
    if len(names) == 2 and is_grid(records, names):
        return heat_map(records, names, name)
    return parallel_chart(records, names, name)


def best_curves_chart(
    records: Sequence[Mapping[str, Any]], curves: Mapping[str, Any], name: str
) -> Chart:
    """Build the plot of the learning curves of the best settings.

    Args:
      records: the best settings of one environment.
      curves: `env_steps`, the seeds' returns by the number of the setting, and `return_bounds`.
      name: of the chart.
    """
    series = tuple(Series(f"g{i}", _label(one), (PALETTE[i],)) for i, one in enumerate(records))
    seeds = [curves["settings"][str(one["setting"])] for one in records]
    bounds = curves["return_bounds"]
    return seeds_chart(name, series, seeds, curves["env_steps"], bounds=bounds)


def _label(record: Mapping[str, Any]) -> str:
    values = ", ".join(f"{name} {format_value(v)}" for name, v in record["values"].items())
    return f"{record['rank']}. {values}"


def one_name_chart(records: Sequence[Mapping[str, Any]], name: str, chart: str) -> Chart:
    """Build a plot of the return over the values of one name: points over a number, or rows."""
    ordered = sorted(records, key=lambda record: record["setting"])
    values = values_of(ordered, name)
    numeric = all(map(is_number, values))
    places = list(map(float if numeric else format_value, values))
    rows = [row_of(at, one["return"]) for at, one in zip(places, ordered, strict=True)]
    seeds = [
        (at, float(value))
        for at, one in zip(places, ordered, strict=True)
        for value in one["returns"]
        if value is not None and math.isfinite(value)
    ]
    words = f"Return {'against' if numeric else 'for each'} {name}: each seed, the mean and its"
    if not numeric:
        palette = dict.fromkeys(places, BLUE)
        about = {"description": f"{words} interval.", "seeds": seeds, "step": 42}
        return rows_chart(chart, rows, palette, RETURN, **about)
    few = sorted(set(values)) if len(set(values)) <= MAX_TICKS else None
    axis = {"format": "~g", "labelOverlap": True, **({"values": few} if few else {})}
    kind = "log" if is_log(values) else "linear"
    x = number("at", name, axis=axis)
    x["scale"] = {"type": kind, "zero": False, "padding": 20, "nice": False}
    y = number(title=RETURN, scale={"zero": False}, axis={"labelExpr": SHORT})
    dot = {"type": "point", "filled": True, "size": 22, "opacity": 0.35}
    layers = estimates(rows, x, y, {"value": BLUE}, seeds=seeds, seed=dot, upright=True)
    line: Spec = {"type": "line", "color": BLUE, "strokeWidth": 1.6}
    return Chart(
        name=chart,
        description=f"{words} interval.",
        content={"layer": [{**layers[-1], "mark": line}, *layers]},
    )
