"""Tables of costs and of compiled programs."""

from collections.abc import Callable, Sequence

from ..backends import libraries
from . import numbers
from .tables import LIBRARY, Column, Record, Result, Table


def cost_table(result: Result) -> Table | None:
    """Build the table of costs: one row for each stage, one column for each library."""
    cost = result.get("cost")
    if not cost:
        return None
    backends = list(cost["backends"])
    records = []
    for stage in cost["stages"]:
        record = {"stage": stage["name"], "title": stage["title"], "unit": stage["unit"]}
        for name in backends:
            measured = cost["backends"][name].get(stage["name"]) or {}
            for key in ("median", "low", "high", "count"):
                record[f"{name}_{key}"] = measured.get(key)
        records.append(record)

    def measured_by(name: str) -> Callable[[Record], str]:
        def text(row: Record) -> str:
            measured = {key: row[f"{name}_{key}"] for key in ("median", "low", "high")}
            return numbers.measured(measured, row["unit"])

        return text

    return Table(
        name="cost",
        title="Cost",
        columns=(
            Column("stage", lambda row: row["title"], left=True),
            *(Column(libraries.title(name), measured_by(name)) for name in backends),
        ),
        records=records,
        note="Medians with 95 % bootstrap intervals; each library ran in a process of its own.",
    )


PROGRAM: Sequence[tuple[str, str]] = (
    ("flops", "FLOP"),
    ("bytes_accessed", "bytes"),
    ("fusions", "fusions"),
    ("dots", "dots"),
    ("convolutions", "convolutions"),
    ("instructions", "instructions"),
)


def programs_table(result: Result) -> Table | None:
    """Build the table of facts about the compiled programs."""
    programs = result.get("programs")
    if not programs:
        return None

    def fact(name: str) -> Callable[[Record], str]:
        return lambda row: numbers.count(row.get(name))

    return Table(
        name="programs",
        title="Compiled programs",
        columns=(
            LIBRARY,
            *(Column(header, fact(name)) for name, header in PROGRAM),
            Column("SHA-256", lambda row: (row.get("sha256") or numbers.MISSING)[:12]),
        ),
        records=[{"library": name, **facts} for name, facts in programs["backends"].items()],
        note="XLA's counts for the optimized program; a loop of dynamic length counts once. The "
        "hash ignores names and source locations: equal hashes mean equal programs.",
    )
