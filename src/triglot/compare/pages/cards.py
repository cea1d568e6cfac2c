"""The four cards at the top of the page: a number each, and what it means."""

import math
from typing import NamedTuple

from ...backends import libraries
from ...core.errors import counted
from ...core.records import JSON
from ...shared.pages import numbers
from ...shared.statistics.returns import MIN_SEEDS
from .charts.cost import of_stage


class Card(NamedTuple):
    """A question, the answer in a few characters, what it means, and a level that colours it."""

    title: str
    value: str
    meaning: str
    level: str = ""
    detail: str = ""


def cards(result: JSON) -> list[Card]:
    """Build the cards of what was compared."""
    pairs = result.get("pairs") or []
    built = [
        _identity(result),
        _largest(pairs),
        _return(pairs, result.get("num_seeds") or 0),
        _speed(result),
    ]
    return [card for card in built if card is not None]


def _identity(result: JSON) -> Card | None:
    identity = result.get("identity")
    if not identity:
        return None
    updates = f"{result['num_updates']:,}"
    total = len(result["backends"])
    if identity["identical"]:
        everyone = numbers.names(list(result["backends"]), total=total)
        meaning = (
            f"After each of the {updates} updates, every parameter array of {everyone} holds the "
            "same bits, in every seed."
        )
        return Card("Identical?", "Yes", meaning, "identical")
    place = identity["first_difference"] or identity["first_metric_difference"]
    verb = "differ" if len(place["backends"]) > 1 else "differs"
    meaning = (
        f"{numbers.names(place['backends'])} {verb} first at update {place['update']:,} of "
        f"{updates}, in {numbers.place(place)}."
    )
    return Card("Identical?", "No", meaning, detail=f"from update {place['update']:,}")


def _largest(pairs: list[JSON]) -> Card | None:
    sized = [pair for pair in pairs if pair.get("max_abs_param_difference") is not None]
    if not sized:
        return None
    pair = max(sized, key=lambda pair: pair["max_abs_param_difference"])
    largest = pair["max_abs_param_difference"]
    if largest == 0:
        return Card("Largest difference", "0", "No parameter differs at any update.", "identical")
    meaning = f"{numbers.names(pair['backends'])}, in one parameter: {_in_rounding_steps(largest)}."
    outputs = pair.get("max_abs_output_difference")
    if outputs is not None:
        meaning += f" Their outputs for the same observations differ by {numbers.size(outputs)}."
    relative = pair.get("max_rel_param_difference")
    detail = "" if relative is None else f"{numbers.size(relative)} relative"
    return Card("Largest difference", numbers.size(largest), meaning, detail=detail)


def _in_rounding_steps(value: float) -> str:
    steps = value / numbers.EPSILON
    if math.isinf(steps):
        return "a parameter is infinite or NaN"
    size = f"float32 rounding step at 1.0 ({numbers.size(numbers.EPSILON)})"
    if steps <= 1:
        return f"at most one {size}"
    return f"{numbers.count(steps) if steps < 1e6 else numbers.size(steps)} times the {size}"


def _return(pairs: list[JSON], num_seeds: int) -> Card | None:
    sized = [p for p in pairs if (p.get("return_difference") or {}).get("mean") is not None]
    if not sized:
        return None
    pair = max(sized, key=lambda pair: abs(pair["return_difference"]["mean"]))
    estimate, margin = pair["return_difference"], pair.get("margin")
    if all(sized_pair["return_difference"]["mean"] == 0 for sized_pair in sized):
        meaning = f"The mean return after training is the same, over {counted(num_seeds, 'seed')}."
        return Card("Return difference", "0", meaning, "identical")
    one, other = map(libraries.title, pair["backends"])
    meaning = f"{one} minus {other}, after training, paired over {counted(num_seeds, 'seed')}."
    if num_seeds < MIN_SEEDS or estimate["low"] is None:
        meaning += f" Fewer than {MIN_SEEDS} seeds are not tested."
        return Card("Return difference", numbers.difference(estimate["mean"]), meaning)
    level = pair.get("returns_level", pair["level"])
    low, high, percent = estimate["low"], estimate["high"], 95
    if level != "different" and pair.get("equivalence_interval"):
        (low, high), percent = pair["equivalence_interval"], 90  # of two one-sided tests at 5 %
    if margin is not None:
        meaning += f" {_against_margin(low, high, margin)}"
    level = level if level in ("equivalent", "different") else ""
    bounds = numbers.interval({"low": low, "high": high}, numbers.difference)
    detail = f"{bounds} at {percent} %"
    return Card("Return difference", numbers.difference(estimate["mean"]), meaning, level, detail)


def _against_margin(low: float, high: float, margin: float) -> str:
    limit = f"the margin of ±{numbers.returns(margin)}"
    if -margin < low and high < margin:
        return f"The whole interval lies within {limit}."
    if high < -margin or low > margin:
        return f"The whole interval lies outside {limit}."
    return f"The interval reaches beyond {limit}."


def _speed(result: JSON) -> Card | None:
    """Compare training speeds that were measured in turns; those of the trainings are not."""
    title = "Slowest against fastest"
    speeds = of_stage(result["cost"], "steps_per_second") if result.get("cost") else {}
    if len(speeds) < 2:
        meaning = "Costs were not measured: --repetitions 5 measures them, with intervals."
        return Card(title, numbers.MISSING, meaning)
    slow = min(speeds, key=lambda name: speeds[name]["median"])
    fast = max(speeds, key=lambda name: speeds[name]["median"])
    ratio = speeds[fast]["median"] / speeds[slow]["median"]
    meaning = (
        f"{libraries.title(slow)} trains {numbers.count(speeds[slow]['median'])} environment steps "
        f"per second, {libraries.title(fast)} {numbers.count(speeds[fast]['median'])}."
    )
    if _overlap(speeds[slow], speeds[fast]):
        meaning += " Their intervals overlap."
    if (result["cost"].get("noise") or {}).get("noisy"):
        meaning += " The machine was busy."
    detail = f"{libraries.title(slow)} against {libraries.title(fast)}"
    return Card(title, f"{ratio:.2f} ×", meaning, detail=detail)


def _overlap(slow: JSON, fast: JSON) -> bool:
    high, low = slow.get("high"), fast.get("low")
    return high is not None and low is not None and high >= low
