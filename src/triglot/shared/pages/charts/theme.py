"""Colours, entries of a legend, and the look of plots.

A plot is drawn once, in the light colours. The page's style sheet replaces them by their dark
equivalents, by the colour itself, in static and interactive plots alike.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..numbers import capitalized, names

Spec: TypeAlias = dict[str, Any]

INK, QUIET, GRID, GROUND = "#1d2733", "#5a6675", "#e4e9ef", "#ffffff"
# Okabe and Ito's palette, safe for colour-blind readers; a library keeps its colour everywhere.
LIBRARIES = {"haiku": "#0072b2", "linen": "#d55e00", "nnx": "#009e73", "equinox": "#cc79a7"}
OTHERS = ("#e69f00", "#56b4e9", "#7f7f7f")
PALETTE = (*LIBRARIES.values(), *OTHERS)
ALL = "#3f4c5c"  # a curve that all libraries share
STAGES = ("#c6d9ea", "#9dbfdc", "#74a4cb", "#4f88b6", "#336b9b", "#204f7b", "#12365a")
DARK_STAGES = ("#24405c", "#2f5579", "#3b6b97", "#4a82b4", "#629dce", "#86b8e2", "#b3d4f0")
# The dark equivalent of each light colour that would be hard to see on a dark ground.
DARK = {
    INK: "#e8edf3", QUIET: "#9aa7b6", GRID: "#2b3542", GROUND: "#161c24", ALL: "#b9c6d6",
    "#0072b2": "#45a5e0", "#d55e00": "#f0803c", "#009e73": "#2fc197", "#cc79a7": "#e29cc4",
    "#7f7f7f": "#a8a8a8", **dict(zip(STAGES, DARK_STAGES, strict=True)),
}  # fmt: skip

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


def colours(backends: Sequence[str]) -> dict[str, str]:
    """Choose a colour for each name: a library that we ship has the same in every plot."""
    free = [*OTHERS, *(colour for name, colour in LIBRARIES.items() if name not in backends)]
    rest = itertools.cycle(free)
    return {name: LIBRARIES.get(name) or next(rest) for name in backends}


@dataclass(frozen=True)
class Series:
    """One entry of a legend.

    Attributes:
      key: in the data.
      label: for people.
      colours: one, or one for each library that the entry stands for.
      width: of its line, in pixels.
    """

    key: str
    label: str
    colours: tuple[str, ...]
    width: float = 2.4

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
    result: Mapping[str, Any],
) -> tuple[tuple[Series, ...], Sequence[Sequence[str]]]:
    """Group the libraries whose parameters and metrics are equal bit for bit.

    Learning curves in a result are rounded, so they cannot show it.

    Returns:
      The series of each group, and its libraries.
    """
    alone = [[name] for name in result["backends"]]
    groups = (result.get("identity") or {"groups": alone})["groups"]
    return library_series(groups), groups


TEXT: Spec = {"titleColor": QUIET, "titleFontWeight": 500, "titleFontSize": 12, "labelFontSize": 12}
CONFIG: Spec = {
    "aria": False,  # the page describes the whole plot; a label on every point says little
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        **TEXT,
        "labelColor": QUIET,
        "titlePadding": 10,
        "labelPadding": 6,
        "gridColor": GRID,
        "domain": False,
        "ticks": False,
        "labelFlush": False,
    },
    "axisX": {"grid": False, "domain": True, "domainColor": GRID},
    "legend": {
        "orient": "top",
        "title": None,
        **TEXT,
        "labelColor": INK,
        "symbolStrokeWidth": 3,
        "labelLimit": 400,
    },
    "title": {
        "anchor": "start",
        "color": INK,
        "subtitleColor": QUIET,
        "fontSize": 15,
        "fontWeight": 600,
        "subtitleFontSize": 12,
        "subtitlePadding": 5,
        "offset": 12,
    },
    "text": {"color": QUIET, "fontSize": 12},
}
