"""The results of a sweep: one outcome per setting, and their ranking."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from ..jobs.ledger import Ledger
from ..report.statistics.curves import finite_mean
from ..report.statistics.estimate import Bounds, Estimate, interquartile_mean, mean
from .batches import Batch, by_pair
from .learning import Learning
from .plan import SweepPlan
from .training import ARRAYS

FINISHED, STOPPED, DIVERGED = "finished", "stopped", "diverged"
# Bootstrapping takes milliseconds per setting, so the worse ones have no interval of their
# interquartile mean.
MAX_BOOTSTRAPPED = 100


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one setting.

    Attributes:
      number: of the setting, from 0.
      values: the swept values by name.
      env: its environment.
      num_steps: environment steps per seed.
      stopped: whether successive halving stopped it.
      finite: whether each seed's parameters are finite, bool `[S]`.
      training: return of each seed's recent training episodes, `[S]`; NaN if none ended.
      final: greedy return of each seed after training, `[S]`; None if it was not evaluated.
      curves: return in training, `[S, P]`; NaN where no episode ended.
      env_steps: environment steps at each point, `[P]`.
    """

    number: int
    values: Mapping[str, Any]
    env: str
    num_steps: int
    stopped: bool
    finite: np.ndarray
    training: np.ndarray
    final: np.ndarray | None
    curves: np.ndarray
    env_steps: np.ndarray

    @property
    def returns(self) -> np.ndarray:
        """Return by which the setting is ranked, `[S]`; NaN for a seed that diverged."""
        measured = self.training if self.final is None else self.final
        return np.where(self.finite, measured, np.nan)

    @property
    def known(self) -> np.ndarray:
        """Returns that are finite numbers."""
        return self.returns[np.isfinite(self.returns)]

    @property
    def num_diverged(self) -> int:
        """Number of seeds with NaN or infinite parameters."""
        return int((~self.finite).sum())

    @property
    def score(self) -> float:
        """Mean return over seeds; -inf if a seed diverged, NaN if no seed has a return."""
        return -math.inf if self.num_diverged else float(finite_mean(self.returns))

    @property
    def training_score(self) -> float:
        """Mean return of training episodes, by which successive halving decides; as `score`."""
        return -math.inf if self.num_diverged else float(finite_mean(self.training))

    def status(self, seed: int) -> str:
        """What became of one seed."""
        if not self.finite[seed]:
            return DIVERGED
        return STOPPED if self.stopped else FINISHED

    def estimate(self, bounds: Bounds | None) -> Estimate | None:
        """Estimate the mean return with its interval; None without a return."""
        return mean(self.known, bounds) if len(self.known) else None

    def interquartile_mean(self, bounds: Bounds | None) -> Estimate | None:
        """Estimate the interquartile mean; None without a return."""
        return interquartile_mean(self.known, bounds) if len(self.known) else None


def outcomes(plan: SweepPlan, ledger: Ledger, stages: Sequence[Sequence[Batch]]) -> list[Outcome]:
    """Read the outcome of every setting from the last stage in which it was trained.

    Args:
      plan: the sweep.
      ledger: its folder.
      stages: the batches that are done, stage by stage.
    """
    arrays = {
        batch.name: load_file(ledger.folder(batch.name) / ARRAYS)
        for stage in stages
        for batch in stage
    }
    last: dict[tuple[int, int], tuple[Batch, int]] = {}
    for stage in stages:
        last |= by_pair(stage)
    found = []
    for number, values in enumerate(plan.settings):
        rows = [last[number, seed] for seed in range(plan.options.num_seeds)]
        group = plan.groups[rows[0][0].group]

        def column(name: str, rows: Sequence[tuple[Batch, int]] = rows) -> np.ndarray:
            return np.stack([arrays[batch.name][name][row] for batch, row in rows])

        learning = Learning(group.num_updates, column("returns"), column("episodes"))
        batch = rows[0][0]
        points = learning.ends() <= batch.stop
        steps = group.trainer.steps_per_update
        found.append(
            Outcome(
                number=number,
                values=values,
                env=plan.env_of(number),
                num_steps=batch.stop * steps,
                stopped=not batch.is_last,
                finite=column("finite"),
                training=column("recent"),
                final=column("final") if "final" in arrays[batch.name] else None,
                curves=learning.curves()[:, points],
                env_steps=learning.ends()[points] * steps,
            )
        )
    return found


def ranked(found: Sequence[Outcome]) -> list[Outcome]:
    """Sort the settings of one environment, the best first.

    Those that were trained longer come first; then the mean return decides. A setting with a seed
    that diverged comes after those without, one without any return last.
    """

    def key(one: Outcome) -> tuple[Any, ...]:
        unknown = math.isnan(one.score)
        steps = -one.num_steps if one.stopped else 0
        return (one.stopped, steps, unknown, 0.0 if unknown else -one.score, one.number)

    return sorted(found, key=key)


def bounds_by_env(plan: SweepPlan) -> dict[str, Bounds]:
    """The lowest and highest possible return of each environment."""
    return {group.options.env: group.bounds for group in plan.groups}


def as_records(plan: SweepPlan, found: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Describe each setting for JSON and tables, ranked within its environment."""
    bounds = bounds_by_env(plan)
    records = []
    for env in plan.envs:
        order = ranked([one for one in found if one.env == env])
        for rank, one in enumerate(order, 1):
            iqm = one.interquartile_mean(bounds.get(env)) if rank <= MAX_BOOTSTRAPPED else None
            estimate = one.estimate(bounds.get(env))
            training = one.training[np.isfinite(one.training)]
            records.append(
                {
                    "rank": rank,
                    "setting": one.number + 1,
                    "env": env,
                    "values": dict(one.values),
                    "status": STOPPED if one.stopped else FINISHED,
                    "steps": one.num_steps,
                    "return": None if estimate is None else estimate.as_json(),
                    "iqm": None if iqm is None else iqm.as_json(),
                    "training_return": float(training.mean()) if len(training) else None,
                    "num_diverged": one.num_diverged,
                    "returns": one.returns,
                    "training_returns": one.training,
                    "statuses": [one.status(seed) for seed in range(len(one.finite))],
                }
            )
    return records
