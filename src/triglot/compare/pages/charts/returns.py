"""Returns after training: mean and seeds of each library, profiles, and the rungs of the ladder."""

from dataclasses import replace

from ....backends import libraries
from ....core.records import JSON
from ....shared.pages.charts.chart import (
    Axes,
    Chart,
    limits_of_equal,
    name_rows,
    stroke,
    write_short_numbers,
)
from ....shared.pages.charts.estimates import libraries_chart
from ....shared.pages.charts.theme import Series, colours, grouped, library_series

TITLE = "return per episode, after training"


def returns_chart(result: JSON) -> Chart | None:
    """Build the plot of the returns after training, a row for each library."""
    statistics = (result.get("statistics") or {}).get("backends") or {}
    if not statistics:
        return None
    return libraries_chart(
        "returns",
        {name: entry["mean"] or {} for name, entry in statistics.items()},
        result["backends"],
        TITLE,
        heading="Return after training",
        description="Returns after training: each seed, the mean and its interval.",
        seeds=[
            (name, value)
            for name, entry in statistics.items()
            for value in entry["final_returns"]
            if value is not None
        ],
        step=42,
    )


def aggregate_chart(result: JSON) -> Chart | None:
    """Build the plot of the normalized scores of each library, over all environments."""
    scores = (result.get("aggregate") or {}).get("backends")
    if not scores:
        return None
    return libraries_chart(
        "aggregate",
        {name: entry["iqm"] for name, entry in scores.items()},
        result["backends"],
        "interquartile mean of the normalized scores",
        heading="Normalized scores over all environments",
        description="Interquartile mean of the normalized scores of each library.",
        step=36,
    )


def profiles_chart(result: JSON) -> Chart | None:
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
        replace(line, width=2.2 + 1.4 * (len(groups) - 1 - index))
        for index, line in enumerate(library_series(groups))
    )
    shares = [profiles["backends"][group[0]] for group in groups]

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import PercentFormatter

        for line, share in zip(series, shares, strict=True):
            stroke(axes, line, thresholds, share, drawstyle="steps-pre")
        axes.set_xlim(thresholds[0], thresholds[-1])
        axes.set_xlabel("return")
        write_short_numbers(axes.xaxis)
        axes.set_ylim(0, 1)
        axes.set_ylabel("seeds at or above it")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))

    return Chart(
        name="profiles",
        heading="Performance profiles",
        description="Performance profiles: the fraction of seeds at or above each return.",
        draw=draw,
        heights=(240, 220),
        series=series,
        can_hide=True,
    )


def ladder_chart(result: JSON) -> Chart | None:
    """Build the plot of the return after training on each rung that was run."""
    run = [rung for rung in result.get("ladder") or () if rung["run"] and rung.get("backends")]
    if not run:
        return None
    colour = colours(list(result["backends"]))
    series = tuple(
        Series(f"g{index}", libraries.title(name), (colour[name],))
        for index, name in enumerate(colour)
    )
    titles = [rung["title"] for rung in run]
    points = [
        (index, row, float(rung["backends"][name]["final_return"]))
        for row, rung in enumerate(run)
        for index, name in enumerate(colour)
        if (rung["backends"].get(name) or {}).get("final_return") is not None
    ]

    def draw(axes: Axes) -> None:
        for index, row, value in points:
            below = 0.8 * ((index + 0.5) / len(series) - 0.5)
            line = series[index]
            look = {"color": line.colours[0], "markersize": 8, "gid": line.key}
            axes.plot([value], [row + below], "o", **look)
        name_rows(axes, titles)
        axes.set_xlim(limits_of_equal(value for *_, value in points))
        axes.set_xlabel(TITLE)
        write_short_numbers(axes.xaxis)

    return Chart(
        name="ladder",
        heading="Return after training on each rung of the ladder",
        description="Return after training of each library on each rung of the ladder.",
        draw=draw,
        heights=(70 * len(run), 66 * len(run)),
        series=series,
        can_hide=True,
    )
