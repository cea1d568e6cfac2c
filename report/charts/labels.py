"""Labels inside plots: lines at values that readers know, and the legend of a file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .chart import Series, strokes
from .theme import GROUND, INK, QUIET, Spec

LABEL_WIDTH, LABEL_HEIGHT = 0.25, 0.07  # of the plot on a phone
RULE = {"type": "rule"}
KEY_WIDTH, KEY_HEIGHT, KEYS_WIDTH, MAX_ROWS = 26, 17, 320, 4  # of a legend, in pixels and entries


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


def keys(series: Sequence[Series]) -> list[Spec]:
    """Build a legend above the plot: a piece of each line in all its colours, and its label."""
    columns = 1 if len(series) <= MAX_ROWS else 2
    rows = math.ceil(len(series) / columns)
    layers: list[Spec] = []
    for index, one in enumerate(series):
        height = {"value": -KEY_HEIGHT * (rows - index // columns)}
        left = index % columns * KEYS_WIDTH
        ends = {"x": {"value": left}, "x2": {"value": left + KEY_WIDTH}, "y": height}
        data = {"values": [{"g": one.key}]}
        layers.append(strokes(data, [replace(one, width=4.0)], (), RULE, **ends))
        text = {"type": "text", "align": "left", "baseline": "middle", "color": INK}
        place = {"x": {"value": left + KEY_WIDTH + 8}, "y": height, "text": {"value": one.label}}
        layers.append({"data": data, "mark": text, "encoding": place})
    return layers
