"""The return over several swept names: a heat map of two, parallel coordinates of more."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...report.charts.chart import Chart, table
from ...report.charts.theme import GROUND, INK, STAGES, Spec
from ...report.statistics import format_return
from ..axes import format_value
from .values import RETURN, domain, is_log, is_number, ordered_texts, values_of

MAX_CELLS = 30  # values of a name in a heat map


def is_grid(records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bool:
    """Return whether most combinations of the values of two names were trained."""
    columns = [set(values_of(records, name)) for name in names]
    cells = len(columns[0]) * len(columns[1])
    return max(map(len, columns)) <= MAX_CELLS and len(records) >= cells / 2


def heat_map(records: Sequence[Mapping[str, Any]], names: Sequence[str], chart: str) -> Chart:
    """Build a heat map: a cell for each combination of the values of two names."""
    ordered = sorted(records, key=lambda record: record["setting"])
    across, down = names
    rows = [
        (
            *(format_value(record["values"][name]) for name in names),
            record["return"]["value"],
            format_return(record["return"]["value"]),
        )
        for record in ordered
    ]
    columns = {name: ordered_texts(values_of(ordered, name)) for name in names}
    x, y = (
        {"field": field, "type": "ordinal", "title": name, "sort": columns[name]}
        for field, name in (("x", across), ("y", down))
    )
    y["sort"] = y["sort"][::-1]  # the largest number above
    x["axis"] = {"labelAngle": 0}
    returns = [record["return"]["value"] for record in ordered]
    color: Spec = {
        "field": "value",
        "type": "quantitative",
        "scale": {"type": "quantize", "range": list(STAGES), "nice": False, "zero": False},
        "legend": {"title": RETURN, "symbolType": "square", "symbolOpacity": 1},
    }
    color["scale"]["domain"] = domain(returns)
    low, high = domain(returns)
    dark = low + (high - low) * 4 / len(STAGES)  # from where the fill is dark
    text = {"condition": {"test": f"datum.value >= {dark!r}", "value": GROUND}, "value": INK}
    size = max(26, min(48, 330 // len(columns[down])))
    return Chart(
        name=chart,
        description=f"Mean return for each {across} and {down}.",
        content={
            "data": table(("x", "y", "value", "text"), rows, words=("x", "y", "text")),
            "encoding": {"x": x, "y": y},
            "layer": [
                {
                    "mark": {"type": "rect", "stroke": GROUND, "strokeWidth": 2},
                    "encoding": {
                        "color": color,
                        "tooltip": [
                            {"field": "x", "title": across, "type": "nominal"},
                            {"field": "y", "title": down, "type": "nominal"},
                            {"field": "text", "title": "return", "type": "nominal"},
                        ],
                    },
                },
                {
                    "mark": {"type": "text", "fontSize": 12},
                    "encoding": {"text": {"field": "text"}, "color": text},
                },
            ],
        },
        heights=(size * len(columns[down]) + 60, size * len(columns[down]) + 60),
    )


def parallel_chart(records: Sequence[Mapping[str, Any]], names: Sequence[str], chart: str) -> Chart:
    """Build parallel coordinates: a line for each setting, an axis for each name and the return."""
    axes = [*names, "return"]
    places = {name: _places(values_of(records, name)) for name in names}
    returns = [record["return"]["value"] for record in records]
    places["return"] = _places(returns)
    rows, labels = [], []
    worst_first = sorted(range(len(records)), key=lambda index: returns[index])
    for order, index in enumerate(worst_first):
        for axis in axes:
            value = returns[index] if axis == "return" else records[index]["values"][axis]
            place, _ = places[axis][format_value(value)]
            rows.append((f"s{order:05d}", axis, place, returns[index]))
    for axis in axes:
        shown = sorted(places[axis].items(), key=lambda item: item[1][0])
        if shown[0][1][1] and len(shown) > 6:  # a scale of numbers: its ends
            shown = [shown[0], shown[-1]]
        for text, (place, _) in shown:
            labels.append((axis, place, format_return(float(text)) if axis == "return" else text))
    x: Spec = {"field": "axis", "type": "ordinal", "sort": axes, "title": None}
    x["axis"] = {"labelAngle": 0, "grid": True, "labelColor": INK, "labelFontSize": 13}
    x["scale"] = {"padding": 0.5}
    y: Spec = {"field": "y", "type": "quantitative", "axis": None}
    y["scale"] = {"domain": [-0.03, 1.03], "nice": False}
    color: Spec = {
        "field": "value",
        "type": "quantitative",
        "scale": {"type": "quantize", "range": list(STAGES), "domain": domain(returns)},
        "legend": {"title": RETURN, "symbolType": "stroke", "symbolOpacity": 1},
    }
    return Chart(
        name=chart,
        description=f"Each setting as a line over {', '.join(names)} and its return.",
        content={
            "layer": [
                {
                    "data": table(("s", "axis", "y", "value"), rows, words=("s", "axis")),
                    "mark": {"type": "line", "strokeWidth": 1.8, "opacity": 0.9},
                    "encoding": {"x": x, "y": y, "color": color, "detail": {"field": "s"}},
                },
                *(
                    {
                        "data": table(("axis", "y", "text"), labels, words=("axis", "text")),
                        "mark": {"type": "text", "align": "left", "dx": 6, **colour},
                        "encoding": {"x": x, "y": y, "text": {"field": "text"}},
                    }
                    # The first lies behind the second, so that lines do not cross the text.
                    for colour in ({"stroke": GROUND, "strokeWidth": 5}, {"color": INK})
                ),
            ]
        },
        heights=(380, 320),
    )


def _places(values: Sequence[Any]) -> dict[str, tuple[float, bool]]:
    """Place the values of an axis between 0 and 1, by their text; and whether it is a scale."""
    if all(map(is_number, values)):
        scale = math.log if is_log(values) else float
        low, high = scale(min(values)), scale(max(values))
        span = (high - low) or 1.0
        return {format_value(value): ((scale(value) - low) / span, True) for value in values}
    unique = ordered_texts(values)
    last = max(1, len(unique) - 1)
    return {text: (index / last, False) for index, text in enumerate(unique)}
