"""Tables of pairs of libraries: on the rung that is judged, and on each rung of the ladder."""

from collections.abc import Iterator, Mapping
from typing import Any

from . import numbers
from .tables import Column, Record, Result, Table, bounds

PAIR = Column("pair", lambda row: numbers.pair_title((row["one"], row["other"])), left=True)


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
    interval = numbers.interval(bounds(row, "return_difference_"), numbers.difference)
    return f"{numbers.difference(row['return_difference_mean'])} {interval}".strip()


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
