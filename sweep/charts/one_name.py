"""The return over one swept name: points over a number, or a row for each value."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...report.charts.chart import SHORT, Chart, number
from ...report.charts.estimates import estimates, row_of, rows_chart
from ...report.charts.theme import LIBRARIES, Spec
from ..axes import format_value
from .values import RETURN, is_log, is_number, values_of

MAX_TICKS = 10  # values that an axis shows one by one
BLUE = LIBRARIES["haiku"]


def one_name_chart(records: Sequence[Mapping[str, Any]], name: str, chart: str) -> Chart:
    """Build a plot of the return over the values of one name, a number or not."""
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
    *_, means = layers
    line = {"type": "line", "color": BLUE, "strokeWidth": 1.6}
    joined: Spec = {**means, "mark": line}
    return Chart(
        name=chart,
        description=f"{words} interval.",
        content={"layer": [joined, *layers]},
    )
