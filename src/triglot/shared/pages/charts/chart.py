"""What a plot is made of, and the parts that several plots share."""

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import ArrayLike

from .. import numbers
from .theme import GROUND, INK, QUIET, Series

Axes: TypeAlias = Any  # matplotlib's, which is imported on first use

STEPS = "environment steps of each seed"


@dataclass(frozen=True)
class Switch:
    """A part of a plot that readers of the page show or hide.

    Attributes:
      key: a word of the `gid` of what it shows.
      label: for people.
      on: whether the part is shown at first, and in files.
      exclusive: whether only one of these switches is on.
    """

    key: str
    label: str
    on: bool = True
    exclusive: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One plot.

    Attributes:
      name: of the files and of the place in the page.
      heading: of the files.
      description: what a screen reader says.
      draw: draws the plot; words of an artist's `gid` are the keys of its series and switches.
      heights: on a desk and on a phone, in pixels, without the labels of the horizontal axis.
      series: the entries of the legend.
      can_hide: whether readers of the page can hide each of the series.
      switches: what else they can show or hide.
    """

    name: str
    heading: str = ""
    description: str
    draw: Callable[[Axes], None]
    heights: tuple[int, int] = (340, 260)
    series: tuple[Series, ...] = ()
    can_hide: bool = False
    switches: tuple[Switch, ...] = ()


def stroke(axes: Axes, series: Series, x: ArrayLike, y: ArrayLike, **look: Any) -> None:
    """Draw the line of a series, in dashes of all its colours."""
    for line in series.lines():
        axes.plot(x, y, gid=series.key, **line, **look)


def write_short_numbers(axis: Any) -> None:
    """Write the numbers of an axis as 200k, 0.8 and 5e-4."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    def text(value: float, _: int | None = None) -> str:
        rounding = 1e-9 * max(map(abs, axis.get_view_interval()))
        return numbers.short(value if abs(value) > rounding else 0.0)

    axis.set_major_formatter(FuncFormatter(text))
    low, high = axis.get_view_interval()
    is_short = axis.get_scale() == "log" and high < 10 * low  # where few powers of ten are
    axis.set_minor_formatter(FuncFormatter(text) if is_short else NullFormatter())


def over_steps(axes: Axes, last: float, label: str = STEPS) -> None:
    """Let the horizontal axis be environment steps, from 0 to the last."""
    axes.set_xlim(0, last)
    axes.set_xlabel(label)
    axes.locator_params(axis="x", nbins=6)
    write_short_numbers(axes.xaxis)
    write_short_numbers(axes.yaxis)


def reference(axes: Axes, value: float, text: str) -> None:
    """Draw a dotted horizontal line at a value that readers know, with its label."""
    axes.axhline(value, color=QUIET, linewidth=1, linestyle=(0, (2, 4)), zorder=1.5)
    write(axes, text, (1, value), (0, 8), transform=axes.get_yaxis_transform(), ha="right")


def write(
    axes: Axes, text: str, place: tuple[float, float], offset: tuple[float, float], **look: Any
) -> None:
    """Write a text over lines: on the page's ground, so that it can be read."""
    ground = {"facecolor": GROUND, "alpha": 0.8, "edgecolor": "none", "pad": 1}
    defaults = {"color": QUIET, "fontsize": 11, "va": "center", "bbox": ground}
    coordinates = look.pop("transform", "data")
    axes.annotate(
        text, place, offset, xycoords=coordinates, textcoords="offset points", **defaults | look
    )


ROW_WORDS, LINE_HEIGHT = 16, 16  # of a row's label: characters in a line, and pixels


def name_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Name the rows of a plot from the top, and break long names into lines."""
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_yticks([])
    axes.grid(axis="x")
    for row, label in enumerate(labels):
        lines = textwrap.wrap(label, ROW_WORDS)
        for index, line in enumerate(lines):
            above = LINE_HEIGHT * ((len(lines) - 1) / 2 - index)
            look = {"ha": "right", "color": INK, "fontsize": 13, "bbox": None}
            write(axes, line, (0, row), (-8, above), transform=axes.get_yaxis_transform(), **look)


def rows_step(labels: Iterable[str], step: int) -> int:
    """Choose the height of a row in pixels: at least `step`, and enough for the longest label."""
    lines = (textwrap.wrap(label, ROW_WORDS) for label in labels)
    return max(step, *(LINE_HEIGHT * len(wrapped_lines) + 6 for wrapped_lines in lines))


FLAT = 1e-6  # relative range of returns that have no visible differences


def limits_of_equal(values: Iterable[float | None]) -> tuple[float, float] | None:
    """Choose the limits of an axis around equal values, at which it would have a single tick.

    Args:
      values: everything that is drawn; None and NaN are not.

    Returns:
      The limits; None if the values differ, or if there are none.
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known or max(known) - min(known) > FLAT * max(map(abs, known)):
        return None
    around = 0.1 * abs(known[0]) or 1.0
    return known[0] - around, known[0] + around
