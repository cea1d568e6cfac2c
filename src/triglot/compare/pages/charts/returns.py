"""Returns after training: mean and seeds of each library, profiles, and the rungs of the ladder."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....backends import libraries
from ....shared.pages.charts.chart import (
    Chart,
    colour_by,
    number,
    returns_scale,
    rows_axis,
    strokes,
    table,
    word,
)
from ....shared.pages.charts.estimates import libraries_chart
from ....shared.pages.charts.theme import Series, colours, grouped, library_series

TITLE = "return per episode, after training"


def returns_chart(result: Mapping[str, Any]) -> Chart | None:
    """Build the plot of the returns after training, a row for each library."""
    found = (result.get("statistics") or {}).get("backends") or {}
    if not found:
        return None
    return libraries_chart(
        "returns",
        {name: each["mean"] or {} for name, each in found.items()},
        result["backends"],
        TITLE,
        heading="Return after training",
        description="Returns after training: each seed, the mean and its interval.",
        seeds=[
            (name, value)
            for name, each in found.items()
            for value in each["final_returns"]
            if value is not None
        ],
        step=42,
    )


def aggregate_chart(result: Mapping[str, Any]) -> Chart | None:
    """Build the plot of the normalized scores of each library, over all environments."""
    found = (result.get("aggregate") or {}).get("backends")
    if not found:
        return None
    return libraries_chart(
        "aggregate",
        {name: each["iqm"] for name, each in found.items()},
        result["backends"],
        "interquartile mean of the normalized scores",
        heading="Normalized scores over all environments",
        description="Interquartile mean of the normalized scores of each library.",
        step=36,
    )


def profiles_chart(result: Mapping[str, Any]) -> Chart | None:
    """Build the performance profiles: the fraction of seeds that reach at least a return.

    None if all seeds have the same return.
    """
    profiles = (result.get("statistics") or {}).get("profiles")
    if not profiles or not profiles["backends"]:
        return None
    thresholds = [float(threshold) for threshold in profiles["thresholds"]]
    if thresholds[0] == thresholds[-1]:
        return None  # all seeds have the same return
    groups = grouped(profiles["backends"])
    # A curve that covers another one is thinner.
    series = tuple(
        replace(one, width=2.2 + 1.4 * (len(groups) - 1 - index))
        for index, one in enumerate(library_series(groups))
    )
    rows = [
        (one.key, x, float(y))
        for one, group in zip(series, groups, strict=True)
        for x, y in zip(thresholds, profiles["backends"][group[0]], strict=True)
    ]
    shares = {"axis": {"format": ".0%", "tickCount": 5}, "scale": {"domain": [0, 1]}}
    return Chart(
        name="profiles",
        heading="Performance profiles",
        description="Performance profiles: the fraction of seeds at or above each return.",
        content=strokes(
            table(("g", "x", "y"), rows, words=("g",)),
            series,
            (),
            {"type": "line", "interpolate": "step-before"},
            x=number("x", "return", axis={"tickCount": 6}, scale={"nice": False, "zero": False}),
            y=number("y", "seeds at or above it", **shares),
        ),
        heights=(240, 220),
        series=series,
    )


def ladder_chart(result: Mapping[str, Any]) -> Chart | None:
    """Build the plot of the return after training on each rung that was run."""
    run = [rung for rung in result.get("ladder") or () if rung["run"] and rung.get("backends")]
    if not run:
        return None
    colour = colours(list(result["backends"]))
    series = tuple(Series(n, libraries.title(n), (colour[n],)) for n in result["backends"])
    rows = [
        (rung["title"], name, float(each["final_return"]))
        for rung in run
        for name, each in rung["backends"].items()
        if each["final_return"] is not None and name in colour
    ]
    scale = returns_scale((value for *_, value in rows), padding=12)
    return Chart(
        name="ladder",
        heading="Return after training on each rung of the ladder",
        description="Return after training of each library on each rung of the ladder.",
        content={
            "data": table(("rung", "g", "y"), rows, words=("rung", "g")),
            "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
            "encoding": {
                "y": rows_axis("rung"),
                "yOffset": word("g", sort=None),
                "x": number("y", TITLE, scale=scale, axis={"grid": True, "tickCount": 5}),
                "color": colour_by("g", colour),
                "tooltip": [word("rung", "rung"), number("y", "return", format=",.4~r")],
            },
        },
        heights=(70 * len(run), 66 * len(run)),
        series=series,
    )
