"""Estimates with their intervals: a dot for each, over a number or in rows of names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ....backends import libraries
from ....core.records import JSON
from .chart import Axes, Chart, limits_of_equal, name_rows, rows_step, write_short_numbers
from .theme import colours

# Where it stands, the estimate, and the ends of its interval.
Row: TypeAlias = tuple[Any, float | None, float | None, float | None]


def row_of(place: Any, estimate: JSON, value: str = "value") -> Row:
    """Build a row of an estimate, whose number is called `value`."""
    return place, estimate.get(value), estimate.get("low"), estimate.get("high")


def rows_chart(
    name: str,
    rows: Sequence[Row],
    palette: Mapping[Any, str],
    title: str,
    *,
    heading: str = "",
    description: str,
    seeds: Sequence[tuple[str, float]] = (),
    step: int = 30,
    zero: bool = False,
) -> Chart:
    """Build a plot with one row for each name.

    Args:
      name: of the chart.
      rows: what is drawn, by name.
      palette: a colour for each name.
      title: of the horizontal axis.
      heading: of the files.
      description: what a screen reader says.
      seeds: name and value of each single value.
      step: height of a row in pixels, at least.
      zero: whether the horizontal axis begins at 0.
    """
    labels = [row[0] for row in rows]
    step = rows_step(labels, step)

    def draw(axes: Axes) -> None:
        for y, (label, value, low, high) in enumerate(rows):
            colour = palette[label]
            singles = [single for place, single in seeds if place == label]
            tick = {"marker": "|", "markersize": 0.55 * step, "markeredgewidth": 1.5, "alpha": 0.55}
            axes.plot(singles, [y] * len(singles), color=colour, linestyle="none", **tick)
            if low is not None and high is not None:
                look = {"linewidth": 3, "solid_capstyle": "round", "alpha": 0.55}
                axes.plot([low, high], [y, y], color=colour, **look)
            if value is not None:
                axes.plot([value], [y], "o", color=colour, markersize=8.5)
        name_rows(axes, labels)
        drawn = [*(value for row in rows for value in row[1:]), *(value for _, value in seeds)]
        if zero:
            axes.set_xlim(left=0)
        else:
            axes.set_xlim(limits_of_equal(drawn))
        axes.set_xlabel(title)
        axes.locator_params(axis="x", nbins=5)
        write_short_numbers(axes.xaxis)

    return Chart(
        name=name,
        heading=heading,
        description=description,
        draw=draw,
        heights=(step * len(rows), step * len(rows)),
    )


def libraries_chart(
    name: str,
    estimates: Mapping[str, JSON],
    backends: Iterable[str],
    title: str,
    *,
    value: str = "value",
    seeds: Sequence[tuple[str, float]] = (),
    **look: Any,
) -> Chart:
    """Build a plot with one row for each library, in its colour.

    Args:
      name: of the chart.
      estimates: an estimate, whose number is called `value`, by library.
      backends: all libraries of the comparison.
      title: of the horizontal axis.
      value: the name of the number.
      seeds: library and value of each single value.
      look: see `rows_chart`.
    """
    colour = colours(list(backends))
    titles = {library: libraries.title(library) for library in estimates}
    return rows_chart(
        name,
        [row_of(titles[library], estimate, value) for library, estimate in estimates.items()],
        {titles[library]: colour[library] for library in estimates},
        title,
        seeds=[(titles[library], number) for library, number in seeds],
        **look,
    )
