"""Play greedy episodes with the agents of a training, during and after it; keep the best state."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from ...core.experiment import evaluation_key
from ...core.loop.checkpoint import Checkpoints
from ...core.loop.episode import Episodes
from ...core.loop.state import RunnerState
from ...core.records import JSON
from ...core.types import PyTree
from ...shared.machine.files import write_json
from ...shared.statistics.curves import finite_mean
from ..plan import Plan
from ..resume.binding import binding
from ..storage.records import BEST, recorded
from .schedule import evaluation_period, measure

# The return on the levels of the training, and on others if it has levels.
METRIC, UNSEEN = "eval_return", "eval_return_unseen"
# Numbers of the keys for evaluations, see `core.experiment.evaluation_key`; those of `triglot
# evaluate` and `render` are the two between.
AFTER_TRAINING, DURING_TRAINING, VIDEO = 0, 3, 4


def compile_play(plan: Plan, runner_states: RunnerState) -> None:
    """Compile the evaluations of a training before they begin; shapes of the states suffice."""
    for experiment in plan.experiment.by_levels:
        experiment.compile_evaluation(runner_states, num_episodes=plan.options.eval_episodes)


def play_after_training(plan: Plan, state: RunnerState) -> list[Episodes]:
    """Play the greedy episodes `[S, E]` with which a training ends; see `Experiment.by_levels`."""
    key, count = key_of_kind(plan, AFTER_TRAINING), plan.options.eval_episodes
    keys = jax.random.split(key, plan.options.num_seeds)
    return [
        experiment.evaluate(state, num_episodes=count, keys=keys)
        for experiment in plan.experiment.by_levels
    ]


def key_of_kind(plan: Plan, kind: int) -> jax.Array:
    """Make the key of one kind of evaluation, which is one of the constants above."""
    return evaluation_key(plan.experiment.key, plan.options.num_seeds, kind)


def best_checkpoints(folder: Path) -> Checkpoints:
    """Give the place of a run's best checkpoint.

    Args:
      folder: the run directory.
    """
    return Checkpoints(folder / "best", keep=1)


class Best:
    """The best checkpoint of a run, by the mean over seeds of the evaluated return.

    Args:
      folder: the run directory, whose best return so far is read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        record = recorded(folder, BEST) if best_checkpoints(folder).numbers() else None
        self.return_mean: float | None = None if record is None else float(record["return_mean"])

    def offer(
        self, num_updates: int, returns: np.ndarray, state: PyTree, of: JSON | None = None
    ) -> bool:
        """Keep a state if its return is higher than all before; equal ones keep the earlier.

        Args:
          num_updates: updates done.
          returns: mean evaluated return of each seed, `[S]`.
          state: the runner states `[S, ...]`.
          of: what they belong to, see `resume.binding`.

        Returns:
          Whether it was kept.

        Raises:
          CannotWrite: if it cannot be written; the one before is kept.
        """
        mean = float(returns.mean())
        if not mean > (-np.inf if self.return_mean is None else self.return_mean):
            return False
        checkpoints = best_checkpoints(self._folder)
        # After a kill between the two writes below, or of an interrupted run that was continued.
        for number in checkpoints.numbers():
            if number >= num_updates:
                shutil.rmtree(checkpoints.path(number))
        checkpoints.save(num_updates, state, of)
        content = {"num_updates": num_updates, "return_mean": mean, "return_per_seed": returns}
        write_json(self._folder / BEST, content)
        self.return_mean = mean
        return True


class Evaluator:
    """Evaluates a training at fixed updates, keeps the best state and says when to stop.

    Its random keys are folded from the run's seed and the update, so that evaluations change no
    number of the training, and a resumed training repeats them.

    Args:
      plan: the training.
      evaluated: called after each evaluation, with the updates done and the states `[S, ...]`.

    Attributes:
      period: updates between two evaluations; None without `--eval-every`.
      seconds: time of the evaluations so far.
      last_return: mean over seeds in the last evaluation; None before the first.
      reached: where the return has reached `--stop-at`: `return`, `measure` (which return it is)
        and `stop_at`; None before.
    """

    def __init__(self, plan: Plan, evaluated: Callable[[int, RunnerState], None]) -> None:
        self.period = evaluation_period(plan.options, plan.experiment.steps_per_update)
        self.seconds = 0.0
        self.last_return: float | None = None
        self.reached: JSON | None = None
        self._plan, self._evaluated = plan, evaluated
        self._names = (METRIC, UNSEEN)[: len(plan.experiment.by_levels)]
        self._best = Best(plan.out)

    def measured(
        self, metrics: dict[str, np.ndarray], num_updates: int, state: RunnerState | None
    ) -> dict[str, np.ndarray]:
        """Evaluate if it is due, and keep the state if it is the best.

        Args:
          metrics: of a chunk, `[S, updates]` by name.
          num_updates: updates done at its end.
          state: `[S, ...]`, then; None evaluates nothing, such as a training that failed.

        Returns:
          The metrics; with `--eval-every` also `eval_return`, and `eval_return_unseen` if there are
          levels, NaN where nothing was evaluated.
        """
        if self.period is None:
            self._stop_at(finite_mean(metrics["episode_return"]))
            return metrics
        nothing = np.full_like(metrics["episode_return"], np.nan)
        evaluated = {name: nothing.copy() for name in self._names}
        if state is not None and num_updates % self.period == 0:
            start = time.perf_counter()
            for name, returns in self._evaluate(num_updates, state).items():
                evaluated[name][:, -1] = returns
            self.last_return = float(evaluated[METRIC][:, -1].mean())
            self._stop_at(evaluated[METRIC][:, -1])
            self.seconds += time.perf_counter() - start
        return {**metrics, **evaluated}

    def _evaluate(self, num_updates: int, state: RunnerState) -> dict[str, np.ndarray]:
        key = jax.random.fold_in(key_of_kind(self._plan, DURING_TRAINING), num_updates)
        options, experiment = self._plan.options, self._plan.experiment
        keys = jax.random.split(key, options.num_seeds)
        means = experiment.greedy_returns(state, options.eval_episodes, keys)
        returns: dict[str, np.ndarray] = dict(zip(self._names, means, strict=True))
        state = experiment.whole(state)
        self._best.offer(num_updates, returns[METRIC], state, binding(self._plan))
        self._evaluated(num_updates, state)
        return returns

    def _stop_at(self, returns: np.ndarray) -> None:
        mean, options = float(returns.mean()), self._plan.options
        if options.stop_at is not None and mean >= options.stop_at:
            name = measure(options)
            self.reached = {"return": mean, "measure": name, "stop_at": options.stop_at}
