"""Which tables a comparison has, and what stands in them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...backends import libraries
from ...core.records import JSON
from ...shared.pages import numbers
from ...shared.pages.tables import (
    GAP_NOTE,
    LIBRARY,
    Column,
    Record,
    Result,
    Table,
    estimated,
    gap_column,
    picked,
    picked_gap,
    spread,
    spread_column,
)

AT_ONCE = "Trainings ran on one core each, and several at the same time."
# Facts of a library that `compare` finds while it trains: name, header, format, factor.
SPEEDS = (
    ("steps_per_second", "steps/s", "{:,.0f}", 1.0),
    ("compile_seconds", "compile s", "{:.2f}", 1.0),
    ("peak_memory_bytes", "peak MB", "{:,.0f}", 1e-6),
)
MEASURES = {"mean": "mean return", "iqm": "interquartile mean", "area": "area under the curve"}
PROGRAM = {
    "flops": "FLOP",
    "bytes_accessed": "bytes",
    "fusions": "fusions",
    "dots": "dots",
    "convolutions": "convolutions",
    "instructions": "instructions",
}
SIZES = ("max_abs_param_difference", "max_rel_param_difference", "max_abs_output_difference")
ENDS = ("low", "high")


def tables(result: Result) -> list[Table]:
    """Build the tables of what was run; their records are also written as CSV."""
    built = [summary_table(result)]
    for part, build in (
        ("statistics", returns_table),
        ("pairs", pairs_table),
        ("environments", environments_table),
        ("ladder", ladder_table),
        ("cost", cost_table),
        ("programs", programs_table),
    ):
        if result.get(part):
            built.append(build(result))
    return built


def environment_names(result: Result) -> list[str]:
    """List the environments in which the libraries were trained."""
    by_env = result.get("environments")
    return list(by_env or dict.fromkeys([result["env"], *(result.get("envs") or ())]))


def summary_table(result: Result) -> Table:
    """Build the table that the terminal shows: one row per library, most important first."""
    identity = (result.get("identity") or {}).get("backends") or {}
    estimates = (result.get("statistics") or {}).get("backends") or {}
    records = []
    for name, facts in result["backends"].items():
        low, high = facts.get("final_return_interval") or (None, None)
        mean = {"value": facts.get("final_return_mean"), "low": low, "high": high}
        mean = (estimates.get(name) or {}).get("mean") or mean
        records.append(
            {
                "library": name,
                "differs": _differs(identity.get(name)),
                "return": picked(mean, "value", *ENDS) | spread(facts.get("final_returns") or ()),
                **picked_gap(facts),
                **{key: facts.get(key) for key, *_ in SPEEDS},
            }
        )
    columns = (
        LIBRARY,
        Column("differs", lambda row: row["differs"], left=True),
        Column("return", lambda row: numbers.returns(row["return"]["value"])),
        *spread_column("return", result["num_seeds"]),
        *(gap := gap_column(records)),
        *map(_speed, SPEEDS),
    )
    note = GAP_NOTE if gap else ""
    return Table(name="summary", title="Summary", columns=columns, records=records, note=note)


def speeds_table(result: Result) -> Table:
    """Build the table of what was measured while the libraries trained."""
    return Table(
        name="speeds",
        title="Speed in training",
        columns=(LIBRARY, *map(_speed, SPEEDS)),
        records=summary_table(result).records,
        note="Measured once, while each library trained. The stages were not measured one by one."
        + (f" {AT_ONCE}" if result.get("executor") else ""),
    )


def _speed(fact: tuple[str, str, str, float]) -> Column:
    name, header, form, factor = fact

    def text(row: Record) -> str:
        return numbers.MISSING if row[name] is None else form.format(factor * row[name])

    return Column(header, text)


def _differs(identity: JSON | None) -> str:
    if identity is None:
        return numbers.MISSING
    place = identity["first_difference"]
    return "identical" if place is None else f"from update {place['update']:,}"


def returns_table(result: Result) -> Table:
    """Build the table of returns after training: mean, interquartile mean, area."""
    return Table(
        name="returns",
        title="Return after training",
        columns=(LIBRARY, *(_with_interval(key, title) for key, title in MEASURES.items())),
        records=[
            {
                "library": name,
                **{measure: estimated(statistics.get(measure)) for measure in MEASURES},
            }
            for name, statistics in result["statistics"]["backends"].items()
        ],
        note=f"Greedy, {result.get('eval_episodes')} episodes per seed. The interquartile mean "
        "leaves out the lowest and the highest quarter of the seeds. The area is the average of "
        "the learning curve, in the unit of the return. Intervals are at 95 %; below 5 seeds "
        "there are none.",
    )


def _with_interval(name: str, header: str, value: str = "") -> Column:
    return Column(header, lambda row: numbers.with_interval(row[name], value=value))


def pairs_table(result: Result) -> Table:
    """Build the table of pairs: identity, largest differences, difference of the return."""
    records = []
    for pair in result["pairs"]:
        first = numbers.first_difference(pair) or {}
        records.append(
            {
                "one": pair["backends"][0],
                "other": pair["backends"][1],
                **picked(pair, "level", "identical"),
                "first": {
                    "update": first.get("update"),
                    "place": first.get("leaf") or first.get("metric"),
                },
                **picked(pair, *SIZES),
                **{
                    name: picked(pair.get(name), "mean", *ENDS)
                    for name in ("return_difference", "area_difference")
                },
                "probability_of_improvement": pair.get("probability_of_improvement") or {},
                **picked(pair, "margin", "seeds_needed"),
            }
        )
    return Table(
        name="pairs",
        title="Pairs of libraries",
        columns=(
            Column("pair", lambda row: numbers.pair_title((row["one"], row["other"])), left=True),
            Column("verdict", lambda row: row["level"], left=True),
            Column("first differs", _first, left=True),
            *map(_size, ("parameters", "relative", "outputs"), SIZES),
            Column(
                "return",
                lambda row: numbers.with_interval(
                    row["return_difference"], numbers.difference, value="mean"
                ),
            ),
        ),
        records=records,
        note="Parameters, relative and outputs: the largest difference over all updates and seeds. "
        "Return: the first library minus the second, paired by seed, with its 95 % interval.",
    )


def _first(row: Record) -> str:
    if row["identical"]:
        return "identical"
    if row["first"]["update"] is None:
        return numbers.MISSING
    return f"update {row['first']['update']:,}, {row['first']['place']}"


def _size(header: str, name: str) -> Column:
    return Column(header, lambda row: numbers.size(row[name]))


def environments_table(result: Result) -> Table:
    """Build the table of the verdict and of the mean returns in each environment."""
    backends = list(result["backends"])
    records = []
    for env, facts in result["environments"].items():
        levels = [pair["level"] for pair in facts["pairs"]]
        means = {name: facts["statistics"]["backends"].get(name) or {} for name in backends}
        records.append(
            {
                "environment": env,
                "verdict": max(levels, key=list(numbers.LEVELS).index, default=None),
                **{name: picked(mean.get("mean"), "value", *ENDS) for name, mean in means.items()},
            }
        )
    return Table(
        name="environments",
        title="Environments",
        columns=(
            Column("environment", lambda row: row["environment"], left=True),
            Column("verdict", lambda row: row["verdict"] or numbers.MISSING, left=True),
            *(_with_interval(name, libraries.title(name), "value") for name in backends),
        ),
        records=records,
        note="The mean return after training, with its 95 % interval, and the verdict of the pair "
        "of libraries that differs most.",
    )


def ladder_table(result: Result) -> Table:
    """Build the table of the ladder: one row for each rung."""
    return Table(
        name="ladder",
        title="Ladder of causes",
        columns=(
            Column("rung", lambda row: row["title"], left=True),
            Column("identical", lambda row: row["equal"]),
            _size("parameters", "max_abs_param_difference"),
            _size("outputs", "max_abs_output_difference"),
            _size("return", "max_abs_return_difference"),
            Column("explained", lambda row: numbers.percent(row["share"])),
        ),
        records=list(map(_rung, result["ladder"])),
        note="The largest difference between two libraries on each rung, and the share of the "
        "difference on the rung before that this step explains.",
    )


def _rung(rung: JSON) -> Record:
    pairs = rung.get("pairs") or [] if rung["run"] else []
    equal = sum(pair["identical"] for pair in pairs)
    returns = ((pair.get("return_difference") or {}).get("mean") for pair in pairs)
    return {
        **picked(rung, "rung", "title", "run"),
        "equal": f"{equal} of {len(pairs)}" if pairs else "not run",
        "max_abs_return_difference": _largest(returns),
        **picked(rung.get("explained"), "share", "sentence"),
        **{
            name: _largest(pair.get(name) for pair in pairs)
            for name in ("max_abs_param_difference", "max_abs_output_difference")
        },
        **(rung.get("backends") or {}),
    }


def _largest(values: Iterable[float | None]) -> float | None:
    return max((abs(value) for value in values if value is not None), default=None)


def cost_table(result: Result) -> Table:
    """Build the table of costs: one row for each stage, one column for each library."""
    backends = result["cost"]["backends"]

    def measured_by(name: str) -> Callable[[Record], str]:
        return lambda row: numbers.measured(row[name], row["unit"])

    return Table(
        name="cost",
        title="Cost",
        columns=(
            Column("stage", lambda row: row["title"], left=True),
            *(Column(libraries.title(name), measured_by(name)) for name in backends),
        ),
        records=[
            {
                "stage": stage["name"],
                **picked(stage, "title", "unit"),
                **{
                    name: picked(stages.get(stage["name"]), "median", *ENDS, "count")
                    for name, stages in backends.items()
                },
            }
            for stage in result["cost"]["stages"]
        ],
        note="Medians with 95 % bootstrap intervals; each library ran in separate processes.",
    )


def programs_table(result: Result) -> Table:
    """Build the table of facts about the compiled programs."""

    def count(name: str) -> Callable[[Record], str]:
        return lambda row: numbers.count(row.get(name))

    return Table(
        name="programs",
        title="Compiled programs",
        columns=(
            LIBRARY,
            *(Column(header, count(name)) for name, header in PROGRAM.items()),
            Column("SHA-256", lambda row: (row.get("sha256") or numbers.MISSING)[:12]),
        ),
        records=[
            {"library": name, **facts} for name, facts in result["programs"]["backends"].items()
        ],
        note="XLA's counts for the optimized program; a loop of dynamic length counts once. The "
        "hash ignores names and source locations: equal hashes mean equal programs.",
    )


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
        built.append(_over_steps("curves", picked(curves, "env_steps") | columns))
    if divergence:
        columns = {
            "_".join((*pair["backends"], measure)): values
            for pair in divergence["pairs"]
            for measure, values in pair.items()
            if measure != "backends" and values
        }
        steps = picked(divergence, "updates", "env_steps")
        built.append(_over_steps("divergence", steps | columns))
    return built


def _over_steps(name: str, columns: Mapping[str, Sequence[float]]) -> Table:
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return Table(name=name, title=name, columns=(), records=records)
