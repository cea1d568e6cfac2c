"""Labels inside plots: lines at values that readers know, and the keys of lines of two colours."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .chart import Series
from .theme import GROUND, INK, QUIET, Spec

LABEL_WIDTH, LABEL_HEIGHT = 0.25, 0.07  # of the plot on a phone
KEY_WIDTH, KEY_HEIGHT = 26, 17  # pixels


@dataclass(frozen=True)
class Place:
    """Where the label of a horizontal line stands."""

    right: bool = True
    above: bool = True


def reference(value: float, text: str, place: Place = Place()) -> list[Spec]:
    """Build a dashed horizontal line at a value that readers know, and its label on a halo."""
    data = {"values": [{"at": value}]}
    line = {"type": "rule", "color": QUIET, "strokeDash": [2, 4], "strokeWidth": 1}
    label = {
        "type": "text",
        "align": "right" if place.right else "left",
        "baseline": "bottom" if place.above else "top",
        "dx": 0 if place.right else 4,
        "dy": -4 if place.above else 4,
        "fontSize": 11,
    }
    halo = {"stroke": GROUND, "strokeWidth": 4, "strokeJoin": "round"}
    y = {"field": "at", "type": "quantitative"}
    encoding = {
        "y": y,
        "x": {"value": "width"} if place.right else {"value": 0},
        "text": {"value": text},
    }
    return [
        {"data": data, "mark": line, "encoding": {"y": y}},
        {"data": data, "mark": {**label, "color": GROUND, **halo}, "encoding": encoding},
        {"data": data, "mark": {**label, "color": QUIET}, "encoding": encoding},
    ]


def free_place(
    at: float, steps: Sequence[int], lines: Sequence[np.ndarray], limits: tuple[float, float]
) -> Place:
    """Choose where the label of a horizontal line crosses no curve; right and above if nowhere.

    Args:
      at: the height of the line.
      steps: horizontal positions of the points, ascending.
      lines: the heights of each curve, NaN where it has no point.
      limits: of the vertical axis.
    """
    height = LABEL_HEIGHT * (limits[1] - limits[0])
    x = np.asarray(steps, np.float64)

    def is_free(place: Place) -> bool:
        low, high = (at, at + height) if place.above else (at - height, at)
        start = (1 - LABEL_WIDTH) * x[-1] if place.right else 0.0
        window = np.linspace(start, start + LABEL_WIDTH * x[-1], 50)
        for line in lines:
            known = np.isfinite(line)
            if not known.any():
                continue
            heights = np.interp(window, x[known], line[known], left=np.nan)
            heights = heights[np.isfinite(heights)]
            if len(heights) and heights.min() <= high and heights.max() >= low:
                return False
        return True

    places = [Place(right, above) for above in (True, False) for right in (True, False)]
    return next(filter(is_free, places), Place())


def two_colour_keys(series: Sequence[Series]) -> list[Spec]:
    """Build a legend above the plot, which Vega-Lite lacks for a line with dashes in a colour."""
    layers: list[Spec] = []
    for index, one in enumerate(series):
        height = {"value": -KEY_HEIGHT * (len(series) - index)}
        for colour, dashes in zip(one.colours, ({}, {"strokeDash": [6, 6]}), strict=False):
            mark = {"type": "rule", "strokeWidth": 3, "color": colour, **dashes}
            ends = {"x": {"value": 0}, "x2": {"value": KEY_WIDTH}}
            layers.append({"mark": mark, "encoding": {**ends, "y": height}})
        text = {"type": "text", "align": "left", "baseline": "middle", "color": INK}
        place = {"x": {"value": KEY_WIDTH + 8}, "y": height, "text": {"value": one.label}}
        layers.append({"mark": text, "encoding": place})
    return [{"data": {"values": [{}]}, **layer} for layer in layers]
