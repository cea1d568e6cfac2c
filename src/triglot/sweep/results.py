"""The results of a sweep: one outcome per setting, their ranking, and their tables."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from safetensors.numpy import load_file

from ..core.errors import counted
from ..core.records import JSON, Values
from ..runs.jobs.ledger import Ledger
from ..shared.pages import numbers
from ..shared.pages.tables import (
    GAP,
    GAP_NOTE,
    Column,
    Table,
    estimated,
    gap_column,
    picked_gap,
    spread,
    spread_column,
)
from ..shared.statistics.curves import finite_mean
from ..shared.statistics.estimate import Bounds, interquartile_mean, mean
from .batches import Batch, by_pair
from .learning import Learning
from .plan import SweepPlan
from .training import ARRAYS, FINAL, UNSEEN

SHOWN = 20  # settings that a terminal shows
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
      unseen: as `final`, on levels that are held out; None if the environment has no levels.
    """

    number: int
    values: Values
    env: str
    num_steps: int
    stopped: bool
    finite: np.ndarray
    training: np.ndarray
    final: np.ndarray | None
    curves: np.ndarray
    env_steps: np.ndarray
    unseen: np.ndarray | None = None

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
    def gap(self) -> float | None:
        """Generalization gap: by how much the mean return on unseen levels is less."""
        if self.final is None or self.unseen is None:
            return None
        gap = float(finite_mean(np.where(self.finite, self.final - self.unseen, np.nan)))
        return gap if math.isfinite(gap) else None

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


def outcomes(plan: SweepPlan, ledger: Ledger, stages: Sequence[Sequence[Batch]]) -> list[Outcome]:
    """Read the outcome of every setting from the last stage in which it was trained.

    Args:
      plan: the sweep.
      ledger: its folder.
      stages: the batches that are done, stage by stage.
    """
    arrays = {
        batch.name: load_file(ledger.results(batch.name) / ARRAYS)
        for stage in stages
        for batch in stage
    }
    last: dict[tuple[int, int], tuple[Batch, int]] = {}
    for stage in stages:
        last |= by_pair(stage)
    result = []
    for number, values in enumerate(plan.settings):
        rows = [last[number, seed] for seed in range(plan.options.num_seeds)]
        group = plan.groups[rows[0][0].group]

        def column(name: str, rows: Sequence[tuple[Batch, int]] = rows) -> np.ndarray:
            return np.stack([arrays[batch.name][name][row] for batch, row in rows])

        learning = Learning(group.num_updates, column("returns"), column("episodes"))
        batch = rows[0][0]
        points = learning.ends() <= batch.stop
        steps = group.experiment.steps_per_update
        result.append(
            Outcome(
                number=number,
                values=values,
                env=plan.env_of(number),
                num_steps=batch.stop * steps,
                stopped=not batch.is_last,
                finite=column("finite"),
                training=column("recent"),
                final=column(FINAL) if FINAL in arrays[batch.name] else None,
                unseen=column(UNSEEN) if UNSEEN in arrays[batch.name] else None,
                curves=learning.curves()[:, points],
                env_steps=learning.ends()[points] * steps,
            )
        )
    return result


def ranked(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Sort the settings of one environment, the best first.

    Those that were trained longer come first; then the mean return decides. A setting with a seed
    that diverged comes after those without, one without any return last.
    """

    def key(outcome: Outcome) -> tuple[object, ...]:
        unknown = math.isnan(outcome.score)
        steps = -outcome.num_steps if outcome.stopped else 0
        return (outcome.stopped, steps, unknown, 0.0 if unknown else -outcome.score, outcome.number)

    return sorted(outcomes, key=key)


def bounds_by_env(plan: SweepPlan) -> dict[str, Bounds]:
    """The lowest and highest possible return of each environment."""
    return {group.options.env: group.bounds for group in plan.groups}


def as_records(plan: SweepPlan, outcomes: Sequence[Outcome]) -> list[JSON]:
    """Describe each setting for JSON and tables, ranked within its environment."""
    bounds = bounds_by_env(plan)
    records = []
    for env in plan.envs:
        order = ranked([outcome for outcome in outcomes if outcome.env == env])
        for rank, outcome in enumerate(order, 1):
            known, limits = outcome.known, bounds.get(env)
            has_iqm = len(known) and rank <= MAX_BOOTSTRAPPED
            training = outcome.training[np.isfinite(outcome.training)]
            records.append(
                {
                    "rank": rank,
                    "setting": outcome.number + 1,
                    "env": env,
                    "values": dict(outcome.values),
                    "status": STOPPED if outcome.stopped else FINISHED,
                    "steps": outcome.num_steps,
                    "return": mean(known, limits).as_json() if len(known) else None,
                    "iqm": interquartile_mean(known, limits).as_json() if has_iqm else None,
                    "training_return": float(training.mean()) if len(training) else None,
                    **_generalization(outcome),
                    "num_diverged": outcome.num_diverged,
                    "returns": outcome.returns,
                    "training_returns": outcome.training,
                    "statuses": [outcome.status(seed) for seed in range(len(outcome.finite))],
                }
            )
    return records


def trainings_table(outcomes: Sequence[Outcome]) -> Table:
    """Build the table for programs, with one row per setting and seed."""
    records = [
        {
            "setting": outcome.number + 1,
            "seed": seed,
            **_cells(outcome.values),
            "status": outcome.status(seed),
            "steps": outcome.num_steps,
            "return": None if outcome.final is None else _number(outcome.returns[seed]),
            "training_return": _number(outcome.training[seed]),
            **({} if outcome.unseen is None else {"return_unseen": _number(outcome.unseen[seed])}),
        }
        for outcome in outcomes
        for seed in range(len(outcome.finite))
    ]
    return Table(name="results", title="Trainings", columns=(), records=records)


def ranking_table(result: JSON) -> Table:
    """Build the ranking: one row per setting, the best first."""
    records = [
        {
            "rank": record["rank"],
            **_cells(record["values"]),
            "return": estimated(record["return"]) | spread(record["returns"]),
            "iqm": estimated(record["iqm"]),
            **picked_gap(record),
            "training_return": record["training_return"],
            "status": DIVERGED if record["num_diverged"] else record["status"],
            "num_diverged": record["num_diverged"],
            "steps": record["steps"],
            "setting": record["setting"],
        }
        for record in result["settings"]
    ]
    columns = [
        Column("rank", lambda row: str(row["rank"]), left=True),
        Column("return", lambda row: numbers.returns(row["return"][""])),
        *spread_column("return", result["num_seeds"]),
        *(Column(name, lambda row, n=name: row[n]) for name in result["names"]),
        Column("IQM", lambda row: numbers.returns(row["iqm"][""])),
        *gap_column(records),
    ]
    if any(
        record["status"] != "finished" or record["num_diverged"] for record in result["settings"]
    ):
        columns += [
            Column("status", lambda row: row["status"], left=True),
            Column("steps", lambda row: numbers.count(row["steps"])),
        ]
    return Table(
        name="ranking",
        title="Ranking",
        columns=tuple(columns),
        records=records,
        note=_note(result),
    )


def _note(result: JSON) -> str:
    if result["eval_episodes"]:
        text = (
            f"Greedy return after training, {counted(result['eval_episodes'], 'episode')} per "
            f"seed, mean over {counted(result['num_seeds'], 'seed')}."
        )
    else:
        seeds = counted(result["num_seeds"], "seed")
        text = f"Return of the last tenth of training, mean over {seeds}."
    text += " IQM: interquartile mean. Intervals are at 95 %, from 5 seeds on."
    if gap_column(result["settings"]):
        text += f" {GAP_NOTE}"
    if any(record["status"] == "stopped" for record in result["settings"]):
        text += " A setting that was stopped has the return of its recent training episodes."
    if any(record["num_diverged"] for record in result["settings"]):
        text += " A setting is diverged if a seed's parameters became NaN or infinite."
    return text


def _generalization(outcome: Outcome) -> JSON:
    """Describe the returns on unseen levels; empty if the environment has no levels."""
    return {} if outcome.unseen is None else {"returns_unseen": outcome.unseen, GAP: outcome.gap}


def _cells(values: Values) -> dict[str, str]:
    return {name: numbers.format_value(value) for name, value in values.items()}


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
