"""Which tables a comparison has, and what stands in them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ...backends import libraries
from . import numbers
from .environments import environments_table
from .tables import Column, Record, Table

Result: TypeAlias = Mapping[str, Any]

LIBRARY = Column("library", lambda row: libraries.title(row["library"]), left=True)
PAIR = Column("pair", lambda row: numbers.pair_title((row["one"], row["other"])), left=True)


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
                "parameters": _parameters(identity, name),
                **{f"return_{key}": mean.get(key) for key in ("value", "low", "high")},
                **{key: facts.get(key) for key, _, _ in SPEEDS},
            }
        )
    columns = (
        LIBRARY,
        Column("parameters", lambda row: row["parameters"], left=True),
        Column("return", lambda row: numbers.returns(row["return_value"])),
        Column("95% interval", lambda row: numbers.interval(_bounds(row, "return_"))),
        *(Column(header, _scaled(key, scale)) for key, header, scale in SPEEDS),
    )
    return Table(name="summary", title="Summary", columns=columns, records=records)


SPEEDS = (
    ("steps_per_second", "steps/s", 1.0),
    ("compile_seconds", "compile s", None),
    ("peak_memory_bytes", "peak MB", 1e-6),
)


def _scaled(key: str, scale: float | None) -> Any:
    def text(row: Record) -> str:
        value = row[key]
        if value is None or scale is not None:
            return numbers.count(value if value is None else (scale or 1.0) * value)
        return f"{value:.2f}"

    return text


def _mean_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    low, high = facts.get("final_return_interval") or (None, None)
    return {"value": facts.get("final_return_mean"), "low": low, "high": high}


def _parameters(identity: Mapping[str, Any] | None, name: str) -> str:
    if not identity or name not in identity["backends"]:
        return numbers.MISSING
    place = identity["backends"][name]["first_difference"]
    return "equal" if place is None else f"differ at {place['update']:,}"


def _bounds(row: Record, prefix: str) -> dict[str, Any]:
    return {key: row.get(f"{prefix}{key}") for key in ("low", "high")}


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

    def estimate(measure: str) -> Any:
        return lambda row: numbers.with_interval(
            {"value": row[measure], **_bounds(row, f"{measure}_")}
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


def _pair_record(pair: Mapping[str, Any]) -> dict[str, Any]:
    first = pair.get("first_difference") or pair.get("first_metric_difference") or {}
    return {
        "one": pair["backends"][0],
        "other": pair["backends"][1],
        "level": pair["level"],
        "identical": pair["identical"],
        "first_update": first.get("update"),
        "first_place": first.get("leaf") or first.get("metric"),
        **{
            name: pair.get(name)
            for name in (
                "max_abs_param_difference",
                "max_rel_param_difference",
                "max_abs_output_difference",
            )
        },
        **{
            f"{name}_{key}": (pair.get(name) or {}).get(key)
            for name in ("return_difference", "area_difference")
            for key in ("mean", "low", "high")
        },
        **{
            f"probability_of_improvement_{key}": value
            for key, value in (pair.get("probability_of_improvement") or {}).items()
        },
        "margin": pair.get("margin"),
        "seeds_needed": pair.get("seeds_needed"),
    }


def pair_columns() -> tuple[Column, ...]:
    """Build the columns that describe a pair."""
    return (
        PAIR,
        Column("verdict", lambda row: row["level"], left=True),
        Column("first differs", lambda row: _first(row), left=True),
        Column("parameters", lambda row: numbers.size(row["max_abs_param_difference"])),
        Column("relative", lambda row: numbers.size(row["max_rel_param_difference"])),
        Column("outputs", lambda row: numbers.size(row["max_abs_output_difference"])),
        Column("return", lambda row: _difference(row)),
    )


def _first(row: Record) -> str:
    if row["identical"]:
        return "never"
    if row["first_update"] is None:
        return numbers.MISSING
    return f"update {row['first_update']:,}, {row['first_place']}"


def _difference(row: Record) -> str:
    bounds = numbers.interval(_bounds(row, "return_difference_"), numbers.difference)
    return f"{numbers.difference(row['return_difference_mean'])} {bounds}".strip()


def pairs_table(result: Result) -> Table | None:
    """Build the table of pairs: identity, largest differences, difference of the return."""
    pairs = result.get("pairs")
    if not pairs:
        return None
    return Table(
        name="pairs",
        title="Pairs of libraries",
        columns=pair_columns(),
        records=[_pair_record(pair) for pair in pairs],
        note="Parameters, relative and outputs: the largest difference over all updates and seeds. "
        "Return: the first library minus the second, paired by seed, with its 95 % interval.",
    )


def ladder_table(result: Result) -> Table | None:
    """Build the table of the ladder: one row for each rung."""
    ladder = result.get("ladder")
    if not ladder:
        return None
    return Table(
        name="ladder",
        title="Ladder of causes",
        columns=(
            Column("rung", lambda row: row["title"], left=True),
            Column("equal pairs", lambda row: row["equal"]),
            Column("parameters", lambda row: numbers.size(row["max_abs_param_difference"])),
            Column("outputs", lambda row: numbers.size(row["max_abs_output_difference"])),
            Column("return", lambda row: numbers.size(row["max_abs_return_difference"])),
            Column("explained", lambda row: numbers.percent(row["share"])),
        ),
        records=[_rung_record(rung) for rung in ladder],
        note="The largest difference between two libraries on each rung, and the share of the "
        "difference on the rung before that this step explains.",
    )


def _rung_record(rung: Mapping[str, Any]) -> dict[str, Any]:
    pairs = rung.get("pairs") or [] if rung["run"] else []
    equal = sum(pair["identical"] for pair in pairs)
    record = {
        "rung": rung["rung"],
        "title": rung["title"],
        "run": rung["run"],
        "equal": f"{equal} of {len(pairs)}" if pairs else "not run",
        "max_abs_return_difference": _largest(
            (pair.get("return_difference") or {}).get("mean") for pair in pairs
        ),
        "share": (rung.get("explained") or {}).get("share"),
        "sentence": (rung.get("explained") or {}).get("sentence"),
    }
    for name in ("max_abs_param_difference", "max_abs_output_difference"):
        record[name] = _largest(pair.get(name) for pair in pairs)
    for name, each in (rung.get("backends") or {}).items():
        record |= {f"{name}_{key}": value for key, value in each.items()}
    return record


def _largest(values: Iterator[float | None]) -> float | None:
    return max((abs(value) for value in values if value is not None), default=None)


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

    def measured_by(name: str) -> Any:
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

    def fact(name: str) -> Any:
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
