"""Which tables a comparison has, and what stands in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import numbers
from .cost_tables import cost_table, programs_table
from .environments import environments_table
from .pair_tables import ladder_table, pairs_table
from .tables import LIBRARY, Column, Record, Result, Table, bounds, spread, spread_columns

AT_ONCE = "Trainings ran on one core each, and several at the same time."


def summary_table(result: Result) -> Table:
    """Build the table that the terminal shows: one row per library, most important first."""
    identity = result.get("identity")
    estimates = (result.get("statistics") or {}).get("backends") or {}
    records = []
    for name, facts in result["backends"].items():
        mean = (estimates.get(name) or {}).get("mean") or _mean_of(facts)
        records.append(
            {
                "library": name,
                "differs": _differs(identity, name),
                **{f"return_{key}": mean.get(key) for key in ("value", "low", "high")},
                **spread("return_", facts.get("final_returns") or ()),
                **{key: facts.get(key) for key, *_ in SPEEDS},
            }
        )
    columns = (
        LIBRARY,
        Column("differs", lambda row: row["differs"], left=True),
        Column("return", lambda row: numbers.returns(row["return_value"])),
        *spread_columns("return_", result["num_seeds"]),
        *_speeds(),
    )
    return Table(name="summary", title="Summary", columns=columns, records=records)


def speeds_table(result: Result) -> Table:
    """Build the table of what was measured while the libraries trained."""
    return replace(
        summary_table(result),
        title="Speed in training",
        columns=(LIBRARY, *_speeds()),
        note="Measured once, while each library trained. The stages were not measured one by one."
        + (f" {AT_ONCE}" if result.get("executor") else ""),
    )


# Facts of a library that `compare` finds while it trains: name, header, format.
SPEEDS = (
    ("steps_per_second", "steps/s", "{:,.0f}", 1.0),
    ("compile_seconds", "compile s", "{:.2f}", 1.0),
    ("peak_memory_bytes", "peak MB", "{:,.0f}", 1e-6),
)


def _speeds() -> tuple[Column, ...]:
    return tuple(Column(header, _number(name, form, scale)) for name, header, form, scale in SPEEDS)


def _number(name: str, form: str, scale: float) -> Callable[[Record], str]:
    return lambda row: numbers.MISSING if row[name] is None else form.format(scale * row[name])


def _mean_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    low, high = facts.get("final_return_interval") or (None, None)
    return {"value": facts.get("final_return_mean"), "low": low, "high": high}


def _differs(identity: Mapping[str, Any] | None, name: str) -> str:
    if not identity or name not in identity["backends"]:
        return numbers.MISSING
    place = identity["backends"][name]["first_difference"]
    return "never" if place is None else f"from update {place['update']:,}"


def tables(result: Result) -> list[Table]:
    """Build the tables of what was run; their records are also written as CSV."""
    found = [
        summary_table(result),
        returns_table(result),
        pairs_table(result),
        environments_table(result),
        ladder_table(result),
        cost_table(result),
        programs_table(result),
    ]
    return [table for table in found if table is not None]


def series(result: Result) -> list[Table]:
    """Build the tables of curves and differences over updates, for programs only."""
    built = []
    curves, divergence = result.get("curves"), result.get("divergence")
    if curves:
        columns = {
            f"{name}_seed{seed}": values
            for name, seeds in curves["backends"].items()
            for seed, values in enumerate(seeds)
        }
        built.append(_over_steps("curves", {"env_steps": curves["env_steps"], **columns}))
    if divergence:
        columns = {
            "_".join((*pair["backends"], measure)): values
            for pair in divergence["pairs"]
            for measure, values in pair.items()
            if measure != "backends" and values
        }
        steps = {name: divergence[name] for name in ("updates", "env_steps")}
        built.append(_over_steps("divergence", {**steps, **columns}))
    return built


def _over_steps(name: str, columns: Mapping[str, Sequence[Any]]) -> Table:
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return Table(name=name, title=name, columns=(), records=records)


def returns_table(result: Result) -> Table | None:
    """Build the table of returns after training: mean, interquartile mean, area."""
    statistics = result.get("statistics")
    if not statistics:
        return None
    measures = {
        "mean": "mean return",
        "iqm": "interquartile mean",
        "area": "area under the curve",
    }
    records = [
        {
            "library": name,
            **{
                f"{measure}{'' if key == 'value' else '_' + key}": (each.get(measure) or {}).get(
                    key
                )
                for measure in measures
                for key in ("value", "low", "high", "count")
            },
        }
        for name, each in statistics["backends"].items()
    ]

    def estimate(measure: str) -> Callable[[Record], str]:
        return lambda row: numbers.with_interval(
            {"value": row[measure], **bounds(row, f"{measure}_")}
        )

    return Table(
        name="returns",
        title="Return after training",
        columns=(LIBRARY, *(Column(title, estimate(key)) for key, title in measures.items())),
        records=records,
        note=f"Greedy, {result.get('eval_episodes')} episodes per seed. The interquartile mean "
        "leaves out the lowest and the highest quarter of the seeds. The area is the average of "
        "the learning curve, in the unit of the return. Intervals are at 95 %; below 5 seeds "
        "there are none.",
    )
