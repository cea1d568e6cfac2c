"""Judge one pair of libraries: identical, equivalent, different, or too few seeds to say."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...backends import libraries
from ...core.errors import counted
from ...core.records import JSON, JSONDict
from ...runs.identity import Trace, compare_traces
from ...shared.pages import numbers
from ...shared.statistics import format_return
from ...shared.statistics.curves import area_under_curve
from ...shared.statistics.estimate import Bounds, Estimate, probability_of_improvement
from ...shared.statistics.paired import difference_p_value, equivalence, holm, paired_difference
from ...shared.statistics.returns import MIN_SEEDS
from ..results import Record
from ..rungs import Rung
from .causes import ROUNDING_CAUSES, Cause, divergence, find_causes

LEVELS = list(numbers.LEVELS)  # from the best to the worst
IDENTICAL, EQUIVALENT, INCONCLUSIVE, DIFFERENT = LEVELS


# Causes that make two trainings compute different functions, not only round differently.
FUNCTION_CAUSES = (
    "seed", "environment", "hyperparameters", "dtype", "weights", "network", "gradient",
    "optimizer", "update",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two trainings of one environment on one rung.

    Attributes:
      names: the libraries.
      records: their results.
      rung: what they share.
      margin: the largest difference of returns that counts as equal.
      bounds: the lowest and highest possible return, or None.
      update_cause: finds a cause in the agent's own update, larger than rounding if
        `functions_only`; None does not search.
    """

    names: tuple[str, str]
    records: tuple[Record, Record]
    rung: Rung
    margin: float
    bounds: Bounds | None = None
    update_cause: Callable[..., Cause | None] | None = None

    @cached_property
    def identity(self) -> JSONDict:
        """Whether all bits are equal, and where they differ first."""
        traces = [Trace(metrics=r.metrics, params=r.params) for r in self.records]
        steps_per_update = self.records[0].facts["steps_per_update"]
        return compare_traces(dict(zip(self.names, traces, strict=True)), steps_per_update)

    @property
    def returns(self) -> tuple[np.ndarray, np.ndarray]:
        """The final returns of both libraries, `[S]` each."""
        one, other = (np.asarray(r.facts["final_returns"], np.float64) for r in self.records)
        return one, other

    @cached_property
    def p_value(self) -> float | None:
        """Of no difference of the returns; None if it is not tested.

        It is not tested where all bits are equal, a return is not finite, or seeds are too few.
        """
        if self.identity["identical"] or not np.isfinite(np.concatenate(self.returns)).all():
            return None
        return difference_p_value(*self.returns)

    def judge(self, corrected: float | None = None, num_tests: int = 1) -> JSONDict:
        """Compare bits, outputs and returns.

        Args:
          corrected: the p-value of no difference, corrected for the pairs that are judged with this
            one; None takes `p_value`.
          num_tests: how many tests it is corrected for.

        Returns:
          The entry of `pairs` in `comparison.json`, with `divergence` (see there).
        """
        one, other = self.records
        identity = self.identity
        distance = divergence(one, other)
        causes = [] if identity["identical"] else self._causes()
        result = {
            "backends": list(self.names),
            "identical": identity["identical"],
            "first_difference": identity["first_difference"],
            "first_metric_difference": identity["first_metric_difference"],
            "max_abs_param_difference": max(distance["params_abs"]),
            "max_rel_param_difference": max(distance["params_rel"]),
            "max_abs_output_difference": max(distance["outputs_abs"]),
            "causes": causes,
            "margin": self.margin,
            "divergence": distance,
            **self._returns(corrected),
            "num_tests": num_tests,
        }
        level = self._level(result)
        return {**result, "level": level, "sentence": _sentence(self, result, level)}

    def _causes(self) -> list[Cause]:
        one, other = self.records
        causes = find_causes(one, other, self.rung)
        is_rounding = all(cause["name"] in ROUNDING_CAUSES for cause in causes)
        if is_rounding and self.update_cause is not None:
            cause = self.update_cause(functions_only=bool(causes))
            causes = [*([cause] if cause else []), *causes]
        return causes or [
            {
                "name": "compilation",
                "where": "the training program",
                "evidence": "keys, weights, outputs, gradients and optimizer are equal when they "
                "are compiled one by one; the difference appears in the compiled training only",
            }
        ]

    def _returns(self, corrected: float | None) -> JSONDict:
        one, other = self.returns
        areas = [area_under_curve(record.metrics["episode_return"]) for record in self.records]
        known = all(np.isfinite(values).all() for values in areas)
        whole = bool(np.isfinite(np.concatenate([one, other])).all())
        equal = whole and bool((one == other).all())
        tested = (
            equivalence(one, other, self.margin, bounds=self.bounds, corrected=corrected)
            if whole
            else None
        )
        return {
            "return_difference": tested and _as_json(tested.difference),
            "area_difference": (
                _as_json(paired_difference(areas[0], areas[1], self.bounds)) if known else None
            ),
            "area_p_value": difference_p_value(areas[0], areas[1]) if known else None,
            "returns_level": "equal" if equal else tested.level if tested else DIFFERENT,
            "equivalence_interval": tested and tested.tested,
            "p_value": tested and tested.p_value,
            "difference_p_value": self.p_value,
            "corrected_p_value": self.p_value if corrected is None else corrected,
            "seeds_needed": tested and tested.seeds_needed,
            "probability_of_improvement": (
                _as_json(probability_of_improvement(one, other), "value") if whole else None
            ),
        }

    def _level(self, result: JSON) -> str:
        if result["identical"]:
            return IDENTICAL
        causes = {cause["name"] for cause in result["causes"]}
        # The same weights give outputs that differ by more than rounding.
        functions_differ = self.rung.shared_weights and not causes.isdisjoint(FUNCTION_CAUSES)
        if functions_differ or result["returns_level"] == DIFFERENT:
            return DIFFERENT
        few = len(self.records[0].facts["final_returns"]) < MIN_SEEDS
        if few or result["returns_level"] == INCONCLUSIVE:
            return INCONCLUSIVE
        return EQUIVALENT


def judge_together(pairs: Sequence[Pair]) -> list[JSONDict]:
    """Judge pairs so that the level of *different* is over all of them.

    Six pairs at 5 % each find a difference where none is in one comparison of six. The p-values of
    no difference are therefore corrected by Holm's method. Pairs that are bitwise identical are no
    tests, and pairs with equal returns on both sides, as of three libraries of which two are equal
    bit for bit, are one test. Intervals are those of one pair.

    Args:
      pairs: of one rung, in all environments.

    Returns:
      Their entries in `comparison.json`, in order.
    """
    sides = [frozenset(tuple(returns.tolist()) for returns in pair.returns) for pair in pairs]
    tests: dict[frozenset[tuple[float, ...]], float] = {}
    for key, pair in zip(sides, pairs, strict=True):
        if pair.p_value is not None:
            tests[key] = pair.p_value
    corrected = dict(zip(tests, holm(list(tests.values())).tolist(), strict=True))
    entries = []
    for key, pair in zip(sides, pairs, strict=True):
        tested = pair.p_value is not None
        entries.append(pair.judge(corrected[key] if tested else None, len(tests) if tested else 0))
    return entries


def _as_json(estimate: Estimate, name: str = "mean") -> JSONDict:
    return {name: estimate.value, "low": estimate.low, "high": estimate.high}


def _sentence(pair: Pair, result: JSON, level: str) -> str:
    one, other = map(libraries.title, pair.names)
    if level == IDENTICAL:
        num_updates = pair.records[0].facts["num_updates"]
        return f"{one} and {other} are bitwise identical over {counted(num_updates, 'update')}."
    names: list[str] = [cause["name"] for cause in result["causes"]]
    causes = ", ".join(CAUSES.get(name, name) for name in names)
    return (
        f"{other} diverges from {one} at {_where(result)}: {causes}. Parameters differ by up to "
        f"{numbers.size(result['max_abs_param_difference'])}, outputs by up to "
        f"{numbers.size(result['max_abs_output_difference'])}; {_return_clause(pair, result)}."
    )


# What a cause is called in a sentence.
CAUSES: dict[str, str] = {
    "seed": "different random keys",
    "environment": "different environments",
    "hyperparameters": "different hyperparameters",
    "dtype": "a different dtype",
    "weights": "different initial weights",
    "initializer": "a different initializer",
    "draw": "a different draw of the initial weights",
    "network": "the networks compute different functions",
    "gradient": "the networks have different gradients",
    "optimizer": "a different optimizer",
    "update": "the algorithms compute different updates",
    "summation_order": "a different order of summation",
    "leaf_order": "a different order of parameters in the optimizer",
    "compilation": "a difference that appears only in the compiled training",
}


def _return_clause(pair: Pair, result: JSON) -> str:
    difference = result["return_difference"]
    if difference is None:
        return "a seed's return is NaN or infinite"
    if result["returns_level"] == "equal":
        return "the final returns of all seeds are equal"
    num_seeds = len(pair.records[0].facts["final_returns"])
    change = f"the return differs by {numbers.returns(-difference['mean'])}"
    if num_seeds < MIN_SEEDS:
        return (
            f"{change} over {counted(num_seeds, 'seed')}; at least {MIN_SEEDS} "
            "are needed for a test"
        )
    margin = f"the margin of ±{format_return(pair.margin)}"
    if result["returns_level"] == DIFFERENT:  # by the test of no difference, with its interval
        percent, (low, high) = 95, (difference["low"], difference["high"])
    else:  # by the two one-sided tests
        percent, (low, high) = 90, result["equivalence_interval"]
    change += f", {percent} % interval [{numbers.returns(-high)}, {numbers.returns(-low)}]"
    if result["returns_level"] == EQUIVALENT:
        return f"{change}, within {margin}"
    chance = f"p = {result['corrected_p_value']:.2g}"
    if result["num_tests"] > 1:
        chance += f", corrected for {result['num_tests']} tests"
    if result["returns_level"] == DIFFERENT:
        return f"{change}, not within {margin} ({chance})"
    needed = result["seeds_needed"]
    advice = f"about {needed:,} are needed" if needed else "more may not decide it either"
    seeds = counted(num_seeds, "seed")
    unclear = f"{change}: {seeds} do not decide whether it is within {margin}, {advice}"
    # The interval is of this pair alone and may exclude 0 where the test over all pairs does not.
    return f"{unclear} ({chance})" if low > 0 or high < 0 else unclear


def _where(result: JSON) -> str:
    params = result["first_difference"]
    place = params or result["first_metric_difference"]
    kind, thing = ("leaf", "array") if params else ("metric", "metric")
    more = place["num_differing"] - 1
    rest = f" and {counted(more, f'more {thing}')}" if more else ""
    return f"update {place['update']:,} in {place[kind]}{rest}"
