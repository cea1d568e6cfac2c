"""Judge one pair of libraries: identical, equivalent, different, or too few seeds to say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import libraries
from ..statistics import format_return
from ..statistics.aggregate import probability_of_improvement
from ..statistics.curves import area_under_curve
from ..statistics.estimate import MIN_SEEDS, Bounds, Estimate
from ..statistics.paired import equivalence, paired_difference
from .causes import Cause, find_causes
from .divergence import divergence
from .identity import Trace, compare_traces
from .results import Record
from .rungs import Rung

IDENTICAL, EQUIVALENT, INCONCLUSIVE, DIFFERENT = LEVELS = (
    "identical",
    "equivalent",
    "inconclusive",
    "different",
)


# Causes that make two trainings compute different functions, not only round differently.
FUNCTION_CAUSES = (
    "seed", "environment", "hyperparameters", "dtype", "weights", "network", "gradient", "optimizer",
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
    """

    names: tuple[str, str]
    records: tuple[Record, Record]
    rung: Rung
    margin: float
    bounds: Bounds | None = None

    def judge(self) -> dict[str, Any]:
        """Compare bits, outputs and returns.

        Returns:
          The entry of `pairs` in `comparison.json`, with `divergence` (see there).
        """
        one, other = self.records
        traces = [Trace(metrics=r.metrics, params=r.params) for r in self.records]
        steps_per_update = one.facts["steps_per_update"]
        found = compare_traces(dict(zip(self.names, traces, strict=True)), steps_per_update)
        distance = divergence(one, other)
        causes = [] if found["identical"] else self._causes()
        returns = [np.asarray(r.facts["final_returns"], np.float64) for r in self.records]
        result = {
            "backends": list(self.names),
            "identical": found["identical"],
            "first_difference": found["first_difference"],
            "first_metric_difference": found["first_metric_difference"],
            "max_abs_param_difference": max(distance["params_abs"]),
            "max_rel_param_difference": max(distance["params_rel"]),
            "max_abs_output_difference": max(distance["outputs_abs"]),
            "causes": causes,
            "margin": self.margin,
            "divergence": distance,
            **self._returns(returns),
        }
        level = self._level(result)
        return {**result, "level": level, "sentence": _sentence(self, result, level)}

    def _causes(self) -> list[Cause]:
        one, other = self.records
        causes = find_causes(one, other, weights_shared=self.rung.shared_weights)
        return causes or [
            {
                "name": "compilation",
                "where": "the training program",
                "evidence": "keys, weights, outputs, gradients and optimizer are equal when they "
                "are compiled one by one; the difference appears in the compiled training only",
            }
        ]

    def _returns(self, returns: list[np.ndarray]) -> dict[str, Any]:
        areas = [area_under_curve(record.metrics["episode_return"]) for record in self.records]
        whole = all(np.isfinite(values).all() for values in returns)
        equal = whole and bool((returns[0] == returns[1]).all())
        tested = equivalence(*returns, self.margin, bounds=self.bounds) if whole else None
        return {
            "return_difference": _as_json(tested.difference if tested else None),
            "area_difference": _as_json(
                paired_difference(*areas, self.bounds)
                if all(np.isfinite(values).all() for values in areas)
                else None
            ),
            "returns_level": "equal" if equal else tested.level if tested else DIFFERENT,
            "p_value": tested.p_value if tested else None,
            "seeds_needed": tested.seeds_needed if tested else None,
            "probability_of_improvement": (
                _estimate(probability_of_improvement(*returns)) if whole else None
            ),
        }

    def _level(self, result: Mapping[str, Any]) -> str:
        if result["identical"]:
            return IDENTICAL
        if result["returns_level"] == DIFFERENT or self._functions_differ(result):
            return DIFFERENT
        few = len(self.records[0].facts["final_returns"]) < MIN_SEEDS
        if few or result["returns_level"] == INCONCLUSIVE:
            return INCONCLUSIVE
        return EQUIVALENT

    def _functions_differ(self, result: Mapping[str, Any]) -> bool:
        """Whether equal weights give outputs that differ by more than rounding."""
        if not self.rung.shared_weights:
            return False
        names = {cause["name"] for cause in result["causes"]}
        return not names.isdisjoint(FUNCTION_CAUSES)


def _as_json(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {"mean": estimate.value, "low": estimate.low, "high": estimate.high}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _sentence(pair: Pair, result: Mapping[str, Any], level: str) -> str:
    one, other = map(libraries.title, pair.names)
    num_updates = pair.records[0].facts["num_updates"]
    num_seeds = len(pair.records[0].facts["final_returns"])
    if level == IDENTICAL:
        return f"{one} and {other} are equal bit for bit over {num_updates:,} updates."
    where = _where(result)
    size = (
        f"parameters differ by up to {result['max_abs_param_difference']:.2g}, outputs by up to "
        f"{result['max_abs_output_difference']:.2g}"
    )
    head = f"{other} diverges from {one} at {where}; {size}"
    found = result["return_difference"]
    if found is None:
        return f"{head}; the returns of a seed are NaN or infinite."
    by = format_return(-found["mean"])
    if num_seeds < MIN_SEEDS:
        return (
            f"{head}. Its returns differ by {by} on average over {num_seeds} "
            f"seed{'s' if num_seeds > 1 else ''}; {MIN_SEEDS} seeds are needed to judge returns."
        )
    interval = f"[{format_return(-found['high'])}, {format_return(-found['low'])}]"
    margin = format_return(pair.margin)
    change = f"its return differs by {by} {interval}"
    if level == DIFFERENT and result["returns_level"] != DIFFERENT:
        names = ", ".join(cause["name"] for cause in result["causes"])
        return f"{head}: more than rounding ({names}); {change}."
    if level == DIFFERENT:
        return f"{head}; {change}, not within the margin of ±{margin}."
    if level == EQUIVALENT:
        return f"{head}; {change}, within the margin of ±{margin}."
    needed = result["seeds_needed"]
    advice = f"about {needed:,} seeds would do" if needed else "more seeds alone may not settle it"
    return (
        f"{head}; {change}, which {num_seeds} seeds cannot tell from the margin of ±{margin}: "
        f"{advice}."
    )


def _where(result: Mapping[str, Any]) -> str:
    params = result["first_difference"]
    place = params or result["first_metric_difference"]
    kind, things = ("leaf", "arrays") if params else ("metric", "metrics")
    more = place["num_differing"] - 1
    rest = f" and {more:,} more {things}" if more else ""
    return f"update {place['update']:,} in {place[kind]}{rest}"
