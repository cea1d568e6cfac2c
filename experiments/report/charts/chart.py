"""What a plot is made of, and the parts that several plots share."""

import csv
import io
from collections.abc import Mapping, Sequence
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


def reference(value: float, text: str, axis: str = "y") -> list[Spec]:
    """Build a dashed line at a value that readers know, and its label."""
    data = {"values": [{"at": value}]}
    line = {"type": "rule", "color": QUIET, "strokeDash": [2, 4], "strokeWidth": 1}
    label = {"type": "text", "align": "right", "baseline": "bottom", "dy": -4, "fontSize": 11}
    place = {axis: {"field": "at", "type": "quantitative"}}
    return [
        {"data": data, "mark": line, "encoding": place},
        {
            "data": data,
            "mark": {**label, "color": QUIET},
            "encoding": {
                **place,
                "x": {"value": "width"},
                "text": {"value": text},
            },
        },
    ]


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
