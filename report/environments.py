"""Several environments: the scores of all, and what each shows."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..backends import libraries
from . import numbers
from .charts.chart import Chart
from .charts.curves import TITLE, curves_chart
from .charts.estimates import row_of, rows_chart
from .charts.theme import colours
from .tables import Column, Record, Table


def environment_names(result: Mapping[str, Any]) -> list[str]:
    """List the environments in which the libraries were trained."""
    found = result.get("environments")
    return list(found or dict.fromkeys([result["env"], *(result.get("envs") or ())]))


def aggregate_chart(result: Mapping[str, Any]) -> Chart | None:
    """Build the plot of the normalized scores of each library, over all environments."""
    found = (result.get("aggregate") or {}).get("backends")
    if not found:
        return None
    colour = colours(list(result["backends"]))
    return rows_chart(
        "aggregate",
        [row_of(libraries.title(name), each["iqm"]) for name, each in found.items()],
        {libraries.title(name): colour[name] for name in found},
        "interquartile mean of the normalized scores",
        heading="Normalized scores over all environments",
        description="Interquartile mean of the normalized scores of each library.",
        step=36,
    )


def curves_by_environment(result: Mapping[str, Any]) -> dict[str, Chart]:
    """Build the learning curves in each environment but the first."""
    others = list((result.get("environments") or {}).items())[1:]
    built = {
        env: curves_chart(one, "curves-" + re.sub(r"[^\w.-]+", "_", env), f"{TITLE} on {env}")
        for env, one in others
    }
    return {env: chart for env, chart in built.items() if chart is not None}


def environments_table(result: Mapping[str, Any]) -> Table | None:
    """Build the table of the verdict and of the mean returns in each environment."""
    found = result.get("environments")
    if not found:
        return None
    backends = list(result["backends"])
    records = []
    for env, one in found.items():
        levels = [pair["level"] for pair in one["pairs"]]
        record = {
            "environment": env,
            "verdict": max(levels, key=list(numbers.LEVELS).index, default=None),
        }
        for name in backends:
            mean = (one["statistics"]["backends"].get(name) or {}).get("mean") or {}
            record |= {f"{name}_{key}": mean.get(key) for key in ("value", "low", "high")}
        records.append(record)

    def mean_of(name: str) -> Callable[[Record], str]:
        return lambda row: numbers.with_interval(
            {key: row[f"{name}_{key}"] for key in ("value", "low", "high")}
        )

    return Table(
        name="environments",
        title="Environments",
        columns=(
            Column("environment", lambda row: row["environment"], left=True),
            Column("verdict", lambda row: row["verdict"] or numbers.MISSING, left=True),
            *(Column(libraries.title(name), mean_of(name)) for name in backends),
        ),
        records=records,
        note="The mean return after training, with its 95 % interval, and the verdict of the pair "
        "of libraries that differs most.",
    )
