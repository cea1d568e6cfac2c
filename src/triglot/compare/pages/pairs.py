"""Pairs of libraries in the page: a matrix of all, and what differs in each."""

from collections.abc import Iterator
from typing import NamedTuple

from ...backends import libraries
from ...core.records import JSON
from ...shared.pages import numbers
from ...shared.pages.tables import Result

# The parts of an update in which an operation lies, as the report calls them.
PARTS = {
    "forward": "forward pass",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "loss": "loss",
    "gradient of the loss": "gradient of the loss",
    "update": "the agent's update",
}
SIZES = {
    "max_abs_param_difference": "Parameters",
    "max_rel_param_difference": "Parameters, relative",
    "max_abs_output_difference": "Outputs",
}


class Cell(NamedTuple):
    """A cell: its text, a second line, the level that colours it, and a text on hovering."""

    text: str
    second: str = ""
    level: str = ""
    title: str = ""


def matrix(result: Result) -> list[tuple[str, list[Cell]]]:
    """Build one row of cells for each library; empty without pairs.

    Parameters stand above the diagonal, returns below it.
    """
    names = list(result["backends"])
    pairs = {tuple(pair["backends"]): pair for pair in result.get("pairs") or ()}

    def cell(row: str, column: str) -> Cell:
        if row == column:
            return Cell("")
        above = names.index(row) < names.index(column)
        pair = pairs.get((row, column) if above else (column, row))
        if pair is None:
            return Cell(numbers.MISSING)
        return _parameters(pair) if above else _returns(pair)

    return [(row, [cell(row, column) for column in names]) for row in names] if pairs else []


def _parameters(pair: JSON) -> Cell:
    title = f"{numbers.pair_title(pair['backends'])}: {pair['sentence']}"
    if pair["identical"]:
        return Cell("identical", "bitwise", "identical", title)
    first = numbers.first_difference(pair)
    second = f"from update {first['update']:,}" if first else ""
    return Cell(numbers.size(pair.get("max_abs_param_difference")), second, pair["level"], title)


def _returns(pair: JSON) -> Cell:
    """Describe the return of the pair's second library minus that of its first."""
    estimate = pair.get("return_difference") or {}
    ends = {"mean": "mean", "low": "high", "high": "low"}
    turned = {k: None if estimate.get(n) is None else 0.0 - estimate[n] for k, n in ends.items()}
    one, other = map(libraries.title, pair["backends"])
    level = pair.get("returns_level", pair["level"])
    return Cell(
        numbers.difference(turned["mean"]),
        numbers.interval(turned, numbers.difference),
        "identical" if level == "equal" else level,
        f"{other} minus {one}",
    )


def details(result: Result) -> list[tuple[JSON, dict[str, str]]]:
    """List the pairs that differ, with facts by name, the largest difference first."""
    pairs = [pair for pair in result.get("pairs") or () if not pair["identical"]]
    pairs.sort(key=lambda pair: pair.get("max_abs_param_difference") or 0.0, reverse=True)
    return [(pair, dict(_facts(pair))) for pair in pairs]


def _facts(pair: JSON) -> Iterator[tuple[str, str]]:
    first = numbers.first_difference(pair)
    if first:
        yield (
            "First difference",
            f"update {first['update']:,} ({first['step']:,} environment steps), seed "
            f"{first['seed']}, in {numbers.place(first)}",
        )
        yield from _operation(first.get("operation") or {}, pair["backends"])
    for name, title in SIZES.items():
        if pair.get(name) is not None:
            yield title, f"at most {numbers.size(pair[name])}"
    improvement = pair.get("probability_of_improvement")
    if improvement and improvement.get("value") is not None:
        one, other = map(libraries.title, pair["backends"])
        name = f"Probability that {one} returns more than {other}"
        yield name, numbers.with_interval(improvement, lambda v: f"{v:.2f}")
    if pair.get("seeds_needed") is not None:
        yield "Seeds needed to decide", f"{pair['seeds_needed']:,}"


def _operation(operation: JSON, backends: list[str]) -> Iterator[tuple[str, str]]:
    for name, side in zip(backends, ("one", "other"), strict=True):
        step = operation.get(side)
        if step:
            place = ", ".join(filter(None, (step.get("source"), step.get("scope"))))
            yield f"Operation in {libraries.title(name)}", f"{step['name']} ({place})"
    if operation.get("part") in PARTS:
        yield "Part of the update", PARTS[operation["part"]]
    if operation.get("compiled_only"):
        yield "Where it appears", "only in the compiled program"
