"""The verdict of a whole comparison, and what each rung of the ladder explains."""

from collections.abc import Mapping, Sequence
from typing import Any

from ....backends import libraries
from ...statistics import format_return
from ..rungs import RUNGS, Rung
from .pairs import DIFFERENT, EQUIVALENT, IDENTICAL, INCONCLUSIVE, LEVELS

# From the best to the worst, for `--fail-on`: a difference that is shown is worse than one that
# could not be excluded.
MARGIN_SHARE = 0.05  # of the return above a random policy's
SMALLEST_MARGIN = 1e-6


def margin_of(final_return: float, random_return: float, given: float | None) -> float:
    """Choose the largest difference of returns that counts as equal."""
    if given is not None:
        return given
    return max(MARGIN_SHARE * abs(final_return - random_return), SMALLEST_MARGIN)


def verdict(
    pairs: Sequence[Mapping[str, Any]], backends: Sequence[str], num_updates: int, arithmetic: str
) -> dict[str, str]:
    """Summarize the pairs of the rung that is judged.

    Args:
      pairs: their entries in `comparison.json`, at least one.
      backends: the libraries that were trained.
      num_updates: of each training.
      arithmetic: of the networks.

    Returns:
      `level`, the worst of the pairs', and one `sentence`.
    """
    level = max((pair["level"] for pair in pairs), key=LEVELS.index)
    if level == IDENTICAL:
        count = {2: "Both", 3: "All three", 4: "All four"}.get(
            len(backends), f"All {len(backends)}"
        )
        return {
            "level": level,
            "sentence": f"{count} learning curves and final parameters are equal, bit for bit, "
            f"over {num_updates:,} updates.",
        }
    worst = [pair for pair in pairs if pair["level"] == level]
    decisive = max(worst, key=lambda pair: pair["max_abs_param_difference"])
    groups = _groups(pairs, backends)
    equal = [group for group in groups if len(group) > 1]
    heads = {
        EQUIVALENT: "Not equal bit for bit, but equivalent.",
        INCONCLUSIVE: "Not equal bit for bit, and too few seeds to say more.",
        DIFFERENT: "Different.",
    }
    parts = [heads[level], decisive["sentence"]]
    if equal:
        names = "; ".join(" = ".join(map(libraries.title, group)) for group in equal)
        parts.append(f"Equal bit for bit: {names}.")
    only_rounding = {cause["name"] for pair in worst for cause in pair["causes"]} <= ROUNDING_CAUSES
    if arithmetic != "canonical" and only_rounding:
        parts.append("--arithmetic canonical gives all libraries one order of summation.")
    return {"level": level, "sentence": " ".join(parts)}


ROUNDING_CAUSES = {"summation_order", "leaf_order", "compilation"}


def _groups(pairs: Sequence[Mapping[str, Any]], backends: Sequence[str]) -> list[list[str]]:
    """Group the libraries that are identical among themselves."""
    same = {frozenset(pair["backends"]) for pair in pairs if pair["identical"]}
    groups: list[list[str]] = []
    for name in backends:
        for group in groups:
            if all(frozenset((name, member)) in same for member in group):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def ladder(rungs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Say what each rung explains of the difference that the rung before it shows.

    Args:
      rungs: for each rung that was run, by name: `pairs` and `backends` as in `comparison.json`.

    Returns:
      The field `ladder` of `comparison.json`, all rungs in order.
    """
    entries: list[dict[str, Any]] = []
    before: tuple[Rung, float] | None = None
    for rung in RUNGS:
        found = rungs.get(rung.name)
        entry: dict[str, Any] = {"rung": rung.name, "title": rung.title, "run": found is not None}
        if found is None:
            entries.append({**entry, "pairs": None, "backends": None, "explained": None})
            continue
        pairs = [{k: v for k, v in pair.items() if k != "divergence"} for pair in found["pairs"]]
        spread = _spread(found["backends"])
        entries.append(
            {
                **entry,
                "pairs": pairs,
                "backends": found["backends"],
                "spread": spread,
                "explained": _explained(rung, pairs, spread, before),
            }
        )
        before = (rung, spread)
    return entries


def _spread(backends: Mapping[str, Mapping[str, Any]]) -> float:
    """Give the largest difference of mean returns between two libraries."""
    means = [facts["final_return"] for facts in backends.values()]
    return max(means) - min(means)


def _explained(
    rung: Rung,
    pairs: Sequence[Mapping[str, Any]],
    spread: float,
    before: tuple[Rung, float] | None,
) -> dict[str, Any]:
    """Compare a rung with the one before it."""
    left = [pair for pair in pairs if not pair["identical"]]
    rest = _rest(left)
    text = f"Mean returns differ by up to {_return(spread)}"
    if before is None:
        return {"sentence": f"{text}. {rest}", "share": None}
    previous = before[1]
    share = None if previous <= 0 else max(0.0, min(1.0, 1 - spread / previous))
    change = f"{text}, before this rung by up to {_return(previous)}"
    about = f": {rung.cause} accounts for {100 * share:.0f} % of it" if share else ""
    return {"sentence": f"{change}{about}. {rest}", "share": share}


def _return(value: float) -> str:
    return "0" if value == 0 else format_return(value)


def _rest(left: Sequence[Mapping[str, Any]]) -> str:
    if not left:
        return "All libraries are equal bit for bit: nothing is left over."
    first = max(left, key=lambda pair: pair["max_abs_param_difference"])
    one, other = map(libraries.title, first["backends"])
    causes = ", ".join(f"{cause['name']} ({cause['where']})" for cause in first["causes"])
    return (
        f"{len(left)} pair{'s' if len(left) > 1 else ''} of libraries still differ; the largest "
        f"difference of a parameter, {first['max_abs_param_difference']:.2g}, is between {one} and "
        f"{other}: {causes}."
    )
