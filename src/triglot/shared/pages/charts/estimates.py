"""Estimates with their intervals: a dot for each, over a number or in rows of names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ....backends import libraries
from .chart import SHORT, Chart, colour_by, number, returns_scale, rows_axis, rows_step, table, word
from .theme import Spec, colours

# Where it stands, the estimate, and the ends of its interval.
Row: TypeAlias = tuple[Any, float | None, float | None, float | None]
ENDS = ("value", "low", "high")


def row_of(place: Any, estimate: Mapping[str, Any], value: str = "value") -> Row:
    """Build a row of an estimate, whose number is called `value`."""
    return place, estimate.get(value), estimate.get("low"), estimate.get("high")


def estimates(
    rows: Sequence[Row],
    place: Spec,
    value: Spec,
    colour: Spec,
    *,
    seeds: Sequence[tuple[Any, float]] = (),
    seed: Spec,
    upright: bool = False,
) -> list[Spec]:
    """Build the layers of single values, intervals and estimates.

    Args:
      rows: what is drawn.
      place: the channel of the places, of the field `at`.
      value: the channel of the values, without a field.
      colour: of the marks.
      seeds: place and value of each single mark.
      seed: the single values' mark.
      upright: values stand on the vertical axis.
    """
    at, to = ("x", "y") if upright else ("y", "x")
    words = ("at",) if place["type"] == "nominal" else ()
    data = table(("at", *ENDS), rows, words)
    named = word if words else number
    tooltip = [
        named("at", place["title"] or " "),
        *(number(end, format=",.4~r") for end in ENDS),
    ]
    shared = {at: place, "color": colour}
    middle = {**shared, to: {**value, "field": "value"}}
    single = {"data": table(("at", "value"), seeds, words), "mark": seed, "encoding": middle}
    return [
        *([single] if seeds else []),
        {
            "data": data,
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 3, "strokeCap": "round", "opacity": 0.55},
            "encoding": {**shared, to: {**value, "field": "low"}, f"{to}2": {"field": "high"}},
        },
        {
            "data": data,
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
            "encoding": {**middle, "tooltip": tooltip},
        },
    ]


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
    drawn = [*(value for row in rows for value in row[1:]), *(value for _, value in seeds)]
    scale = {"zero": True} if zero else returns_scale(drawn, padding=12)
    axis = {"grid": True, "tickCount": 4, "labelExpr": SHORT}
    tick = {"type": "tick", "thickness": 1.5, "opacity": 0.55, "height": {"band": 0.55}}
    value, colour = number(title=title, scale=scale, axis=axis), colour_by("at", palette)
    layers = estimates(rows, rows_axis("at"), value, colour, seeds=seeds, seed=tick)
    height = rows_step([row[0] for row in rows], step) * len(rows)
    return Chart(
        name=name,
        heading=heading,
        description=description,
        content={"layer": layers},
        heights=(height, height),
    )


def libraries_chart(
    name: str,
    found: Mapping[str, Mapping[str, Any]],
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
      found: an estimate, whose number is called `value`, by library.
      backends: all libraries of the comparison.
      title: of the horizontal axis.
      value: the name of the number.
      seeds: library and value of each single value.
      look: see `rows_chart`.
    """
    colour, titles = colours(list(backends)), {one: libraries.title(one) for one in found}
    return rows_chart(
        name,
        [row_of(titles[one], each, value) for one, each in found.items()],
        {titles[one]: colour[one] for one in found},
        title,
        seeds=[(titles[one], number) for one, number in seeds],
        **look,
    )
