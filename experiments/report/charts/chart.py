"""What a plot is made of, and the parts that several plots share."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .theme import GROUND, INK, QUIET, Spec

DESK, PHONE, RATE = 920, 350, 330  # widths of the static plots, in pixels


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One plot.

    Attributes:
      name: of the files and of the place in the page.
      description: what a screen reader says.
      content: marks, data and parameters of a Vega-Lite specification.
      pointer: the layer that follows the pointer, for interactive plots only.
      heights: on a desk and on a phone, in pixels.
      series: label and colour of each curve, in the order of the legend.
    """

    name: str
    description: str
    content: Spec
    pointer: Spec | None = None
    heights: tuple[int, int] = (340, 260)
    series: tuple["Series", ...] = ()


@dataclass(frozen=True)
class Place:
    """Where the label of a horizontal line stands."""

    right: bool = True
    above: bool = True


@dataclass(frozen=True)
class Series:
    """One entry of a legend: its key in the data, its label and one or two colours."""

    key: str
    label: str
    colours: tuple[str, ...]


def named(name: str, data: Spec) -> tuple[Spec, Spec]:
    """Split inline data into an entry of `datasets` and a reference, for layers that share it."""
    return {name: data["values"]}, {"name": name, "format": data["format"]}


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], words: Sequence[str] = ()) -> Spec:
    """Build inline data as CSV, which takes a third of the space of JSON records.

    Args:
      columns: names.
      rows: values in the order of `columns`; None is a missing number.
      words: columns that hold text, not numbers.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(_cell, row) for row in rows)
    parse = {name: "string" if name in words else "number" for name in columns}
    return {"values": lines.getvalue(), "format": {"type": "csv", "parse": parse}}


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def colour_of(series: Sequence[Series], field: str = "g", which: int = 0) -> Spec:
    """Build the colour encoding of the series by their keys; a legend shows their labels."""
    labels = {one.key: one.label for one in series}
    return {
        "field": field,
        "type": "nominal",
        "scale": {
            "domain": [one.key for one in series],
            "range": [one.colours[min(which, len(one.colours) - 1)] for one in series],
        },
        "legend": {
            "labelExpr": f"({_literal(labels)})[datum.value]",
            "symbolType": "stroke",
            "symbolOpacity": 1,
        },
    }


def _literal(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{key}:{_quoted(label)}" for key, label in labels.items()) + "}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def steps_axis(field: str = "x") -> Spec:
    """Build the horizontal axis of environment steps."""
    return {
        "field": field,
        "type": "quantitative",
        "title": "environment steps of each seed",
        "axis": {"labelExpr": SHORT, "tickCount": 6},
        "scale": {"nice": False, "zero": True},
    }


# 200k, and 0.8; as an axis's `format`, d3's prefixes would also give 0k and 800m.
SHORT = "format(datum.value, abs(datum.value) < 1000 ? '~g' : '~s')"
SHOWN: Spec = {"filter": "indexof(hidden, datum.g) < 0"}
HIDDEN: Spec = {"name": "hidden", "value": []}  # the page sets it; see assets/page.js


def pointer(data: Spec, series: Sequence[Series], form: str, before: Sequence[Spec] = ()) -> Spec:
    """Build the vertical line that follows the pointer, with all values at that point.

    Args:
      data: columns `x`, `g` and `y`.
      series: what `g` may be.
      form: d3's format of the values.
      before: transformations of the data.
    """
    values = [{"field": one.key, "title": one.label, "format": form} for one in series]
    steps = {"field": "x", "title": "environment steps", "format": ","}
    return {
        "data": data,
        "transform": [*before, SHOWN, {"pivot": "g", "value": "y", "groupby": ["x"]}],
        "mark": {"type": "rule", "color": QUIET, "strokeWidth": 1},
        "params": [
            {
                "name": "hover",
                "select": {
                    "type": "point",
                    "fields": ["x"],
                    "nearest": True,
                    "on": "pointermove",
                    "clear": "pointerout",
                },
            }
        ],
        "encoding": {
            "x": {"field": "x", "type": "quantitative"},
            "opacity": {"condition": {"param": "hover", "empty": False, "value": 0.7}, "value": 0},
            "tooltip": [{**one, "type": "quantitative"} for one in (steps, *values)],
        },
    }


def reference(value: float, text: str, place: Place = Place()) -> list[Spec]:
    """Build a dashed horizontal line at a value that readers know, and its label on a halo."""
    data = {"values": [{"at": value}]}
    line = {"type": "rule", "color": QUIET, "strokeDash": [2, 4], "strokeWidth": 1}
    label = {
        "type": "text",
        "align": "right" if place.right else "left",
        "baseline": "bottom" if place.above else "top",
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


def rows_axis(field: str) -> Spec:
    """Build the vertical axis of names, broken into lines where they are long."""
    lines = f"split(replace(datum.label, /(.{{8,{LINE}}}) /g, '$1|'), '|')"
    axis = {"labelColor": INK, "labelFontSize": 13, "title": None, "domain": False}
    return {
        "field": field,
        "type": "nominal",
        "sort": None,
        "axis": {**axis, "labelExpr": lines, "labelLimit": 180},
    }


LINE = 16  # characters of a row's label
LABEL_WIDTH, LABEL_HEIGHT = 0.25, 0.07  # of the plot on a phone
FLAT = 1e-6  # relative range of returns that have no visible differences


def returns_scale(values: Iterable[float | None], padding: int = 0) -> Spec:
    """Build the scale of returns, without 0; around equal ones, which would have a single tick.

    Args:
      values: everything that is drawn; None is not.
      padding: pixels around different values.
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if known and max(known) - min(known) <= FLAT * max(map(abs, known)):
        around = 0.1 * abs(known[0]) or 1.0
        return {"zero": False, "domain": [known[0] - around, known[0] + around]}
    return {"zero": False, "padding": padding} if padding else {"zero": False}
