"""Learning curves: the mean over seeds, its interval, and each seed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..groups import equal_libraries
from ..statistics import interval95_over_seeds
from ..statistics.returns import MIN_SEEDS
from .chart import (
    HIDDEN,
    SHOWN,
    Chart,
    Series,
    colour_of,
    named,
    pointer,
    returns_scale,
    steps_axis,
    table,
)
from .labels import free_place, reference
from .theme import Spec

# Of one point: series, step, mean, low, high, line width.
COLUMNS = ("g", "x", "y", "low", "high", "w")
Row: TypeAlias = tuple[str, int, float, float | None, float | None, float]
OVERLAP = 0.01  # of the range of the returns


def curves_chart(result: Mapping[str, Any], name: str = "curves") -> Chart | None:
    """Build the plot of the learning curves; None if the result has none."""
    curves = result.get("curves")
    if not curves or not curves["backends"]:
        return None
    groups = equal_libraries(result)
    stats = result.get("statistics") or {}
    return seeds_chart(
        name,
        tuple(Series(f"g{i}", group.label, (group.colour,)) for i, group in enumerate(groups)),
        [curves["backends"][group.backends[0]] for group in groups],
        curves["env_steps"],
        bounds=stats.get("return_bounds") or (None, None),
        random_return=stats.get("random_return"),
    )


def seeds_chart(
    name: str,
    series: tuple[Series, ...],
    seeds: Sequence[Sequence[Sequence[float | None]]],
    steps: Sequence[int],
    *,
    bounds: Sequence[float | None] = (None, None),
    random_return: float | None = None,
) -> Chart:
    """Build the plot of several learning curves over the same steps.

    With few seeds, each is drawn in place of an interval.

    Args:
      name: of the chart.
      series: label and colour of each curve.
      seeds: returns of each curve's seeds, `[S, P]`; None or NaN where no episode ended.
      steps: environment steps, `[P]`.
      bounds: the lowest and the highest possible return; None if unknown.
      random_return: of a random policy, drawn as a line.
    """
    values = [_filled(each) for each in seeds]
    num_seeds = max(map(len, values))
    rows = _means(values, series, steps, bounds)
    datasets, means = named("means", table(COLUMNS, rows, words=("g",)))
    drawn = [*(value for row in rows for value in row[2:5]), random_return]
    seeds_drawn = values if num_seeds < MIN_SEEDS else []
    drawn += [float(value) for curves in seeds_drawn for value in curves.flat]
    colour = {"color": colour_of(series)}
    x = steps_axis()
    y: Spec = {"type": "quantitative", "title": "return per episode, in training"}
    y["scale"] = returns_scale(drawn)
    layers = [
        {
            "data": means,
            "transform": [{"filter": "band && isValid(datum.low)"}, SHOWN],
            "mark": {"type": "area", "opacity": 0.16, "line": False},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **colour},
        },
        _seeds(values, series, steps, x, y, colour),
        {
            "data": means,
            "transform": [SHOWN],
            "mark": {"type": "line", "strokeJoin": "round", "strokeCap": "round"},
            "encoding": {
                "x": x,
                "y": {**y, "field": "y"},
                "strokeWidth": {"field": "w", "type": "quantitative", "scale": None},
                **colour,
            },
        },
    ]
    if random_return is not None:
        known = [value for value in drawn if value is not None and np.isfinite(value)]
        lines = [*_lines(rows, series, steps), *(seed for each in seeds_drawn for seed in each)]
        place = free_place(random_return, steps, lines, (min(known), max(known)))
        layers += reference(random_return, "random policy", place)
    return Chart(
        name=name,
        description=f"Learning curves of {', '.join(one.label for one in series)}: return per "
        "episode against environment steps.",
        content={
            "params": [
                HIDDEN,
                {"name": "band", "value": True},
                {"name": "seeds", "value": num_seeds < MIN_SEEDS},
            ],
            "datasets": datasets,
            "layer": layers,
        },
        pointer=pointer(means, series, ",.4~r"),
        heights=(360, 260),
        series=series,
    )


def _filled(seeds: Sequence[Sequence[float | None]]) -> np.ndarray:
    """Repeat each seed's last return in updates in which no episode ended, `[S, P]`."""
    values = np.array(seeds, np.float64)
    known = np.where(np.isnan(values), 0, np.arange(values.shape[1]))
    return np.take_along_axis(values, np.maximum.accumulate(known, axis=1), axis=1)


def _means(
    values: Sequence[np.ndarray],
    series: Sequence[Series],
    steps: Sequence[int],
    bounds: Sequence[float | None],
) -> list[Row]:
    widths = _widths(values)
    lowest, highest = (np.inf if bound is None else bound for bound in bounds)
    lowest = -np.inf if bounds[0] is None else lowest
    rows = []
    for one, curves, width in zip(series, values, widths, strict=True):
        for step, point in zip(steps, curves.T, strict=True):
            found = point[np.isfinite(point)].tolist()
            if not found:
                continue
            low, high = interval95_over_seeds(found) or (None, None)
            if low is not None and high is not None:
                low, high = max(low, lowest), min(high, highest)
            rows.append((one.key, step, float(np.mean(found)), low, high, width))
    return rows


def _lines(
    rows: Sequence[Row], series: Sequence[Series], steps: Sequence[int]
) -> Iterator[np.ndarray]:
    """Give the means of each series at every step, NaN where it has none."""
    for one in series:
        found = {step: mean for key, step, mean, *_ in rows if key == one.key}
        yield np.array([found.get(step, np.nan) for step in steps])


def _widths(values: Sequence[np.ndarray]) -> list[float]:
    """Choose line widths: wider by 2 for each later curve that lies over this one."""
    means = [curves.mean(axis=0) for curves in values]
    seen = np.concatenate([mean[np.isfinite(mean)] for mean in means])
    span = float(np.ptp(seen)) if len(seen) else 0.0

    def over(one: np.ndarray, other: np.ndarray) -> bool:
        apart = np.abs(one - other)
        return bool(np.max(apart[np.isfinite(apart)], initial=0.0) < OVERLAP * span)

    return [
        2.0 + 2.0 * sum(over(mean, later) for later in means[index + 1 :])
        for index, mean in enumerate(means)
    ]


def _seeds(
    values: Sequence[np.ndarray],
    series: Sequence[Series],
    steps: Sequence[int],
    x: Spec,
    y: Spec,
    colour: Spec,
) -> Spec:
    keys = [f"{one.key}s{i}" for one, v in zip(series, values, strict=True) for i in range(len(v))]
    points = np.concatenate(list(values)).T
    rows = [
        (step, *(None if np.isnan(value) else float(value) for value in point))
        for step, point in zip(steps, points, strict=True)
    ]
    return {
        "data": table(("x", *keys), rows),
        "transform": [
            {"filter": "seeds"},
            {"fold": keys, "as": ["key", "y"]},
            {"calculate": "split(datum.key, 's')[0]", "as": "g"},
            SHOWN,
        ],
        "mark": {"type": "line", "strokeWidth": 0.9, "opacity": 0.4, "invalid": "filter"},
        "encoding": {"x": x, "y": {**y, "field": "y"}, "detail": {"field": "key"}, **colour},
    }
