"""Train an agent in Python: an experiment from start to end, with the metrics of all updates."""

import time
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from ..core.agent import Agent
from ..core.environment import Environment
from ..core.errors import TriglotError, check_path
from ..core.experiment import Experiment
from ..core.host_environment import HostEnvironment
from ..core.hyper import as_hyperparams
from ..core.loop.callbacks import Callback, asks_to_stop, check_callback
from ..core.loop.chunks import Chunk
from ..core.loop.continuing import check_continued, stretched
from ..core.loop.divergence import LastFinite, absurd_parameters
from ..core.loop.population import Population
from ..core.loop.sharding import Shard
from ..core.loop.state import RunnerState
from ..core.options import has_options, option_values, replace_options
from ..core.records import Values
from ..core.types import AnyHyperparams, PyTree, as_key
from ..shared.machine.files import check_free, make_folder
from ..shared.machine.interrupt import Signalled
from .plan import check_memory
from .python import plan_of
from .result import Diverged, TrainResult
from .resume.restoring import Progress
from .train import record


def train(
    agent: Agent,
    env: Environment | HostEnvironment,
    *,
    key: jax.Array | None = None,
    total_steps: int,
    num_seeds: int = 1,
    hyper: PyTree | None = None,
    devices: int | Mesh | None = None,
    shard: Shard | None = None,
    callback: Callback | None = None,
    every_update: Callback | None = None,
    population: Population | None = None,
    continue_from: TrainResult | RunnerState | None = None,
    stop_if_diverged: bool = True,
    out: str | Path | None = None,
) -> TrainResult:
    """Train an agent, from scratch or from an earlier result, with all seeds in one program.

    Args:
      agent: the algorithm with its network.
      env: a single environment; the agent steps `agent.num_envs` of them. A host environment is
        stepped in Python, between calls of a compiled policy and a compiled update. That is about
        twice as fast after `jax.config.update("jax_cpu_enable_async_dispatch", False)`, which must
        be set before JAX's first computation; `triglot train` sets it.
      key: a random key such as `jax.random.key(0)`, split into one key per seed; left out where a
        training is continued, whose state has its own.
      total_steps: environment steps per seed, rounded up to whole rollouts; for a continued
        training, the number of additional steps.
      num_seeds: `S`, independent seeds, vmapped.
      hyper: hyperparameters that replace the agent's: the algorithm's `Hyperparams`, or values by
        name. An array `[S]` gives each seed its own value, so that a sweep is one compiled
        program.
      devices: number of devices to divide the training among, or a mesh with one axis; None for
        JAX's first device. With several processes (`jax.distributed`), it is the number of all
        their devices, and every process calls `train` with the same arguments.
      shard: what to divide, `seeds` or `envs` (the environments of each seed); None for seeds, if
        there are at least as many as devices. See docs/devices.md.
      callback: called after each chunk with the number of updates so far and the chunk's metrics,
        `[S, updates]` each. If it returns False, the training stops; None and True continue.
      every_update: called after each update, in order and from inside the compiled program, with
        the number of updates so far and the update's metrics, `[S]` each. The program does not wait
        for it, but a slow function slows it down; an exception in it ends the training with JAX's
        error. `callback` is cheaper.
      population: settings of population-based training, in which the seeds are the members: they
        copy each other and change their hyperparameters. The metrics then have `parent`, the member
        that was copied after an update (mostly itself), and the perturbed hyperparameters. None:
        the seeds are independent.
      continue_from: the result of an earlier training of this agent in this environment, or of
        `triglot.load_run`. It is continued bit for bit, apart from schedules: a schedule without a
        span lasts the whole training, so it is stretched over the earlier steps and `total_steps`
        together. Hyperparameters that `hyper` or the agent changes have their new values from now
        on. Environments that are stepped in Python begin new episodes. The given state is not
        changed.
      stop_if_diverged: whether NaN or infinite parameters of a seed stop the training with
        `Diverged`. False continues, for a sweep in which some values may diverge.
      out: a new folder for the files of `triglot train`: options, metrics, checkpoints, a learning
        curve, and the greedy returns after the training. None writes nothing.

    Returns:
      The final states and the metrics of every update.

    Raises:
      Diverged: if a parameter is NaN or infinite after a chunk; it has the last finite result.
      TriglotError: before anything compiles, if an argument is invalid, such as a key of another
        type, an agent for other observations or actions, or an array in `hyper` whose shape is not
        `[S]`; while it is traced, if the environment does not return what its specs declare; if the
        devices do not exist or do not divide the training.
      HostFailure: if a host environment fails; it holds the state after the last whole update.
      KeyboardInterrupt: with `out`, after Ctrl-C, once a checkpoint is saved.
    """
    started = time.perf_counter()
    if callback is not None:
        check_callback("callback", callback)
    if out is not None:
        check_path("out", out)
        check_free(Path(out))
        if jax.process_count() > 1:
            raise TriglotError("out is written by one process: leave it out of a distributed one.")
        if not stop_if_diverged:
            raise TriglotError(
                "a training that writes a folder ends where it diverges, so it takes "
                "stop_if_diverged=True only: leave stop_if_diverged or out away."
            )
    earlier = continue_from if isinstance(continue_from, TrainResult) else None
    state: Any = continue_from if earlier is None else earlier.runner_state
    if state is not None:
        if key is not None:
            raise TriglotError("key has no effect, since continue_from has its own: leave it out.")
        if out is not None and earlier is None:
            raise TriglotError(
                "continue_from is a state, whose key is not known: to write a folder, give the "
                "result of triglot.train or triglot.load_run."
            )
        if isinstance(state, RunnerState) and np.ndim(state.num_updates) and num_seeds == 1:
            num_seeds = state.num_updates.shape[0]
        key = jax.random.key(0) if earlier is None else earlier.experiment.key
    experiment = Experiment(
        agent,
        env,
        key=as_key(key),
        total_steps=total_steps,
        num_seeds=num_seeds,
        hyper=hyper,
        devices=devices,
        shard=shard,
        population=population,
        every_update=every_update,
    )
    done = 0
    if state is not None:
        done = check_continued(agent, experiment.shapes, state, experiment.num_seeds)
        whole = (done + experiment.num_updates) * experiment.steps_per_update
        changes = _changes(agent, hyper, earlier)
        experiment = replace(experiment, total_steps=whole)
        if earlier is not None and has_options(agent.hyper):
            before = stretched(_hyper_of(earlier), done, experiment.num_updates)
            experiment = replace(experiment, hyper=replace_options(before, changes))
        state = experiment.continued(state, changes.keys())
    follower = _Follower(experiment, done, callback, check=stop_if_diverged)
    if out is None:
        state, cause = follower.train(state)
    else:
        plan = plan_of(experiment, Path(out), after=done)
        check_memory(plan)
        make_folder(plan.out)
        finished = record(plan, Progress(state, done), follower.observe, started=started)
        state, cause = finished.state, finished.diverged if stop_if_diverged else None
        if finished.signal is not None:
            raise Signalled(finished.signal)
    if cause is not None:
        last = follower.last_finite(state)
        if last is None:  # in the first chunk
            last = experiment.start() if earlier is None else earlier.runner_state
        raise Diverged(cause, follower.result(last, out))
    if (absurd := absurd_parameters(state)) is not None:
        warnings.warn(absurd, stacklevel=2)
    return follower.result(state, out)


class _Follower:
    """Collects the metrics of a training, calls the callback and keeps the last finite state."""

    def __init__(
        self, experiment: Experiment, done: int, callback: Callback | None, *, check: bool
    ) -> None:
        self._experiment, self._done, self._callback = experiment, done, callback
        self._check = check
        self._history: list[dict[str, np.ndarray]] = []
        self._kept: LastFinite | None = None

    def train(self, state: RunnerState | None) -> tuple[RunnerState, str | None]:
        """Train from these states, or from the start; return the last ones, and what diverged."""
        experiment, cause = self._experiment, None
        with closing(experiment.program()) as program:
            state = experiment.start_and_compile(program) if state is None else state
            self._keep(state)
            for chunk in experiment.chunks(state, program=program):
                state = chunk.runner_states
                cause = experiment.divergence(chunk) if self._check else None
                if self.observe(chunk, cause) or cause is not None:
                    break
        return experiment.whole(state), cause

    def observe(self, chunk: Chunk, cause: str | None) -> bool:
        """Follow a chunk; return whether the callback ends the training."""
        self._history.append(chunk.metrics)
        stops = self._callback is not None and asks_to_stop(
            self._callback(chunk.num_updates, chunk.metrics)
        )
        if cause is None and chunk.num_updates < self._experiment.num_updates:
            self._keep(chunk.runner_states)
        return stops

    def last_finite(self, state: RunnerState) -> RunnerState | None:
        """Return the last finite states that were kept, with the replays of the last ones."""
        return self._kept and self._kept.restore(state, self._experiment.num_seeds)

    def result(self, state: RunnerState, out: str | Path | None) -> TrainResult:
        """Join what was collected with the last states."""
        if self._experiment.every_update is not None:
            jax.effects_barrier()  # the last calls may still be pending
        history = self._history
        return TrainResult(
            experiment=self._experiment,
            runner_state=state,
            folder=None if out is None else Path(out),
            recorded={n: np.concatenate([m[n] for m in history], axis=1) for n in history[0]},
        )

    def _keep(self, state: RunnerState) -> None:
        # Several processes would not agree on the time of a copy.
        if not self._check or jax.process_count() > 1:
            return
        if self._kept is None:
            self._kept = LastFinite(state)
        else:
            self._kept.update(state)


def _changes(
    agent: Agent, hyper: AnyHyperparams | Values | None, earlier: TrainResult | None
) -> dict[str, Any]:
    """List the hyperparameters that change where a training is continued."""
    changes: dict[str, Any] = {}
    if earlier is not None and has_options(agent.hyper):
        was, now = (option_values(trained.hyper) for trained in (earlier.agent, agent))
        changes |= {name: value for name, value in now.items() if value is not was.get(name)}
        changes = {name: value for name, value in changes.items() if value != was.get(name)}
    named = hyper if hyper is None or isinstance(hyper, Mapping) else option_values(hyper)
    return {**changes, **(named or {})}


def _hyper_of(result: TrainResult) -> AnyHyperparams:
    """Return the hyperparameters of a training as they were given, with one value or `[S]`."""
    hyper, agent = result.experiment.hyper, result.agent
    if isinstance(hyper, list | tuple):
        return result.hyper
    return as_hyperparams(agent.name, hyper, agent.hyper)
