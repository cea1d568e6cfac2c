"""Colours, entries of a legend, and the look of plots.

A plot is drawn in the light colours. In a page each of them is a variable of the style sheet, which
holds its dark equivalent where the page is dark.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....core.records import JSON
from ..numbers import capitalized, names

INK, QUIET, GRID, GROUND = "#1d2733", "#5a6675", "#e4e9ef", "#ffffff"
# Okabe and Ito's palette, safe for colour-blind readers; a library keeps its colour everywhere.
LIBRARIES = {"haiku": "#0072b2", "linen": "#d55e00", "nnx": "#009e73", "equinox": "#cc79a7"}
OTHERS = ("#e69f00", "#56b4e9", "#7f7f7f")
PALETTE = (*LIBRARIES.values(), *OTHERS)
DASH = 6  # pixels of each colour in a line of several
ALL = "#3f4c5c"  # a curve that all libraries share
STAGES = ("#c6d9ea", "#9dbfdc", "#74a4cb", "#4f88b6", "#336b9b", "#204f7b", "#12365a")
DARK_STAGES = ("#24405c", "#2f5579", "#3b6b97", "#4a82b4", "#629dce", "#86b8e2", "#b3d4f0")
# The dark equivalent of each light colour that would be hard to see on a dark ground.
DARK = {
    INK: "#e8edf3", QUIET: "#9aa7b6", GRID: "#2b3542", GROUND: "#161c24", ALL: "#b9c6d6",
    "#0072b2": "#45a5e0", "#d55e00": "#f0803c", "#009e73": "#2fc197", "#cc79a7": "#e29cc4",
    "#7f7f7f": "#a8a8a8", **dict(zip(STAGES, DARK_STAGES, strict=True)),
}  # fmt: skip

# What differs from matplotlib's defaults. A point is a pixel of the page; files have twice as many.
STYLE: dict[str, Any] = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 12,
    "text.color": INK, "text.parse_math": False,  # a name may have dollars
    "figure.facecolor": GROUND, "figure.dpi": 72, "axes.facecolor": "none", "axes.edgecolor": GRID,
    "axes.labelcolor": QUIET, "axes.labelsize": 12, "axes.labelpad": 8, "axes.titlesize": 12,
    "axes.spines.left": False, "axes.spines.right": False, "axes.spines.top": False,
    "axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True, "grid.color": GRID,
    "grid.linewidth": 1, "axes.formatter.use_mathtext": False,
    "xtick.color": QUIET, "xtick.major.size": 0, "xtick.minor.size": 0, "xtick.major.pad": 6,
    "ytick.color": QUIET, "ytick.major.size": 0, "ytick.minor.size": 0, "ytick.major.pad": 6,
    "legend.frameon": False, "legend.labelcolor": INK, "lines.linewidth": 2.4,
    "lines.scale_dashes": False, "lines.solid_capstyle": "butt", "svg.fonttype": "none",
}  # fmt: skip


def variable(colour: str) -> str:
    """Name the style sheet's variable of a colour of the plots."""
    return f"--c-{colour.removeprefix('#')}"


def colours(backends: Sequence[str]) -> dict[str, str]:
    """Choose a colour for each name: a library that we ship has the same in every plot."""
    free = [*OTHERS, *(colour for name, colour in LIBRARIES.items() if name not in backends)]
    rest = itertools.cycle(free)
    return {name: LIBRARIES.get(name) or next(rest) for name in backends}


@dataclass(frozen=True)
class Series:
    """One entry of a legend.

    Attributes:
      key: a word of the `gid` of what is drawn for it.
      label: for people.
      colours: one, or one for each library that the entry stands for.
      width: of its line, in pixels.
      dashes: lengths of lines and gaps, in pixels; none are a solid line.
    """

    key: str
    label: str
    colours: tuple[str, ...]
    width: float = 2.4
    dashes: tuple[float, ...] = ()

    def lines(self) -> list[dict[str, Any]]:
        """Return the looks of the lines that are drawn over each other, one for each colour."""
        count = len(self.colours)
        solid = (0, self.dashes) if self.dashes else "-"
        return [
            {
                "color": colour,
                "linewidth": self.width,
                "linestyle": (DASH * (count - i), (DASH, DASH * (count - 1))) if i else solid,
            }
            for i, colour in enumerate(self.colours)
        ]

    @property
    def shared(self) -> bool:
        """Whether it stands for several libraries."""
        return len(self.colours) > 1

    @property
    def ground(self) -> str:
        """The colour of its interval and its seeds, neutral where it has several."""
        return ALL if self.shared else self.colours[0]


def grouped(values: Mapping[Any, Any]) -> list[list[Any]]:
    """Group names by exact equality of their values.

    >>> grouped({"haiku": [1.0], "linen": [2.0], "nnx": [1.0]})
    [['haiku', 'nnx'], ['linen']]
    """
    members: dict[str, list[Any]] = {}
    for name, value in values.items():
        members.setdefault(repr(value), []).append(name)
    return list(members.values())


def library_series(groups: Sequence[Sequence[str]]) -> tuple[Series, ...]:
    """Build a series for each group of libraries, with its label and the colours of all.

    >>> [one.label for one in library_series([["haiku", "nnx"], ["linen"]])]
    ['Haiku and Flax NNX', 'Flax Linen']
    >>> [one.label for one in library_series([["haiku", "linen"]])]
    ['Both']
    """
    backends = [name for group in groups for name in group]
    colour = colours(backends)
    return tuple(
        Series(
            f"g{index}",
            capitalized(names(group, total=len(backends))),
            tuple(colour[name] for name in group),
        )
        for index, group in enumerate(groups)
    )


def equal_libraries(
    result: JSON,
) -> tuple[tuple[Series, ...], Sequence[Sequence[str]]]:
    """Group the libraries whose parameters and metrics are bitwise identical.

    Learning curves in a result are rounded, so they cannot show it.

    Returns:
      The series of each group, and its libraries.
    """
    alone = [[name] for name in result["backends"]]
    groups = (result.get("identity") or {"groups": alone})["groups"]
    return library_series(groups), groups
