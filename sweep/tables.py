"""The tables of a sweep: one row per training, and one row per setting."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..report import numbers
from ..report.numbers import format_value
from ..report.tables import Column, Table, estimated, spread, spread_column
from .results import DIVERGED, Outcome

SHOWN = 20  # settings that a terminal shows


def trainings_table(found: Sequence[Outcome]) -> Table:
    """Build the table for programs, with one row per setting and seed."""
    records = [
        {
            "setting": one.number + 1,
            "seed": seed,
            **_cells(one.values),
            "status": one.status(seed),
            "steps": one.num_steps,
            "return": None if one.final is None else _number(one.returns[seed]),
            "training_return": _number(one.training[seed]),
        }
        for one in found
        for seed in range(len(one.finite))
    ]
    return Table(name="results", title="Trainings", columns=(), records=records)


def ranking_table(result: Mapping[str, Any]) -> Table:
    """Build the ranking: one row per setting, the best first."""
    records = [
        {
            "rank": one["rank"],
            **_cells(one["values"]),
            "return": estimated(one["return"]) | spread(one["returns"]),
            "iqm": estimated(one["iqm"]),
            "training_return": one["training_return"],
            "status": DIVERGED if one["num_diverged"] else one["status"],
            "num_diverged": one["num_diverged"],
            "steps": one["steps"],
            "setting": one["setting"],
        }
        for one in result["settings"]
    ]
    columns = [
        Column("rank", lambda row: str(row["rank"]), left=True),
        Column("return", lambda row: numbers.returns(row["return"][""])),
        *spread_column("return", result["num_seeds"]),
        *(Column(name, lambda row, n=name: row[n]) for name in result["names"]),
        Column("IQM", lambda row: numbers.returns(row["iqm"][""])),
    ]
    if any(one["status"] != "finished" or one["num_diverged"] for one in result["settings"]):
        columns += [
            Column("status", lambda row: row["status"], left=True),
            Column("steps", lambda row: numbers.count(row["steps"])),
        ]
    return Table(
        name="ranking",
        title="Ranking",
        columns=tuple(columns),
        records=records,
        note=_note(result),
    )


def _note(result: Mapping[str, Any]) -> str:
    if result["eval_episodes"]:
        text = (
            f"Greedy return after training, {result['eval_episodes']} episodes per seed, mean over "
            f"{result['num_seeds']} seeds."
        )
    else:
        text = f"Return of the last tenth of training, mean over {result['num_seeds']} seeds."
    text += " IQM: interquartile mean. Intervals are at 95 %, from 5 seeds on."
    if any(one["status"] == "stopped" for one in result["settings"]):
        text += " A setting that was stopped has the return of its recent training episodes."
    if any(one["num_diverged"] for one in result["settings"]):
        text += " A setting is diverged if a seed's parameters became NaN or infinite."
    return text


def _cells(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: format_value(value) for name, value in values.items()}


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
