"""The main chart of a sweep, by the number of swept names, and the curves of the best settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..report.charts.chart import SHORT, Chart, Series, table
from ..report.charts.cost import dots_chart
from ..report.charts.curves import seeds_chart
from ..report.charts.theme import GROUND, INK, LIBRARIES, OTHERS, STAGES, Spec
from ..statistics import format_return
from .axes import format_value

COLOURS = (*LIBRARIES.values(), OTHERS[0])
BEST = len(COLOURS)  # settings whose learning curves are drawn
LOG_RATIO = 20  # largest to smallest value of a name, above which its axis is logarithmic
MAX_TICKS = 10  # values that an axis shows one by one
MAX_CELLS = 30  # values of a name in a heat map
RETURN = "return per episode"


def main_chart(records: Sequence[Mapping[str, Any]], names: Sequence[str], name: str) -> Chart:
    """Build the chart that shows how the return depends on what was swept.

    Args:
      records: the settings of one environment that have a return; see `results.as_records`.
      names: what was swept in it, at least one name.
      name: of the chart.
    """
    if len(names) == 1:
        return _numbers(records, names[0], name) or _rows(records, names[0], name)
    if len(names) == 2 and _is_grid(records, names):
        return _heat_map(records, names, name)
    return _parallel(records, names, name)


def curves_chart(
    records: Sequence[Mapping[str, Any]], curves: Mapping[str, Any], name: str
) -> Chart:
    """Build the plot of the learning curves of the best settings.

    Args:
      records: the best settings of one environment.
      curves: `env_steps`, and the seeds' returns by the number of the setting.
      name: of the chart.
    """
    series = tuple(Series(f"g{i}", _label(one), (COLOURS[i],)) for i, one in enumerate(records))
    seeds = [curves["settings"][str(one["setting"])] for one in records]
    return seeds_chart(name, series, seeds, curves["env_steps"])


def _label(record: Mapping[str, Any]) -> str:
    values = ", ".join(f"{name} {format_value(v)}" for name, v in record["values"].items())
    return f"{record['rank']}. {values}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _values(records: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    return [record["values"][name] for record in records]


def _is_log(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) >= LOG_RATIO * min(values)


def _numbers(records: Sequence[Mapping[str, Any]], name: str, chart: str) -> Chart | None:
    """Build a plot of the return over one number; None if a value is not a number."""
    values = _values(records, name)
    if not all(map(_is_number, values)):
        return None
    x: Spec = {"field": "x", "type": "quantitative", "title": name}
    kind = "log" if _is_log(values) else "linear"
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


def _rows(records: Sequence[Mapping[str, Any]], name: str, chart: str) -> Chart:
    """Build a plot with a row for each value of a name."""
    ordered = sorted(records, key=lambda record: record["setting"])
    labels = [format_value(value) for value in _values(ordered, name)]
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


def _is_grid(records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bool:
    columns = [set(_values(records, name)) for name in names]
    cells = len(columns[0]) * len(columns[1])
    return max(map(len, columns)) <= MAX_CELLS and len(records) >= cells / 2


def _ordered(values: Sequence[Any]) -> list[str]:
    """Order the values of an axis: numbers by size, others as they were given."""
    unique = list(dict.fromkeys(values))
    return list(map(format_value, sorted(unique) if all(map(_is_number, unique)) else unique))


def _heat_map(records: Sequence[Mapping[str, Any]], names: Sequence[str], chart: str) -> Chart:
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
    columns = {name: _ordered(_values(ordered, name)) for name in names}
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
    color["scale"]["domain"] = _domain(returns)
    low, high = _domain(returns)
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


def _domain(returns: Sequence[float]) -> list[float]:
    low, high = min(returns), max(returns)
    return [low, high] if high > low else [low - 0.5, high + 0.5]


def _parallel(records: Sequence[Mapping[str, Any]], names: Sequence[str], chart: str) -> Chart:
    """Build parallel coordinates: a line for each setting, an axis for each name and the return."""
    axes = [*names, "return"]
    places = {name: _places(_values(records, name)) for name in names}
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
        "scale": {"type": "quantize", "range": list(STAGES), "domain": _domain(returns)},
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
    if all(map(_is_number, values)):
        scale = math.log if _is_log(values) else float
        low, high = scale(min(values)), scale(max(values))
        span = (high - low) or 1.0
        return {format_value(value): ((scale(value) - low) / span, True) for value in values}
    unique = _ordered(values)
    last = max(1, len(unique) - 1)
    return {text: (index / last, False) for index, text in enumerate(unique)}
