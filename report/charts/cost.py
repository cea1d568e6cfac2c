"""What each library costs: stacked seconds until training starts, then one plot per rate."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...backends import libraries
from .chart import SHORT, Chart, Series, returns_scale, rows_axis, rows_step, table
from .theme import GROUND, INK, STAGES, Spec, colours

START = ("import", "construct", "init", "trace", "lower", "compile", "first_step")
# Shown beside the stacked bars, in this order; the others are in the table.
RATES = ("steps_per_second", "update", "rollout", "dispatch", "evaluation", "memory")
SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def start_chart(cost: Mapping[str, Any]) -> Chart | None:
    """Build the stacked bars of the seconds before the first update is done."""
    known = {stage["name"]: stage for stage in cost["stages"] if stage["unit"] in SECONDS}
    stages = [name for name in START if name in known]
    titles = {name: known[name]["title"] for name in stages}
    rows, ends = [], []
    for backend, measured in cost["backends"].items():
        total = 0.0
        for stage in stages:
            found = measured.get(stage)
            if found is None or found["median"] is None:
                continue
            scale = SECONDS[known[stage]["unit"]]
            start, total = total, total + scale * found["median"]
            rows.append((libraries.title(backend), stage, start, total))
            if found.get("low") is not None:
                ends.append(
                    (
                        libraries.title(backend),
                        *(
                            total + scale * (found[end] - found["median"])
                            for end in ("low", "high")
                        ),
                    )
                )
    if not rows:
        return None
    series = tuple(
        Series(stage, titles[stage], (STAGES[index],)) for index, stage in enumerate(stages)
    )
    seconds = {"type": "quantitative", "title": "seconds", "axis": {"grid": True, "tickCount": 6}}
    bars = {
        "data": table(("backend", "g", "from", "to"), rows, words=("backend", "g")),
        "transform": [
            {"calculate": _lookup(titles), "as": "stage"},
            {"calculate": "datum.to - datum.from", "as": "seconds"},
        ],
        "mark": {"type": "bar", "height": {"band": 0.6}},
        "encoding": {
            "y": rows_axis("backend"),
            "x": {**seconds, "field": "from"},
            "x2": {"field": "to"},
            "color": {
                "field": "g",
                "type": "nominal",
                "scale": {
                    "domain": stages,
                    "range": [one.colours[0] for one in series],
                },
                "legend": {"labelExpr": _lookup(titles, "datum.value"), "columns": 4},
            },
            "tooltip": [
                {"field": "backend", "title": "library", "type": "nominal"},
                {"field": "stage", "type": "nominal"},
                {"field": "seconds", "type": "quantitative", "format": ".3~r"},
            ],
        },
    }
    whiskers = [
        {
            "data": table(("backend", "low", "high"), ends, words=("backend",)),
            "mark": {"type": "rule", "color": colour, "strokeWidth": width, "strokeCap": "round"},
            "encoding": {
                "y": rows_axis("backend"),
                "x": {**seconds, "field": "low"},
                "x2": {"field": "high"},
            },
        }
        for colour, width in ((GROUND, 3.5), (INK, 1.5))  # visible on light and dark bars
    ]
    return Chart(
        name="cost",
        description="Seconds that each library takes before training runs, stacked by stage.",
        content={"layer": [bars, *(whiskers if ends else [])]},
        heights=(46 * len(cost["backends"]), 40 * len(cost["backends"])),
        series=series,
    )


def _lookup(titles: Mapping[str, str], key: str = "datum.g") -> str:
    pairs = ",".join(f"'{name}':'{title}'" for name, title in titles.items())
    return f"({{{pairs}}})[{key}]"


def rate_charts(cost: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Chart]]:
    """Build a small plot of medians and intervals for each rate that was measured."""
    stages = {stage["name"]: stage for stage in cost["stages"]}
    built = [
        (stages[name], _rate(stages[name], cost["backends"])) for name in RATES if name in stages
    ]
    return [(stage, chart) for stage, chart in built if chart is not None]


def _rate(stage: Mapping[str, Any], backends: Mapping[str, Any]) -> Chart | None:
    found = {
        name: each[stage["name"]] for name, each in backends.items() if each.get(stage["name"])
    }
    found = {name: each for name, each in found.items() if each["median"] is not None}
    if not found:
        return None
    colour = colours(list(backends))
    rows = [
        (libraries.title(name), *(each.get(key) for key in ("median", "low", "high")))
        for name, each in found.items()
    ]
    return dots_chart(
        stage["name"],
        rows,
        [colour[name] for name in found],
        stage["unit"],
        zero=True,  # or a difference of a few percent would look large
        description=f"{stage['title']}: median of each library with its interval.",
    )


def dots_chart(
    name: str,
    rows: Sequence[tuple[str, float, float | None, float | None]],
    palette: Sequence[str],
    title: str | None,
    *,
    description: str,
    seeds: Sequence[tuple[str, float]] = (),
    step: int = 30,
    zero: bool = False,
) -> Chart:
    """Build a plot with one row for each name: a dot, its interval, and single values below it.

    Args:
      name: of the chart.
      rows: name, value, low, high.
      palette: a colour for each row.
      title: of the horizontal axis.
      description: what a screen reader says.
      seeds: name and value of each single point.
      step: height of a row in pixels, at least.
      zero: whether the horizontal axis begins at 0.
    """
    labels = [row[0] for row in rows]
    drawn = [*(value for row in rows for value in row[1:]), *(value for _, value in seeds)]
    y = rows_axis("row")
    x: Spec = {
        "type": "quantitative",
        "title": title,
        "scale": {"zero": True} if zero else returns_scale(drawn, padding=12),
        "axis": {"grid": True, "tickCount": 4, "labelExpr": SHORT},
    }
    color = {
        "field": "row",
        "type": "nominal",
        "scale": {"domain": labels, "range": list(palette)},
        "legend": None,
    }
    data = table(("row", "value", "low", "high"), rows, words=("row",))
    tooltip = [
        {"field": "row", "title": " ", "type": "nominal"},
        *(
            {"field": field, "type": "quantitative", "format": ",.4~r"}
            for field in ("value", "low", "high")
        ),
    ]
    layers: list[Spec] = [
        {
            "data": data,
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 3, "strokeCap": "round", "opacity": 0.55},
            "encoding": {
                "y": y,
                "x": {**x, "field": "low"},
                "x2": {"field": "high"},
                "color": color,
            },
        },
        {
            "data": data,
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
            "encoding": {"y": y, "x": {**x, "field": "value"}, "color": color, "tooltip": tooltip},
        },
    ]
    if seeds:
        ticks = {
            "data": table(("row", "value"), seeds, words=("row",)),
            "mark": {"type": "tick", "thickness": 1.5, "opacity": 0.55, "height": {"band": 0.55}},
            "encoding": {"y": y, "x": {**x, "field": "value"}, "color": color},
        }
        layers.insert(0, ticks)
    height = rows_step(labels, step) * len(rows)
    return Chart(
        name=name,
        description=description,
        content={"layer": layers},
        heights=(height, height),
    )
