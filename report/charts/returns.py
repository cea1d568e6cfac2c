"""Returns after training: mean and seeds of each library, profiles, and the rungs of the ladder."""

from collections.abc import Mapping
from typing import Any

from ...backends import libraries
from ..groups import grouped
from .chart import Chart, Series, colour_of, returns_scale, rows_axis, table
from .cost import dots_chart
from .theme import colours


def returns_chart(result: Mapping[str, Any]) -> Chart | None:
    """Build the plot of the returns after training, equal libraries in one row."""
    found = (result.get("statistics") or {}).get("backends") or {}
    if not found:
        return None
    groups = grouped({name: each["final_returns"] for name, each in found.items()})
    rows, seeds = [], []
    for group in groups:
        each = found[group.backends[0]]
        mean, label = each["mean"] or {}, group.label
        rows.append((label, *(mean.get(key) for key in ("value", "low", "high"))))
        seeds += [(label, value) for value in each["final_returns"] if value is not None]
    return dots_chart(
        "returns",
        rows,
        [group.colour for group in groups],
        "return per episode, after training",
        description="Returns after training: each seed, the mean and its interval.",
        seeds=seeds,
        step=42,
    )


def profiles_chart(result: Mapping[str, Any]) -> Chart | None:
    """Build the performance profiles: the fraction of seeds that reach at least a return.

    None if all seeds have the same return.
    """
    profiles = (result.get("statistics") or {}).get("profiles")
    if not profiles or not profiles["backends"]:
        return None
    if profiles["thresholds"][0] == profiles["thresholds"][-1]:
        return None  # all seeds have the same return
    groups = grouped(profiles["backends"])
    series = tuple(Series(f"g{i}", group.label, (group.colour,)) for i, group in enumerate(groups))
    # A curve that covers another one is thinner.
    widths = [2.2 + 1.4 * below for below in reversed(range(len(groups)))]
    rows = [
        (one.key, float(x), float(y), width)
        for one, group, width in zip(series, groups, widths, strict=True)
        for x, y in zip(
            profiles["thresholds"], profiles["backends"][group.backends[0]], strict=True
        )
    ]
    x = {"field": "x", "type": "quantitative", "title": "return", "axis": {"tickCount": 6}}
    share = {"field": "y", "type": "quantitative", "title": "seeds at or above it"}
    return Chart(
        name="profiles",
        description="Performance profiles: the fraction of seeds at or above each return.",
        content={
            "data": table(("g", "x", "y", "w"), rows, words=("g",)),
            "mark": {"type": "line", "interpolate": "step-before"},
            "encoding": {
                "x": {**x, "scale": {"nice": False, "zero": False}},
                "y": {
                    **share,
                    "axis": {"format": ".0%", "tickCount": 5},
                    "scale": {"domain": [0, 1]},
                },
                "strokeWidth": {"field": "w", "type": "quantitative", "scale": None},
                "color": colour_of(series),
            },
        },
        heights=(240, 220),
        series=series,
    )


def ladder_chart(ladder: list[Mapping[str, Any]] | None, backends: list[str]) -> Chart | None:
    """Build the plot of the return after training on each rung that was run."""
    run = [rung for rung in ladder or () if rung["run"] and rung.get("backends")]
    if not run:
        return None
    series = tuple(
        Series(f"g{i}", libraries.title(name), (colours(backends)[name],))
        for i, name in enumerate(backends)
    )
    keys = dict(zip(backends, series, strict=True))
    rows = [
        (rung["title"], keys[name].key, float(each["final_return"]))
        for rung in run
        for name, each in rung["backends"].items()
        if each["final_return"] is not None and name in keys
    ]
    return Chart(
        name="ladder",
        description="Return after training of each library on each rung of the ladder.",
        content={
            "data": table(("rung", "g", "y"), rows, words=("rung", "g")),
            "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
            "encoding": {
                "y": rows_axis("rung"),
                "yOffset": {"field": "g", "type": "nominal", "sort": None},
                "x": {
                    "field": "y",
                    "type": "quantitative",
                    "title": "return per episode, after training",
                    "scale": returns_scale((value for *_, value in rows), padding=12),
                    "axis": {"grid": True, "tickCount": 5},
                },
                "color": colour_of(series, symbol="circle"),
                "tooltip": [
                    {"field": "rung", "type": "nominal"},
                    {"field": "y", "title": "return", "type": "quantitative", "format": ",.4~r"},
                ],
            },
        },
        heights=(70 * len(run), 66 * len(run)),
        series=series,
    )
