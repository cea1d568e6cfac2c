"""What each library costs: stacked seconds until training starts, then one plot per rate."""

from ....backends import libraries
from ....core.records import JSON
from ....shared.pages.charts.chart import Axes, Chart, name_rows
from ....shared.pages.charts.estimates import libraries_chart
from ....shared.pages.charts.theme import GROUND, INK, STAGES, Series

START = ("import", "construct", "init", "trace", "lower", "compile", "first_step")
# Shown beside the stacked bars, in this order; the others are in the table.
RATES = ("steps_per_second", "update", "rollout", "dispatch", "evaluation", "memory")
SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def start_chart(result: JSON) -> Chart | None:
    """Build the stacked bars of the seconds before the first update is done."""
    cost = result.get("cost")
    if not cost:
        return None
    known = {stage["name"]: stage for stage in cost["stages"] if stage["unit"] in SECONDS}
    stages = [name for name in START if name in known]
    rows = [libraries.title(backend) for backend in cost["backends"]]
    bars, ends = [], []
    for row, measured in enumerate(cost["backends"].values()):
        total = 0.0
        for index, stage in enumerate(stages):
            seconds = measured.get(stage)
            if seconds is None or seconds["median"] is None:
                continue
            scale = SECONDS[known[stage]["unit"]]
            start, total = total, total + scale * seconds["median"]
            bars.append((row, index, start, total))
            if seconds.get("low") is not None:
                low, high = (scale * (seconds[end] - seconds["median"]) for end in ("low", "high"))
                ends.append((row, total + low, total + high))
    if not bars:
        return None
    series = tuple(
        Series(stage, known[stage]["title"], (STAGES[index],)) for index, stage in enumerate(stages)
    )

    def draw(axes: Axes) -> None:
        for row, index, start, end in bars:
            look = {"color": STAGES[index], "gid": stages[index]}
            axes.barh(row, end - start, 0.6, left=start, **look)
        for row, low, high in ends:
            for colour, width in ((GROUND, 3.5), (INK, 1.5)):  # visible on light and dark bars
                look = {"color": colour, "linewidth": width, "solid_capstyle": "round"}
                axes.plot([low, high], [row, row], **look)
        name_rows(axes, rows)
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds")

    return Chart(
        name="cost",
        heading="Seconds until training runs",
        description="Seconds that each library takes before training runs, stacked by stage.",
        draw=draw,
        heights=(46 * len(cost["backends"]), 40 * len(cost["backends"])),
        series=series,
    )


def of_stage(cost: JSON, stage: str) -> dict[str, JSON]:
    """Select what was measured of a stage, by library."""
    measured = {name: stages.get(stage) or {} for name, stages in cost["backends"].items()}
    return {
        name: seconds for name, seconds in measured.items() if seconds.get("median") is not None
    }


def rate_charts(cost: JSON) -> list[tuple[JSON, Chart]]:
    """Build a small plot of medians and intervals for each rate that was measured."""
    stages = {stage["name"]: stage for stage in cost["stages"]}
    built = []
    for stage in (stages[name] for name in RATES if name in stages):
        measured = of_stage(cost, stage["name"])
        if not measured:
            continue
        chart = libraries_chart(
            stage["name"],
            measured,
            cost["backends"],
            stage["unit"],
            value="median",
            zero=True,  # or a difference of a few percent would look large
            description=f"{stage['title']}: median of each library with its interval.",
        )
        built.append((stage, chart))
    return built
