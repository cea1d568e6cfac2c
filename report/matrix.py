"""Library against library: parameters above the diagonal, returns below it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..backends import libraries
from . import numbers


@dataclass(frozen=True)
class Cell:
    """A cell: its text, a second line, the level that colours it, and a text on hovering."""

    text: str
    second: str = ""
    level: str = ""
    title: str = ""


def matrix(result: Mapping[str, Any]) -> list[tuple[str, list[Cell]]]:
    """Build one row of cells for each library; empty without pairs."""
    names = list(result["backends"])
    pairs = {tuple(pair["backends"]): pair for pair in result.get("pairs") or ()}
    if not pairs:
        return []
    return [(row, [_cell(row, column, names, pairs) for column in names]) for row in names]


def _cell(row: str, column: str, names: list[str], pairs: Mapping[Any, Any]) -> Cell:
    pair, swapped = pairs.get((row, column)), False
    if pair is None:
        pair, swapped = pairs.get((column, row)), True
    if row == column or pair is None:
        return Cell("" if row == column else numbers.MISSING)
    if names.index(row) < names.index(column):
        return _parameters(pair)
    return _returns(pair, swapped)


def _parameters(pair: Mapping[str, Any]) -> Cell:
    title = f"{numbers.pair_title(pair['backends'])}: {pair['sentence']}"
    if pair["identical"]:
        return Cell("equal", "bit for bit", "identical", title)
    first = pair.get("first_difference") or pair.get("first_metric_difference")
    second = f"from update {first['update']:,}" if first else ""
    return Cell(numbers.size(pair.get("max_abs_param_difference")), second, pair["level"], title)


def _returns(pair: Mapping[str, Any], swapped: bool) -> Cell:
    """Describe the row's return minus the column's."""
    estimate = pair.get("return_difference") or {}
    sign = -1.0 if swapped else 1.0
    value = {key: None if v is None else sign * v for key, v in estimate.items()}
    if swapped and value.get("low") is not None:
        value["low"], value["high"] = value["high"], value["low"]
    names = [libraries.title(name) for name in pair["backends"]]
    title = " minus ".join(names[::-1] if swapped else names)
    mean = value.get("mean")
    text = numbers.difference(mean if mean is None else mean + 0.0)
    level = pair.get("returns_level", pair["level"])
    level = "identical" if level == "equal" else level
    return Cell(text, numbers.interval(value, numbers.difference), level, title)


@dataclass(frozen=True)
class Detail:
    """What differs between two libraries: a sentence, facts by name, and causes."""

    backends: tuple[str, str]
    title: str
    level: str
    sentence: str
    facts: dict[str, str]
    causes: list[Mapping[str, str]]


def details(result: Mapping[str, Any]) -> list[Detail]:
    """Describe the pairs that differ, the largest difference first."""
    pairs = [pair for pair in result.get("pairs") or () if not pair["identical"]]
    pairs.sort(key=lambda pair: pair.get("max_abs_param_difference") or 0.0, reverse=True)
    return [
        Detail(
            backends=tuple(pair["backends"]),
            title=numbers.pair_title(pair["backends"]),
            level=pair["level"],
            sentence=pair["sentence"],
            facts=_facts(pair),
            causes=pair.get("causes") or [],
        )
        for pair in pairs
    ]


def _facts(pair: Mapping[str, Any]) -> dict[str, str]:
    facts = {}
    first = pair.get("first_difference") or pair.get("first_metric_difference")
    if first:
        more = first["num_differing"] - 1
        also = f" and {more:,} more" if more else ""
        facts["First difference"] = (
            f"update {first['update']:,} ({first['step']:,} environment steps), seed "
            f"{first['seed']}, in {first.get('leaf') or first.get('metric')}{also}"
        )
        facts |= _operation(first.get("operation"), pair["backends"])
    for name, title in (
        ("max_abs_param_difference", "Parameters"),
        ("max_rel_param_difference", "Parameters, relative"),
        ("max_abs_output_difference", "Outputs"),
    ):
        if pair.get(name) is not None:
            facts[title] = f"at most {numbers.size(pair[name])}"
    improvement = pair.get("probability_of_improvement")
    if improvement and improvement.get("value") is not None:
        one, other = map(libraries.title, pair["backends"])
        value = numbers.with_interval(improvement, lambda v: f"{v:.2f}")
        facts[f"Probability that {one} returns more than {other}"] = value
    if pair.get("seeds_needed") is not None:
        facts["Seeds needed to decide"] = f"{pair['seeds_needed']:,}"
    return facts


# The parts of an update in which an operation lies, as the report calls them.
PARTS = {
    "forward": "forward pass",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "loss": "loss",
    "gradient of the loss": "gradient of the loss",
    "update": "the agent's update",
}


def _operation(operation: Mapping[str, Any] | None, backends: list[str]) -> dict[str, str]:
    if operation is None:
        return {}
    facts = {}
    for name, side in zip(backends, ("one", "other"), strict=True):
        found = operation.get(side)
        if found:
            place = ", ".join(filter(None, (found.get("source"), found.get("scope"))))
            facts[f"Operation in {libraries.title(name)}"] = f"{found['name']} ({place})"
    if operation.get("part") in PARTS:
        facts["Part of the update"] = PARTS[operation["part"]]
    if operation.get("compiled_only"):
        fusion = f", in {operation['fusion']}" if operation.get("fusion") else ""
        facts["Where it appears"] = f"only in the compiled program{fusion}"
    return facts
