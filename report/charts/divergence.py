"""How far libraries diverge over the updates, on a logarithmic axis."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..groups import grouped
from ..numbers import EPSILON, pairs_title
from .chart import HIDDEN, SHOWN, Chart, Series, colour_of, named, pointer, steps_axis, table
from .labels import free_place, reference, two_colour_keys
from .theme import Spec, colours

MEASURES = {
    "params_abs": "parameters",
    "params_rel": "parameters, relative",
    "outputs_abs": "outputs",
    "return_abs": "return",
}

ROUNDING = np.log10([EPSILON])
POWER = "abs(log(datum.value) / LN10 - round(log(datum.value) / LN10)) < 1e-6"  # of ten


def divergence_chart(result: Mapping[str, Any]) -> Chart | None:
    """Build the plot of all differences; None if none was recorded or all are 0."""
    lines = _lines(result.get("divergence"))
    if not lines:
        return None
    colour = colours(list(result["backends"]))
    series = tuple(
        Series(
            f"g{index}",
            pairs_title(pairs),
            tuple(colour.get(name, "#7f7f7f") for name in pairs[0]),
        )
        for index, (pairs, _) in enumerate(lines)
    )
    steps = result["divergence"]["env_steps"]
    datasets, data = named("differences", _data(lines, series, steps))
    chosen = [
        {"filter": "datum[measure] > 0"},
        {"calculate": "datum[measure]", "as": "y"},
    ]
    x = steps_axis()
    y = {
        "field": "y",
        "type": "quantitative",
        "title": "largest difference",
        "scale": {"type": "log"},
        "axis": {
            "labelExpr": f"{POWER} ? replace(format(datum.value, '.0e'), '+', '') : ''",
            "gridOpacity": {"condition": {"test": POWER, "value": 1}, "value": 0},
            "tickCount": 6,
        },
    }
    line = {"type": "line", "strokeJoin": "round", "strokeWidth": 2.4}
    # A pair has both libraries' colours: a line of the first, with dashes of the second.
    layers: list[Spec] = [
        {
            "data": data,
            "transform": [*chosen, SHOWN],
            "mark": {**line, **dashes},
            "encoding": {"x": x, "y": y, "color": {**colour_of(series, which), "legend": None}},
        }
        for which, dashes in enumerate(({}, {"strokeDash": [6, 6]}))
    ]
    measure = next(iter(measures(result)))
    heights = [_logarithms(values[measure], len(steps)) for _, values in lines]
    known = np.concatenate([height[np.isfinite(height)] for height in (*heights, ROUNDING)])
    place = free_place(float(ROUNDING[0]), steps, heights, (known.min(), known.max()))
    rounding = reference(EPSILON, "one float32 rounding step at 1", place)
    for layer in rounding:
        layer["transform"] = [{"filter": "measure != 'return_abs'"}]
    return Chart(
        name="divergence",
        description="Largest difference between libraries against environment steps, on a "
        f"logarithmic axis: {'; '.join(one.label for one in series)}.",
        content={
            "params": [HIDDEN, {"name": "measure", "value": measure}],
            "datasets": datasets,
            "layer": [*rounding, *layers],
            "resolve": {"scale": {"color": "independent"}},
        },
        pointer=pointer(data, series, ".2~e", chosen),
        legend=two_colour_keys(series),
        heights=(320, 260),
        series=series,
    )


def equal_pairs(result: Mapping[str, Any]) -> list[Sequence[str]]:
    """List the pairs without any difference."""
    pairs = (result.get("divergence") or {}).get("pairs", ())
    return [pair["backends"] for pair in pairs if not _differs(pair)]


def measures(result: Mapping[str, Any]) -> dict[str, str]:
    """List the measures in which something differs, with their names."""
    pairs = (result.get("divergence") or {}).get("pairs", ())
    return {
        name: title
        for name, title in MEASURES.items()
        if any(any(pair.get(name) or ()) for pair in pairs)
    }


def first_measure(result: Mapping[str, Any]) -> str:
    """Name the measure that is drawn at first."""
    return next(iter(measures(result).values()))


def _differs(pair: Mapping[str, Any]) -> bool:
    return any(any(pair.get(measure) or ()) for measure in MEASURES)


def _lines(divergence: Mapping[str, Any] | None) -> list[tuple[list[Any], dict[str, Any]]]:
    """Join the pairs whose differences are equal throughout."""
    found = [pair for pair in (divergence or {}).get("pairs", ()) if _differs(pair)]
    values = {
        str(index): {name: pair.get(name) or [] for name in MEASURES}
        for index, pair in enumerate(found)
    }
    return [
        ([found[int(index)]["backends"] for index in group.backends], values[group.backends[0]])
        for group in grouped(values)
    ]


def _logarithms(values: Sequence[float | None], number: int) -> np.ndarray:
    """Give the logarithms of the positive differences, NaN for the others."""
    found = np.array([value or 0.0 for value in values] or [0.0] * number, np.float64)
    return np.log10(found, out=np.full(number, np.nan), where=found > 0)


def _data(
    lines: Sequence[tuple[Any, Mapping[str, Any]]], series: Sequence[Series], steps: Sequence[int]
) -> Spec:
    rows = []
    for one, (_, values) in zip(series, lines, strict=True):
        for index, step in enumerate(steps):
            point = [values[name][index] if values[name] else None for name in MEASURES]
            if any(point):
                rows.append((one.key, step, *(None if v is None else float(v) for v in point)))
    return table(("g", "x", *MEASURES), rows, words=("g",))
