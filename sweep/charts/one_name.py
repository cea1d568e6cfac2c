"""The return over one swept name: points over a number, or a row for each value."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...report.charts.chart import SHORT, Chart, table
from ...report.charts.cost import dots_chart
from ...report.charts.theme import LIBRARIES, Spec
from ..axes import format_value
from .values import RETURN, is_log, is_number, values_of

MAX_TICKS = 10  # values that an axis shows one by one


def numbers_chart(records: Sequence[Mapping[str, Any]], name: str, chart: str) -> Chart | None:
    """Build a plot of the return over one number; None if a value is not a number."""
    values = values_of(records, name)
    if not all(map(is_number, values)):
        return None
    x: Spec = {"field": "x", "type": "quantitative", "title": name}
    kind = "log" if is_log(values) else "linear"
    x |= {"scale": {"type": kind, "zero": False, "padding": 20, "nice": False}}
    ticks = sorted(set(values)) if len(set(values)) <= MAX_TICKS else None
    x["axis"] = {"format": "~g", "labelOverlap": True, **({"values": ticks} if ticks else {})}
    y: Spec = {"type": "quantitative", "title": RETURN, "scale": {"zero": False}}
    y["axis"] = {"labelExpr": SHORT}
    rows = [
        (float(value), *(record["return"][key] for key in ("value", "low", "high")))
        for value, record in zip(values, records, strict=True)
    ]
    seeds = [
        (float(value), float(one))
        for value, record in zip(values, records, strict=True)
        for one in record["returns"]
        if one is not None and math.isfinite(one)
    ]
    blue = LIBRARIES["haiku"]
    means = table(("x", "value", "low", "high"), rows)
    dot = {"type": "point", "filled": True, "opacity": 1, "color": blue}
    tooltip = [
        {"field": field, "type": "quantitative", "format": ",.4~r", "title": title}
        for field, title in (("x", name), ("value", "return"), ("low", "low"), ("high", "high"))
    ]
    layers = [
        {
            "data": table(("x", "value"), seeds),
            "mark": {**dot, "size": 22, "opacity": 0.35},
            "encoding": {"x": x, "y": {**y, "field": "value"}},
        },
        {
            "data": means,
            "mark": {"type": "line", "color": blue, "strokeWidth": 1.6},
            "encoding": {"x": x, "y": {**y, "field": "value"}},
        },
        {
            "data": means,
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "color": blue, "strokeWidth": 3, "opacity": 0.55},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "data": means,
            "mark": {**dot, "size": 90},
            "encoding": {"x": x, "y": {**y, "field": "value"}, "tooltip": tooltip},
        },
    ]
    return Chart(
        name=chart,
        description=f"Return against {name}: each seed, the mean and its interval.",
        content={"layer": layers},
    )


def rows_chart(records: Sequence[Mapping[str, Any]], name: str, chart: str) -> Chart:
    """Build a plot with a row for each value of a name."""
    ordered = sorted(records, key=lambda record: record["setting"])
    labels = [format_value(value) for value in values_of(ordered, name)]
    return dots_chart(
        chart,
        [
            (label, *(record["return"][key] for key in ("value", "low", "high")))
            for label, record in zip(labels, ordered, strict=True)
        ],
        [LIBRARIES["haiku"]] * len(ordered),
        RETURN,
        description=f"Return for each {name}: each seed, the mean and its interval.",
        seeds=[
            (label, float(one))
            for label, record in zip(labels, ordered, strict=True)
            for one in record["returns"]
            if one is not None and math.isfinite(one)
        ],
        step=42,
    )
