"""Lines over environment steps: learning curves, and how far libraries diverge."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....core.records import JSON
from ...statistics.curves import forward_filled, mean_and_interval
from ...statistics.returns import MIN_SEEDS
from ..numbers import EPSILON, pairs_title
from .chart import Axes, Chart, Switch, limits_of_equal, over_steps, reference, stroke
from .theme import Series, colours, equal_libraries, grouped

TITLE = "Learning curves"
RETURN = "return per episode, in training"
OVERLAP = 0.01  # of the range of the returns
MEASURES = {
    "params_abs": "parameters",
    "params_rel": "parameters, relative",
    "outputs_abs": "outputs",
    "return_abs": "return",
}


def curves_chart(result: JSON, name: str = "curves", heading: str = TITLE) -> Chart | None:
    """Build the plot of the learning curves; None if the result has none."""
    curves = result.get("curves")
    if not curves or not curves["backends"]:
        return None
    series, groups = equal_libraries(result)
    stats = result.get("statistics") or {}
    seeds = [np.array(curves["backends"][group[0]], np.float64) for group in groups]
    return seeds_chart(
        name,
        series,
        [curves["env_steps"]] * len(groups),
        list(map(forward_filled, seeds)),
        heading=heading,
        bounds=stats.get("return_bounds") or (None, None),
        random_return=stats.get("random_return"),
    )


def seeds_chart(
    name: str,
    series: Sequence[Series],
    steps: Sequence[Sequence[int] | np.ndarray],
    seeds: Sequence[np.ndarray],
    *,
    heading: str = TITLE,
    label: str = RETURN,
    bounds: Sequence[float | None] = (None, None),
    random_return: float | None = None,
) -> Chart:
    """Build the plot of several learning curves: the mean over seeds, with its 95 % interval.

    With few seeds, each is drawn in place of an interval.

    Args:
      name: of the chart.
      series: label and colours of each curve.
      steps: environment steps of each curve, `[P]`.
      seeds: values of each curve's seeds, `[S, P]`; NaN where there is none.
      heading: of the files.
      label: of the vertical axis.
      bounds: the lowest and the highest possible value; None if unknown.
      random_return: of a random policy, drawn as a line.
    """
    points = [
        (mean, np.clip(low, bounds[0], bounds[1]), np.clip(high, bounds[0], bounds[1]))
        for mean, low, high in map(mean_and_interval, seeds)
    ]
    series = _widened(series, [mean for mean, *_ in points])
    most = max(map(len, seeds))
    few = most < MIN_SEEDS

    def draw(axes: Axes) -> None:
        for line, x, values, (mean, low, high) in zip(series, steps, seeds, points, strict=True):
            known = np.isfinite(mean)
            x = np.asarray(x)[known]
            if np.isfinite(low).any():
                look = {"alpha": 0.16, "linewidth": 0, "gid": f"{line.key} band"}
                axes.fill_between(x, low[known], high[known], color=line.ground, **look)
            if len(values) > 1:
                always = len(values) < MIN_SEEDS and not few  # the others have an interval
                gid = line.key if always else f"{line.key} seeds"
                look = {"alpha": 0.4, "linewidth": 0.9, "gid": gid, "zorder": 1.5}
                axes.plot(x, values[:, known].T, color=line.ground, **look)
            if known.any():
                stroke(axes, line, x, mean[known])
        if random_return is not None:
            reference(axes, random_return, "random policy")
        drawn = np.concatenate([np.ravel(part) for part in (*points, *seeds)])
        axes.set_ylim(limits_of_equal([*drawn, random_return]))
        axes.set_ylabel(label)
        over_steps(axes, max(x[-1] for x in steps))

    return Chart(
        name=name,
        heading=heading,
        description=f"Learning curves of {', '.join(line.label for line in series)}: return per "
        "episode against environment steps.",
        draw=draw,
        heights=(360, 260),
        series=tuple(series),
        can_hide=True,
        switches=(
            *([] if few else [Switch("band", "95 % interval")]),
            *([Switch("seeds", "each seed", on=few)] if most > 1 else []),
        ),
    )


def _widened(series: Sequence[Series], means: Sequence[np.ndarray]) -> list[Series]:
    """Widen each curve by 2 for each later one that lies over it."""
    finite = np.concatenate([mean[np.isfinite(mean)] for mean in means])
    span = float(np.ptp(finite)) if len(finite) else 0.0

    def over(one: np.ndarray, other: np.ndarray) -> bool:
        if len(one) != len(other):
            return False
        distance = np.abs(one - other)
        return bool(np.max(distance[np.isfinite(distance)], initial=0.0) <= OVERLAP * span)

    return [
        replace(line, width=2.0 + 2.0 * sum(over(mean, later) for later in means[index + 1 :]))
        for index, (line, mean) in enumerate(zip(series, means, strict=True))
    ]


def divergence_chart(result: JSON) -> Chart | None:
    """Build the plot of all differences; None if none was recorded or all are 0."""
    differing = _different(result)
    if not differing:
        return None
    # Pairs whose differences are equal throughout are one line.
    values = {
        tuple(p["backends"]): {name: p.get(name) or [] for name in MEASURES} for p in differing
    }
    groups = grouped(values)
    colour = colours(list(result["backends"]))
    series = tuple(
        Series(f"g{index}", pairs_title(pairs), tuple(colour[name] for name in pairs[0]))
        for index, pairs in enumerate(groups)
    )
    steps = np.array(result["divergence"]["env_steps"])
    titles = measures(result)

    def draw(axes: Axes) -> None:
        for measure in titles:
            part = axes if measure == next(iter(titles)) else axes.figure.add_subplot()
            part.set_gid(measure)
            over_steps(part, steps[-1])
            part.set_ylabel("largest difference")
            lines = [np.array(values[pairs[0]][measure], np.float64) for pairs in groups]
            for pair_series, line in zip(series, lines, strict=True):
                differs = line > 0
                if differs.any():
                    stroke(part, pair_series, steps[differs], line[differs])
            positive = [line[line > 0] for line in lines]
            if measure != "return_abs":
                reference(part, EPSILON, "one float32 rounding step at 1")
                positive.append(np.array([EPSILON]))
            _powers_of_ten(part, np.concatenate(positive))

    return Chart(
        name="divergence",
        heading=f"Largest difference of {next(iter(titles.values()))}",
        description="Largest difference between libraries against environment steps, on a "
        f"logarithmic axis: {'; '.join(pair_series.label for pair_series in series)}.",
        draw=draw,
        heights=(320, 260),
        series=series,
        can_hide=True,
        switches=tuple(
            Switch(name, title, on=index == 0, exclusive=True)
            for index, (name, title) in enumerate(titles.items())
        ),
    )


def _powers_of_ten(axes: Axes, values: np.ndarray) -> None:
    """Let the vertical axis be logarithmic, from a power of ten to a power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    finite = np.log10(values[np.isfinite(values)])
    low, high = math.floor(finite.min()), math.ceil(finite.max())
    axes.set_yscale("log")
    axes.set_ylim(10.0**low, 10.0 ** max(high, low + 1))
    axes.yaxis.set_major_locator(LogLocator(numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"1e{round(math.log10(value))}"))


def equal_pairs(result: JSON) -> list[Sequence[str]]:
    """List the pairs without any difference."""
    pairs = (result.get("divergence") or {}).get("pairs", ())
    return [pair["backends"] for pair in pairs if not _differs(pair)]


def measures(result: JSON) -> dict[str, str]:
    """List the measures in which something differs, with their names."""
    pairs = _different(result)
    return {n: t for n, t in MEASURES.items() if any(any(pair.get(n) or ()) for pair in pairs)}


def _different(result: JSON) -> list[JSON]:
    pairs = (result.get("divergence") or {}).get("pairs", ())
    return [pair for pair in pairs if _differs(pair)]


def _differs(pair: JSON) -> bool:
    return any(any(pair.get(measure) or ()) for measure in MEASURES)
