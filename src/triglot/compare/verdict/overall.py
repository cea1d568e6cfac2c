"""The verdict of a whole comparison, and what each rung of the ladder explains."""

from collections.abc import Mapping, Sequence

from ...backends import libraries
from ...core.errors import counted
from ...core.records import JSON, JSONDict
from ...shared.pages import numbers
from ...shared.statistics.paired import holm
from ...shared.statistics.returns import MIN_SEEDS
from ..rungs import RUNGS, Rung
from .causes import ROUNDING_CAUSES
from .pairs import DIFFERENT, EQUIVALENT, IDENTICAL, INCONCLUSIVE, LEVELS

MARGIN_SHARE = 0.05  # of the return above a random policy's
SMALLEST_MARGIN = 1e-6
LEVEL = 0.05  # of the tests on a rung, all pairs together


def margin_of(final_return: float, random_return: float, chosen: float | None) -> float:
    """Choose the largest difference of returns that counts as equal."""
    if chosen is not None:
        return chosen
    return max(MARGIN_SHARE * abs(final_return - random_return), SMALLEST_MARGIN)


def verdict(
    pairs: Sequence[JSON], backends: Sequence[str], num_updates: int, arithmetic: str
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
        count = numbers.capitalized(numbers.names(backends, total=len(backends)))
        return {
            "level": level,
            "sentence": f"{count} learning curves and final parameters are bitwise identical over "
            f"{counted(num_updates, 'update')}.",
        }
    worst = [pair for pair in pairs if pair["level"] == level]
    decisive = max(worst, key=lambda pair: pair["max_abs_param_difference"])
    groups = _groups(pairs, backends)
    equal = [group for group in groups if len(group) > 1]
    causes = {cause["name"] for pair in worst for cause in pair["causes"]}
    only_rounding = causes <= ROUNDING_CAUSES | {"compilation"}
    heads = {
        EQUIVALENT: "Not bitwise identical, but equivalent.",
        INCONCLUSIVE: "Not bitwise identical, and too few seeds for a verdict.",
        DIFFERENT: "Different.",
    }
    if only_rounding and level != DIFFERENT:
        heads[level] = _rounding(worst, groups, level)
    parts = [heads[level], decisive["sentence"]]
    if equal:
        names = "; ".join(" = ".join(map(libraries.title, group)) for group in equal)
        parts.append(f"Bitwise identical: {names}.")
    if arithmetic != "canonical" and only_rounding:
        parts.append("--arithmetic canonical uses the same order of summation in all libraries.")
    return {"level": level, "sentence": " ".join(parts)}


def _rounding(worst: Sequence[JSON], groups: Sequence[Sequence[str]], level: str) -> str:
    """Say which libraries round differently, and what became of the returns."""
    most = max(groups, key=len)
    others = groups if len(most) == 1 else [group for group in groups if group is not most]
    names = [libraries.title(name) for group in others for name in group]
    rounds = f"{numbers.listed(names)} round{'s' if len(names) == 1 else ''} differently"
    if level == EQUIVALENT:
        return f"{rounds}; the returns are equivalent."
    equal = all(pair["returns_level"] == "equal" for pair in worst)
    returns = "returns unchanged" if equal else "returns changed"
    needed = [pair["seeds_needed"] for pair in worst]
    advice = "more seeds may not suffice" if None in needed else f"use about {max(needed):,} seeds"
    if any(pair["p_value"] is None for pair in worst):
        advice = f"use at least {MIN_SEEDS} seeds"
    return f"{rounds}; {returns}; {advice} for a statistical verdict."


def _groups(pairs: Sequence[JSON], backends: Sequence[str]) -> list[list[str]]:
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


def ladder(rungs: Mapping[str, JSON]) -> list[JSONDict]:
    """Say what each rung explains of the differences that the rung before it shows.

    Args:
      rungs: for each rung that was run, by name: `pairs` and `backends` as in `comparison.json`.

    Returns:
      The field `ladder` of `comparison.json`, all rungs in order. `largest` has the largest
      difference of two libraries' final returns and areas under the curve, with intervals, and
      the smallest p-value of no difference of areas, corrected for the number of pairs.
      `explained` has a `sentence` and `share`, the part of the previous rung's difference of areas
      that is gone; None where the seeds' noise hides that difference.
    """
    entries: list[JSONDict] = []
    before: JSONDict | None = None
    for rung in RUNGS:
        trained = rungs.get(rung.name)
        entry: JSONDict = {"rung": rung.name, "title": rung.title, "run": trained is not None}
        if trained is None:
            entries.append({**entry, "pairs": None, "backends": None, "explained": None})
            continue
        pairs = [{k: v for k, v in pair.items() if k != "divergence"} for pair in trained["pairs"]]
        largest = {
            "return": _largest(pairs, "return_difference"),
            "area": _largest(pairs, "area_difference"),
            "area_p_value": _smallest_p_value(pairs),
        }
        share, explained = _share(rung, largest["area"], before)
        sentence = " ".join(filter(None, (_sizes(largest), explained, _rest(pairs))))
        entries.append(
            {
                **entry,
                "pairs": pairs,
                "backends": trained["backends"],
                "largest": largest,
                "explained": {"sentence": sentence, "share": share},
            }
        )
        before = largest
    return entries


def _largest(pairs: Sequence[JSON], name: str) -> JSONDict | None:
    """Give the largest paired difference, positive, with its interval."""
    known = [pair[name] for pair in pairs if pair[name] is not None]
    if not known:
        return None
    largest = max(known, key=lambda interval: abs(interval["mean"]))
    if largest["mean"] >= 0 or largest["low"] is None:
        return {**largest, "mean": abs(largest["mean"])}
    return {"mean": -largest["mean"], "low": -largest["high"], "high": -largest["low"]}


def _smallest_p_value(pairs: Sequence[JSON]) -> float | None:
    """Give the corrected p-value of no difference of areas; None if none is tested.

    Pairs with the same difference, as of libraries that are bitwise identical, are one test.
    """
    tests = {
        abs(pair["area_difference"]["mean"]): pair["area_p_value"]
        for pair in pairs
        if not pair["identical"] and pair["area_p_value"] is not None
    }
    return float(holm(list(tests.values())).min()) if tests else None


def _sizes(largest: JSON) -> str:
    titles = {"return": "final returns", "area": "areas under the curve"}
    known = {title: largest[name] for name, title in titles.items() if largest[name] is not None}
    equal = [title for title, size in known.items() if not any(size.values())]
    parts = [
        f"{title} differ by up to {numbers.with_interval(size, value='mean')}"
        for title, size in known.items()
        if title not in equal
    ]
    if equal:  # without an interval, seeds may differ and their mean not
        tested = all(known[title]["low"] is not None for title in equal)
        parts.append(f"{' and '.join(equal)} are equal{'' if tested else ' on average'}")
    return f"{numbers.capitalized(', '.join(parts))}." if parts else ""


def _share(rung: Rung, now: JSON | None, last: JSON | None) -> tuple[float | None, str]:
    """Compare the largest difference of areas with that of the last rung."""
    before = last and last["area"]
    if now is None or last is None or before is None or before["mean"] == 0:
        return None, ""
    if last["area_p_value"] is None or last["area_p_value"] >= LEVEL:
        return None, (
            "On the previous rung, areas differ by no more than the noise of the seeds, so no "
            f"difference can be attributed to {rung.cause}."
        )
    share = max(0.0, 1 - now["mean"] / before["mean"])
    return share, (
        f"{100 * share:.0f} % of the previous rung's difference of areas comes from {rung.cause}."
    )


def _rest(pairs: Sequence[JSON]) -> str:
    left = [pair for pair in pairs if not pair["identical"]]
    if not left:
        return "All libraries are bitwise identical: no difference remains."
    first = max(left, key=lambda pair: pair["max_abs_param_difference"])
    one, other = map(libraries.title, first["backends"])
    causes = ", ".join(f"{cause['name']} ({cause['where']})" for cause in first["causes"])
    largest = numbers.size(first["max_abs_param_difference"])
    return (
        f"Remaining: {len(left)} of {len(pairs)} pairs of libraries differ; the largest difference "
        f"of a parameter, {largest}, is between {one} and {other}: {causes}."
    )
