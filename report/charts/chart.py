"""What a plot is made of, and the parts that several plots share."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .theme import INK, QUIET, Spec

DESK, PHONE, RATE = 920, 350, 330  # widths of the static plots, in pixels


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One plot.

    Attributes:
      name: of the files and of the place in the page.
      description: what a screen reader says.
      content: marks, data and parameters of a Vega-Lite specification.
      pointer: the layer that follows the pointer, for interactive plots only.
      legend: layers in place of a legend, for files only.
      heights: on a desk and on a phone, in pixels.
      series: label and colour of each curve, in the order of the legend.
    """

    name: str
    description: str
    content: Spec
    pointer: Spec | None = None
    legend: Sequence[Spec] = ()
    heights: tuple[int, int] = (340, 260)
    series: tuple["Series", ...] = ()


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


def colour_of(series: Sequence[Series], which: int = 0, symbol: str = "stroke") -> Spec:
    """Build the colour encoding of the series by their keys; a legend shows their labels.

    Args:
      series: keys, labels and colours.
      which: of the colours.
      symbol: in the legend, `stroke` or `circle`.
    """
    labels = {one.key: one.label for one in series}
    return {
        "field": "g",
        "type": "nominal",
        "scale": {
            "domain": [one.key for one in series],
            "range": [one.colours[min(which, len(one.colours) - 1)] for one in series],
        },
        "legend": {
            "labelExpr": f"({_literal(labels)})[datum.value]",
            "symbolType": symbol,
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


def rows_axis(field: str) -> Spec:
    """Build the vertical axis of names, broken into lines where they are long."""
    lines = f"split(replace(datum.label, /{LINE}/g, '$1|'), '|')"
    axis = {"labelColor": INK, "labelFontSize": 13, "title": None, "domain": False}
    return {
        "field": field,
        "type": "nominal",
        "sort": None,
        "axis": {**axis, "labelExpr": lines, "labelLimit": 180},
    }


def rows_step(labels: Iterable[str], step: int) -> int:
    """Choose the height of a row in pixels: at least `step`, and enough for the longest label."""
    return max(step, *(LINE_HEIGHT * (len(re.findall(LINE, label)) + 1) + 6 for label in labels))


LINE, LINE_HEIGHT = "(.{8,16}) ", 16  # of a row's label: where it is broken, and pixels
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
        return {"zero": False, "nice": False, "domain": [known[0] - around, known[0] + around]}
    return {"zero": False, "padding": padding} if padding else {"zero": False}
