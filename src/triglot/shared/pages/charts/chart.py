"""What a plot is made of, and the parts that several plots share."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from .theme import GROUND, INK, QUIET, Series, Spec

DESK, PHONE, RATE = 920, 350, 330  # widths of the static plots, in pixels
DASH = 6  # pixels of each colour in a line of several


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One plot.

    Attributes:
      name: of the files and of the place in the page.
      heading: of the files.
      description: what a screen reader says.
      content: marks, data and parameters of a Vega-Lite specification.
      pointer: the layer that follows the pointer, for interactive plots only.
      heights: on a desk and on a phone, in pixels.
      series: what the legend shows: labels that can be ticked in the page, keys in the files.
    """

    name: str
    heading: str = ""
    description: str
    content: Spec
    pointer: Spec | None = None
    heights: tuple[int, int] = (340, 260)
    series: tuple[Series, ...] = ()


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
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else None
    return value


def number(field: str | None = None, title: str | None = None, **more: Any) -> Spec:
    """Build a channel of numbers, such as an axis; without a field, one that layers fill in."""
    given = {"field": field, "title": title}
    return {"type": "quantitative", **{k: v for k, v in given.items() if v is not None}, **more}


def word(field: str, title: str | None = None, **more: Any) -> Spec:
    """Build a channel of texts."""
    return {"field": field, "type": "nominal", "title": title, **more}


def colour_by(field: str, palette: Mapping[Any, str]) -> Spec:
    """Build the channel that colours marks by a field; `palette` has a colour for each value."""
    scale = {"domain": list(palette), "range": list(palette.values())}
    return word(field, scale=scale, legend=None)


def strokes(
    data: Spec,
    series: Sequence[Series],
    transform: Sequence[Spec],
    mark: Mapping[str, Any] = MappingProxyType({"type": "line"}),
    **channels: Spec,
) -> Spec:
    """Build a layer with one line for each series, in dashes of all its colours.

    Args:
      data: with the column `g`, the series' key.
      series: what is drawn, the first below the others.
      transform: of the data.
      mark: of the lines, without their look.
      channels: the encoding.
    """
    layers = []
    for one in series:
        for index, colour in enumerate(one.colours):
            behind = DASH * (len(one.colours) - 1 - index)
            dashes = {"strokeDash": [0, DASH * index, DASH, behind]} if index else {}
            look = {**mark, "strokeJoin": "round", "strokeWidth": one.width, **dashes}
            only = [{"filter": f"datum.g == '{one.key}'"}]
            layers.append({"transform": only, "mark": {**look, "color": colour}})
    return {"data": data, "transform": [*transform], "encoding": channels, "layer": layers}


def steps_axis() -> Spec:
    """Build the horizontal axis of environment steps."""
    return number(
        "x",
        "environment steps of each seed",
        axis={"labelExpr": SHORT, "tickCount": 6},
        scale={"nice": False, "zero": True},
    )


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
    values = [number(one.key, one.label, format=form) for one in series]
    nearest = {"type": "point", "fields": ["x"], "nearest": True}
    select = {**nearest, "on": "pointermove", "clear": "pointerout"}
    return {
        "data": data,
        "transform": [*before, SHOWN, {"pivot": "g", "value": "y", "groupby": ["x"]}],
        "mark": {"type": "rule", "color": QUIET, "strokeWidth": 1},
        "params": [{"name": "hover", "select": select}],
        "encoding": {
            "x": number("x"),
            "opacity": {"condition": {"param": "hover", "empty": False, "value": 0.7}, "value": 0},
            "tooltip": [number("x", "environment steps", format=","), *values],
        },
    }


def reference(value: float, text: str) -> list[Spec]:
    """Build a dashed horizontal line at a value that readers know, and its label on a halo."""
    y = number("at")
    place = {"y": y, "x": {"value": "width"}, "text": {"value": text}}
    label = {"type": "text", "align": "right", "baseline": "bottom", "dy": -4, "fontSize": 11}
    halo = {"color": GROUND, "stroke": GROUND, "strokeWidth": 4, "strokeJoin": "round"}
    line = {"type": "rule", "color": QUIET, "strokeDash": [2, 4], "strokeWidth": 1}
    marks = [(line, {"y": y}), ({**label, **halo}, place), ({**label, "color": QUIET}, place)]
    data = {"values": [{"at": value}]}
    return [{"data": data, "mark": mark, "encoding": encoding} for mark, encoding in marks]


KEY_WIDTH, KEY_HEIGHT, KEYS_WIDTH, MAX_ROWS = 26, 17, 320, 4  # of a legend, in pixels and entries


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
        layers.append(strokes(data, [replace(one, width=4.0)], (), {"type": "rule"}, **ends))
        text = {"type": "text", "align": "left", "baseline": "middle", "color": INK}
        place = {"x": {"value": left + KEY_WIDTH + 8}, "y": height, "text": {"value": one.label}}
        layers.append({"data": data, "mark": text, "encoding": place})
    return layers


def rows_axis(field: str) -> Spec:
    """Build the vertical axis of names, broken into lines where they are long."""
    broken = f"split(replace(datum.label, /{LINE}/g, '$1|'), '|')"
    look = {"labelColor": INK, "labelFontSize": 13, "domain": False}
    return word(field, sort=None, axis={**look, "labelExpr": broken, "labelLimit": 180})


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
