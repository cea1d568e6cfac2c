"""The return over several swept names: a heat map of two, parallel coordinates of more."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..numbers import format_value
from ..statistics import format_return
from .chart import Chart, number, table, word
from .theme import GROUND, INK, STAGES, Spec

RETURN = "return per episode"
LOG_RATIO = 20  # largest to smallest value of a name, above which its axis is logarithmic
MAX_CELLS = 30  # values of a name in a heat map


def is_grid(records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bool:
    """Return whether most combinations of the values of two names were trained."""
    columns = [set(values_of(records, name)) for name in names]
    cells = len(columns[0]) * len(columns[1])
    return max(map(len, columns)) <= MAX_CELLS and len(records) >= cells / 2


def heat_map(records: Sequence[Mapping[str, Any]], names: Sequence[str], chart: str) -> Chart:
    """Build a heat map: a cell for each combination of the values of two names."""
    returns = [record["return"]["value"] for record in records]
    rows = [
        (*(format_value(one["values"][name]) for name in names), value, format_return(value))
        for one, value in zip(records, returns, strict=True)
    ]
    (across, down), columns = names, [ordered_texts(values_of(records, name)) for name in names]
    x = word("x", across, type="ordinal", sort=columns[0], axis={"labelAngle": 0})
    # The largest number stands above.
    y = word("y", down, type="ordinal", sort=columns[1][::-1])
    low, high = _domain(returns)
    dark = low + (high - low) * 4 / len(STAGES)  # from where the fill is dark
    ink = {"condition": {"test": f"datum.value >= {dark!r}", "value": GROUND}, "value": INK}
    height = max(26, min(48, 330 // len(columns[1]))) * len(columns[1]) + 60
    tooltip = [word("x", across), word("y", down), word("text", "return")]
    cells = {
        "mark": {"type": "rect", "stroke": GROUND, "strokeWidth": 2},
        "encoding": {"color": _colour(returns, "square"), "tooltip": tooltip},
    }
    text = {"text": {"field": "text"}, "color": ink}
    return Chart(
        name=chart,
        description=f"Mean return for each {across} and {down}.",
        content={
            "data": table(("x", "y", "value", "text"), rows, words=("x", "y", "text")),
            "encoding": {"x": x, "y": y},
            "layer": [cells, {"mark": {"type": "text", "fontSize": 12}, "encoding": text}],
        },
        heights=(height, height),
    )


def parallel_chart(records: Sequence[Mapping[str, Any]], names: Sequence[str], chart: str) -> Chart:
    """Build parallel coordinates: a line for each setting, an axis for each name and the return."""
    axes = {name: values_of(records, name) for name in names}
    returns = axes["return"] = [record["return"]["value"] for record in records]
    places = {name: _places(values) for name, values in axes.items()}
    worst_first = sorted(range(len(records)), key=lambda index: returns[index])
    rows = [
        (f"s{order:05d}", name, places[name][format_value(values[index])], returns[index])
        for order, index in enumerate(worst_first)
        for name, values in axes.items()
    ]
    labels = []
    for name, values in axes.items():
        shown = sorted(places[name].items(), key=lambda item: item[1])
        if len(shown) > 6 and all(map(is_number, values)):  # a scale of numbers: its ends
            shown = [shown[0], shown[-1]]
        form = (lambda text: format_return(float(text))) if name == "return" else str
        labels += [(name, place, form(text)) for text, place in shown]
    look = {"labelAngle": 0, "grid": True, "labelColor": INK, "labelFontSize": 13}
    x = word("axis", type="ordinal", sort=list(axes), axis=look, scale={"padding": 0.5})
    y = number("y", axis=None, scale={"domain": [-0.03, 1.03], "nice": False})
    lines = {
        "data": table(("s", "axis", "y", "value"), rows, words=("s", "axis")),
        "mark": {"type": "line", "strokeWidth": 1.8, "opacity": 0.9},
        "encoding": {"color": _colour(returns, "stroke"), "detail": {"field": "s"}},
    }
    texts = [
        {
            "data": table(("axis", "y", "text"), labels, words=("axis", "text")),
            "mark": {"type": "text", "align": "left", "dx": 6, **colour},
            "encoding": {"text": {"field": "text"}},
        }
        # The first lies behind the second, so that lines do not cross the text.
        for colour in ({"stroke": GROUND, "strokeWidth": 5}, {"color": INK})
    ]
    return Chart(
        name=chart,
        description=f"Each setting as a line over {', '.join(names)} and its return.",
        content={"encoding": {"x": x, "y": y}, "layer": [lines, *texts]},
        heights=(380, 320),
    )


def _colour(returns: Sequence[float], symbol: str) -> Spec:
    """Build the channel that colours by the return, darker for higher ones."""
    scale = {"type": "quantize", "range": list(STAGES), "domain": _domain(returns)}
    legend = {"title": RETURN, "symbolType": symbol, "symbolOpacity": 1}
    return number("value", scale=scale, legend=legend)


def _domain(returns: Sequence[float]) -> list[float]:
    low, high = min(returns), max(returns)
    return [low, high] if high > low else [low - 0.5, high + 0.5]


def _places(values: Sequence[Any]) -> dict[str, float]:
    """Place the values of an axis between 0 and 1, by their text."""
    if all(map(is_number, values)):
        scale = math.log if is_log(values) else float
        low, high = scale(min(values)), scale(max(values))
        return {format_value(v): (scale(v) - low) / ((high - low) or 1.0) for v in values}
    texts = ordered_texts(values)
    return {text: index / max(1, len(texts) - 1) for index, text in enumerate(texts)}


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def values_of(records: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """List the values of a name."""
    return [record["values"][name] for record in records]


def is_log(values: Sequence[float]) -> bool:
    """Return whether numbers need a logarithmic axis."""
    return min(values) > 0 and max(values) >= LOG_RATIO * min(values)


def ordered_texts(values: Sequence[Any]) -> list[str]:
    """Order the values of an axis: numbers by size, others as they were given."""
    unique = list(dict.fromkeys(values))
    return list(map(format_value, sorted(unique) if all(map(is_number, unique)) else unique))
