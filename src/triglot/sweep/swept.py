"""The charts of a sweep: the return over what was swept, and the curves of the best settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..shared.pages.charts.chart import SHORT, Chart, number, table, word
from ..shared.pages.charts.curves import seeds_chart
from ..shared.pages.charts.estimates import estimates, row_of, rows_chart
from ..shared.pages.charts.theme import GROUND, INK, LIBRARIES, PALETTE, STAGES, Series, Spec
from ..shared.pages.numbers import format_value
from ..shared.statistics import format_return

RETURN = "return per episode"
LOG_RATIO = 20  # largest to smallest value of a name, above which its axis is logarithmic
MAX_CELLS = 30  # values of a name in a heat map
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
        return _one_name_chart(records, names[0], name)
    if len(names) == 2 and _is_grid(records, names):
        return _heat_map(records, names, name)
    return _parallel_chart(records, names, name)


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


def search_chart(records: Sequence[Mapping[str, Any]], name: str) -> Chart:
    """Build the plot of a search: the return of each setting in its order, and the best up to it.

    A setting that was stopped early has its return in training and does not count as the best.

    Args:
      records: the settings of one environment that have a return.
      name: of the chart.
    """
    rows, best = [], -math.inf
    for one in sorted(records, key=lambda record: record["setting"]):
        value, is_whole = one["return"]["value"], one["status"] == "finished"
        best = max(best, value) if is_whole else best
        kind = "trained to the end" if is_whole else "stopped early"
        rows.append((one["setting"], value, best if math.isfinite(best) else None, kind))
    kinds = {"trained to the end": "circle", "stopped early": "cross"}
    legend = {} if any(row[-1] == "stopped early" for row in rows) else None
    scale = {"domain": list(kinds), "range": list(kinds.values())}
    shape = word("kind", None, scale=scale, legend=legend)
    tooltip = [number("x", "setting"), number("y", "return", format=".4~g")]
    dots: Spec = {
        "mark": {"type": "point", "color": BLUE, "size": 42, "opacity": 0.6},
        "encoding": {"y": number("y", RETURN), "shape": shape, "tooltip": tooltip},
    }
    line: Spec = {
        "transform": [{"filter": "isValid(datum.best)"}],
        "mark": {"type": "line", "interpolate": "step-after", "color": INK, "strokeWidth": 1.8},
        "encoding": {"y": number("best", RETURN)},
    }
    x = number("x", "settings, in the order of the search", scale={"nice": False, "padding": 12})
    return Chart(
        name=name,
        description="The return of each setting in the order of the search, and the best so far.",
        content={
            "data": table(("x", "y", "best", "kind"), rows, words=("kind",)),
            "encoding": {"x": x},
            "layer": [line, dots],
        },
    )


def _label(record: Mapping[str, Any]) -> str:
    values = ", ".join(f"{name} {format_value(v)}" for name, v in record["values"].items())
    return f"{record['rank']}. {values}"


def _one_name_chart(records: Sequence[Mapping[str, Any]], name: str, chart: str) -> Chart:
    """Build a plot of the return over the values of one name: points over a number, or rows."""
    ordered = sorted(records, key=lambda record: record["setting"])
    values = _values_of(ordered, name)
    numeric = all(map(_is_number, values))
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
    kind = "log" if _is_log(values) else "linear"
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


def _is_grid(records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bool:
    """Return whether most combinations of the values of two names were trained."""
    columns = [set(_values_of(records, name)) for name in names]
    cells = len(columns[0]) * len(columns[1])
    return max(map(len, columns)) <= MAX_CELLS and len(records) >= cells / 2


def _heat_map(records: Sequence[Mapping[str, Any]], names: Sequence[str], chart: str) -> Chart:
    """Build a heat map: a cell for each combination of the values of two names."""
    returns = [record["return"]["value"] for record in records]
    rows = [
        (*(format_value(one["values"][name]) for name in names), value, format_return(value))
        for one, value in zip(records, returns, strict=True)
    ]
    (across, down), columns = names, [_ordered_texts(_values_of(records, name)) for name in names]
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


def _parallel_chart(
    records: Sequence[Mapping[str, Any]], names: Sequence[str], chart: str
) -> Chart:
    """Build parallel coordinates: a line for each setting, an axis for each name and the return."""
    axes = {name: _values_of(records, name) for name in names}
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
        if len(shown) > 6 and all(map(_is_number, values)):  # a scale of numbers: its ends
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
    if all(map(_is_number, values)):
        scale = math.log if _is_log(values) else float
        low, high = scale(min(values)), scale(max(values))
        return {format_value(v): (scale(v) - low) / ((high - low) or 1.0) for v in values}
    texts = _ordered_texts(values)
    return {text: index / max(1, len(texts) - 1) for index, text in enumerate(texts)}


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _values_of(records: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """List the values of a name."""
    return [record["values"][name] for record in records]


def _is_log(values: Sequence[float]) -> bool:
    """Return whether numbers need a logarithmic axis."""
    return min(values) > 0 and max(values) >= LOG_RATIO * min(values)


def _ordered_texts(values: Sequence[Any]) -> list[str]:
    """Order the values of an axis: numbers by size, others as they were given."""
    unique = list(dict.fromkeys(values))
    return list(map(format_value, sorted(unique) if all(map(_is_number, unique)) else unique))
