"""Lines over environment steps: learning curves, and how far libraries diverge."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...statistics.curves import forward_filled, mean_and_interval
from ...statistics.returns import MIN_SEEDS
from ..numbers import EPSILON, pairs_title
from .chart import (
    HIDDEN,
    SHOWN,
    Chart,
    colour_by,
    named,
    number,
    pointer,
    reference,
    returns_scale,
    steps_axis,
    strokes,
    table,
)
from .theme import Series, colours, equal_libraries, grouped

TITLE = "Learning curves"
OVERLAP = 0.01  # of the range of the returns
MEASURES = {
    "params_abs": "parameters",
    "params_rel": "parameters, relative",
    "outputs_abs": "outputs",
    "return_abs": "return",
}

POWER = "abs(log(datum.value) / LN10 - round(log(datum.value) / LN10)) < 1e-6"  # of ten


def curves_chart(
    result: Mapping[str, Any], name: str = "curves", heading: str = TITLE
) -> Chart | None:
    """Build the plot of the learning curves; None if the result has none."""
    curves = result.get("curves")
    if not curves or not curves["backends"]:
        return None
    series, groups = equal_libraries(result)
    stats = result.get("statistics") or {}
    return seeds_chart(
        name,
        series,
        [curves["backends"][group[0]] for group in groups],
        curves["env_steps"],
        heading=heading,
        bounds=stats.get("return_bounds") or (None, None),
        random_return=stats.get("random_return"),
    )


def seeds_chart(
    name: str,
    series: Sequence[Series],
    seeds: Sequence[Sequence[Sequence[float | None]]],
    steps: Sequence[int],
    *,
    heading: str = TITLE,
    bounds: Sequence[float | None] = (None, None),
    random_return: float | None = None,
) -> Chart:
    """Build the plot of several learning curves over the same steps.

    With few seeds, each is drawn in place of an interval.

    Args:
      name: of the chart.
      series: label and colours of each curve.
      seeds: returns of each curve's seeds, `[S, P]`; None or NaN where no episode ended.
      steps: environment steps, `[P]`.
      heading: of the files.
      bounds: the lowest and the highest possible return; None if unknown.
      random_return: of a random policy, drawn as a line.
    """
    values = [forward_filled(np.array(each, np.float64)) for each in seeds]
    few = max(map(len, values)) < MIN_SEEDS
    lowest = -np.inf if bounds[0] is None else bounds[0]
    highest = np.inf if bounds[1] is None else bounds[1]
    points = [
        (mean, np.clip(low, lowest, highest), np.clip(high, lowest, highest))
        for mean, low, high in map(mean_and_interval, values)
    ]
    series = _widened(series, [mean for mean, *_ in points])
    rows = [
        (one.key, step, *map(float, point))
        for one, found in zip(series, points, strict=True)
        for step, *point in zip(steps, *found, strict=True)
        if np.isfinite(point[0])
    ]
    datasets, means = named("means", table(("g", "x", "y", "low", "high"), rows, words=("g",)))
    drawn = [*np.ravel(points), *(np.concatenate(values).flat if few else ()), random_return]
    known = [float(value) for value in drawn if value is not None and np.isfinite(value)]
    x, y = steps_axis(), number(title="return per episode, in training", scale=returns_scale(known))
    shared = {"x": x, "color": colour_by("g", {one.key: one.ground for one in series})}
    layers = [
        {
            "data": means,
            "transform": [{"filter": "band && isValid(datum.low)"}, SHOWN],
            "mark": {"type": "area", "opacity": 0.16, "line": False},
            "encoding": {**shared, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            **_seeds(values, series, steps),
            "mark": {"type": "line", "strokeWidth": 0.9, "opacity": 0.4, "invalid": "filter"},
            "encoding": {**shared, "y": {**y, "field": "y"}, "detail": {"field": "key"}},
        },
        strokes(means, series, [SHOWN], x=x, y={**y, "field": "y"}),
    ]
    if random_return is not None:
        layers += reference(random_return, "random policy")
    return Chart(
        name=name,
        heading=heading,
        description=f"Learning curves of {', '.join(one.label for one in series)}: return per "
        "episode against environment steps.",
        content={
            "params": [HIDDEN, {"name": "band", "value": True}, {"name": "seeds", "value": few}],
            "datasets": datasets,
            "layer": layers,
        },
        pointer=pointer(means, series, ",.4~r"),
        heights=(360, 260),
        series=tuple(series),
    )


def _widened(series: Sequence[Series], means: Sequence[np.ndarray]) -> list[Series]:
    """Widen each curve by 2 for each later one that lies over it."""
    seen = np.concatenate([mean[np.isfinite(mean)] for mean in means])
    span = float(np.ptp(seen)) if len(seen) else 0.0

    def over(one: np.ndarray, other: np.ndarray) -> bool:
        apart = np.abs(one - other)
        return bool(np.max(apart[np.isfinite(apart)], initial=0.0) < OVERLAP * span)

    return [
        replace(one, width=2.0 + 2.0 * sum(over(mean, later) for later in means[index + 1 :]))
        for index, (one, mean) in enumerate(zip(series, means, strict=True))
    ]


def _seeds(values: Sequence[np.ndarray], series: Sequence[Series], steps: Sequence[int]) -> Any:
    """Build the data of each seed's curve, a column for each."""
    keys = [f"{one.key}s{i}" for one, v in zip(series, values, strict=True) for i in range(len(v))]
    rows = [(x, *map(float, y)) for x, y in zip(steps, np.concatenate(values).T, strict=True)]
    unfolded = [
        {"filter": "seeds"},
        {"fold": keys, "as": ["key", "y"]},
        {"calculate": "split(datum.key, 's')[0]", "as": "g"},
        SHOWN,
    ]
    return {"data": table(("x", *keys), rows), "transform": unfolded}


def divergence_chart(result: Mapping[str, Any]) -> Chart | None:
    """Build the plot of all differences; None if none was recorded or all are 0."""
    found = _different(result)
    if not found:
        return None
    # Pairs whose differences are equal throughout are one line.
    values = {tuple(p["backends"]): {name: p.get(name) or [] for name in MEASURES} for p in found}
    groups = grouped(values)
    colour = colours(list(result["backends"]))
    series = tuple(
        Series(f"g{index}", pairs_title(pairs), tuple(colour[name] for name in pairs[0]))
        for index, pairs in enumerate(groups)
    )
    different = [values[pairs[0]] for pairs in groups]
    steps = result["divergence"]["env_steps"]
    rows = []
    for one, differences in zip(series, different, strict=True):
        for index, step in enumerate(steps):
            point = [each[index] if each else None for each in differences.values()]
            if any(point):
                rows.append((one.key, step, *(None if v is None else float(v) for v in point)))
    datasets, data = named("differences", table(("g", "x", *MEASURES), rows, words=("g",)))
    chosen = [{"filter": "datum[measure] > 0"}, {"calculate": "datum[measure]", "as": "y"}]
    powers = f"{POWER} ? replace(format(datum.value, '.0e'), '+', '') : ''"
    grid = {"condition": {"test": POWER, "value": 1}, "value": 0}
    axis = {"labelExpr": powers, "gridOpacity": grid, "tickCount": 6}
    y = number("y", "largest difference", scale={"type": "log"}, axis=axis)
    measure = next(iter(measures(result)))
    rounding = reference(EPSILON, "one float32 rounding step at 1")
    for layer in rounding:
        layer["transform"] = [{"filter": "measure != 'return_abs'"}]
    return Chart(
        name="divergence",
        heading=f"Largest difference of {MEASURES[measure]}",
        description="Largest difference between libraries against environment steps, on a "
        f"logarithmic axis: {'; '.join(one.label for one in series)}.",
        content={
            "params": [HIDDEN, {"name": "measure", "value": measure}],
            "datasets": datasets,
            "layer": [*rounding, strokes(data, series, [*chosen, SHOWN], x=steps_axis(), y=y)],
        },
        pointer=pointer(data, series, ".2~e", chosen),
        heights=(320, 260),
        series=series,
    )


def equal_pairs(result: Mapping[str, Any]) -> list[Sequence[str]]:
    """List the pairs without any difference."""
    pairs = (result.get("divergence") or {}).get("pairs", ())
    return [pair["backends"] for pair in pairs if not _differs(pair)]


def measures(result: Mapping[str, Any]) -> dict[str, str]:
    """List the measures in which something differs, with their names."""
    found = _different(result)
    return {n: t for n, t in MEASURES.items() if any(any(pair.get(n) or ()) for pair in found)}


def _different(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    pairs = (result.get("divergence") or {}).get("pairs", ())
    return [pair for pair in pairs if _differs(pair)]


def _differs(pair: Mapping[str, Any]) -> bool:
    return any(any(pair.get(measure) or ()) for measure in MEASURES)
