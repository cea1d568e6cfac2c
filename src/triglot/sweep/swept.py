"""The charts of a sweep: the return over what was swept, and the curves of the best settings."""

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np

from ..core.records import JSON
from ..shared.pages.charts.chart import ROW_WORDS, Axes, Chart, write, write_short_numbers
from ..shared.pages.charts.curves import seeds_chart
from ..shared.pages.charts.estimates import row_of, rows_chart
from ..shared.pages.charts.theme import GRID, GROUND, INK, LIBRARIES, PALETTE, QUIET, STAGES, Series
from ..shared.pages.numbers import format_value
from ..shared.statistics import format_return
from ..shared.statistics.curves import forward_filled

RETURN = "return per episode"
LOG_RATIO = 20  # largest to smallest value of a name, above which its axis is logarithmic
MAX_CELLS = 30  # values of a name in a heat map
MAX_TICKS = 10  # values that an axis shows one by one
SCALE_WIDTH = 250  # of the scale of colours, in pixels
DARK_FROM = 4  # the stage from which text on it is light
BLUE = LIBRARIES["haiku"]


def main_chart(records: Sequence[JSON], names: Sequence[str], name: str) -> Chart:
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


def best_curves_chart(records: Sequence[JSON], curves: JSON, name: str) -> Chart:
    """Build the plot of the learning curves of the best settings.

    Args:
      records: the best settings of one environment.
      curves: `env_steps`, the seeds' returns by the number of the setting, and `return_bounds`.
      name: of the chart.
    """
    series = tuple(
        Series(f"g{i}", _label(record), (PALETTE[i],)) for i, record in enumerate(records)
    )
    seeds = [curves["settings"][str(record["setting"])] for record in records]
    return seeds_chart(
        name,
        series,
        [curves["env_steps"]] * len(series),
        [forward_filled(np.array(returns, np.float64)) for returns in seeds],
        bounds=curves["return_bounds"],
    )


def search_chart(records: Sequence[JSON], name: str) -> Chart:
    """Build the plot of a search: the return of each setting in its order, and the best up to it.

    A setting that was stopped early has its return in training and does not count as the best.

    Args:
      records: the settings of one environment that have a return.
      name: of the chart.
    """
    ordered = sorted(records, key=lambda record: record["setting"])
    numbers = [record["setting"] for record in ordered]
    returns = np.array([record["return"]["value"] for record in ordered])
    whole = np.array([record["status"] == "finished" for record in ordered])
    best = np.fmax.accumulate(np.where(whole, returns, np.nan))

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        axes.step(numbers, best, where="post", color=INK, linewidth=1.8)
        for kind, marker, which in (
            ("trained to the end", "o", whole),
            ("stopped early", "x", ~whole),
        ):
            x, y = np.extract(which, numbers), returns[which]
            axes.plot(x, y, marker, color=BLUE, markersize=6, alpha=0.7, label=kind)
        if not whole.all():
            axes.legend(loc="lower right")
        axes.margins(x=0.02)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("settings, in the order of the search")
        axes.set_ylabel(RETURN)
        write_short_numbers(axes.yaxis)

    return Chart(
        name=name,
        description="The return of each setting in the order of the search, and the best so far.",
        draw=draw,
    )


def _label(record: JSON) -> str:
    values = ", ".join(f"{name} {format_value(v)}" for name, v in record["values"].items())
    return f"{record['rank']}. {values}"


def _one_name_chart(records: Sequence[JSON], name: str, chart: str) -> Chart:
    """Build a plot of the return over the values of one name: points over a number, or rows."""
    ordered = sorted(records, key=lambda record: record["setting"])
    values = _values_of(ordered, name)
    numeric = all(map(_is_number, values))
    places = list(map(float if numeric else format_value, values))
    rows = [row_of(at, record["return"]) for at, record in zip(places, ordered, strict=True)]
    seeds = [
        (at, float(value))
        for at, record in zip(places, ordered, strict=True)
        for value in record["returns"]
        if value is not None and math.isfinite(value)
    ]
    words = f"Return {'against' if numeric else 'for each'} {name}: each seed, the mean and its"
    if not numeric:
        palette = dict.fromkeys(places, BLUE)
        about = {"description": f"{words} interval.", "seeds": seeds, "step": 42}
        return rows_chart(chart, rows, palette, RETURN, **about)

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import NullLocator

        if _is_log(values):
            axes.set_xscale("log")
        axes.plot(*np.array(seeds).reshape(-1, 2).T, "o", color=BLUE, markersize=4.5, alpha=0.35)
        for at, _, low, high in rows:
            if low is not None and high is not None:
                look = {"linewidth": 3, "solid_capstyle": "round", "alpha": 0.55}
                axes.plot([at, at], [low, high], color=BLUE, **look)
        means = np.array([row[:2] for row in rows], np.float64)
        axes.plot(*means[means[:, 0].argsort()].T, "o-", color=BLUE, linewidth=1.6, markersize=8.5)
        write_short_numbers(axes.xaxis)
        if len(set(values)) <= MAX_TICKS:
            axes.set_xticks(sorted(set(values)), list(map(format_value, sorted(set(values)))))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(name)
        axes.set_ylabel(RETURN)
        write_short_numbers(axes.yaxis)

    return Chart(name=chart, description=f"{words} interval.", draw=draw)


def _is_grid(records: Sequence[JSON], names: Sequence[str]) -> bool:
    """Return whether most combinations of the values of two names were trained."""
    columns = [set(_values_of(records, name)) for name in names]
    cells = len(columns[0]) * len(columns[1])
    return max(map(len, columns)) <= MAX_CELLS and len(records) >= cells / 2


def _heat_map(records: Sequence[JSON], names: Sequence[str], chart: str) -> Chart:
    """Build a heat map: a cell for each combination of the values of two names."""
    returns = [record["return"]["value"] for record in records]
    (across, down), columns = names, [_ordered_texts(_values_of(records, name)) for name in names]
    x, y = (
        [texts.index(format_value(value)) for value in _values_of(records, name)]
        for name, texts in zip(names, columns, strict=True)
    )

    def draw(axes: Axes) -> None:
        stages = _colours(axes, returns)
        cells = {"color": [STAGES[stage] for stage in stages], "edgecolor": GROUND, "linewidth": 2}
        axes.bar(x, 1, 1, bottom=np.array(y) - 0.5, **cells)
        for *place, value, stage in zip(x, y, returns, stages, strict=True):
            ink = GROUND if stage >= DARK_FROM else INK
            axes.text(*place, format_return(value), ha="center", va="center", color=ink)
        axes.set_xlim(-0.5, len(columns[0]) - 0.5)
        axes.set_ylim(-0.5, len(columns[1]) - 0.5)  # the largest number stands above
        axes.set_xticks(range(len(columns[0])), columns[0])
        axes.set_yticks(range(len(columns[1])), [fill(text, ROW_WORDS) for text in columns[1]])
        axes.set_xlabel(across)
        axes.set_ylabel(down)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)

    height = max(26, min(48, 330 // len(columns[1]))) * len(columns[1]) + 70
    return Chart(
        name=chart,
        description=f"Mean return for each {across} and {down}.",
        draw=draw,
        heights=(height, height),
    )


def _parallel_chart(records: Sequence[JSON], names: Sequence[str], chart: str) -> Chart:
    """Build parallel coordinates: a line for each setting, an axis for each name and the return."""
    axes_of = {name: _values_of(records, name) for name in names}
    returns = axes_of["return"] = [record["return"]["value"] for record in records]
    places = {name: _places(values) for name, values in axes_of.items()}
    worst_first = sorted(range(len(records)), key=lambda index: returns[index])

    def draw(axes: Axes) -> None:
        stages = _colours(axes, returns)
        for index in worst_first:
            line = [places[name][format_value(values[index])] for name, values in axes_of.items()]
            axes.plot(line, color=STAGES[stages[index]], linewidth=1.8, alpha=0.9)
        for column, (name, values) in enumerate(axes_of.items()):
            axes.axvline(column, color=GRID, linewidth=1, zorder=1)
            shown = sorted(places[name].items(), key=lambda item: item[1])
            if len(shown) > 6 and all(map(_is_number, values)):  # a scale of numbers: its ends
                shown = [shown[0], shown[-1]]
            for text, place in shown:
                text = format_return(float(text)) if name == "return" else text
                write(axes, text, (column, place), (6, 0), color=INK, fontsize=12)
        axes.set_xlim(-0.5, len(axes_of) - 0.5)
        axes.set_xticks(range(len(axes_of)), list(axes_of), color=INK, fontsize=13)
        axes.set_yticks([])

    return Chart(
        name=chart,
        description=f"Each setting as a line over {', '.join(names)} and its return.",
        draw=draw,
        heights=(380, 320),
    )


def _colours(axes: Axes, returns: Sequence[float]) -> list[int]:
    """Draw the scale of the stages above a plot, and return that of each return."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    low, high = _domain(returns)
    bounds = np.linspace(low, high, len(STAGES) + 1)
    scale = ScalarMappable(BoundaryNorm(bounds, len(STAGES)), ListedColormap(STAGES))
    share = SCALE_WIDTH / axes.figure.bbox.width
    place = {"location": "top", "anchor": (0, 0), "shrink": share, "aspect": 18, "pad": 0.03}
    bar = axes.figure.colorbar(scale, ax=axes, ticks=bounds[1:-1], **place)
    bar.ax.xaxis.set_ticks_position("bottom")
    bar.ax.set_xticklabels(map(format_return, bounds[1:-1]), fontsize=10)
    bar.ax.set_title(RETURN, color=QUIET, loc="left")
    bar.outline.set_visible(False)
    return np.digitize(returns, bounds[1:-1]).tolist()


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


def _values_of(records: Sequence[JSON], name: str) -> list[Any]:
    """List the values of a name."""
    return [record["values"][name] for record in records]


def _is_log(values: Sequence[float]) -> bool:
    """Return whether numbers need a logarithmic axis."""
    return min(values) > 0 and max(values) >= LOG_RATIO * min(values)


def _ordered_texts(values: Sequence[Any]) -> list[str]:
    """Order the values of an axis: numbers by size, others as they were given."""
    unique = list(dict.fromkeys(values))
    return list(map(format_value, sorted(unique) if all(map(_is_number, unique)) else unique))
