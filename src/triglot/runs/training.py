"""Train an agent in Python: an experiment from start to end, with the metrics of all updates."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from .agent import Agent
from .environment import Environment
from .errors import TriglotError
from .experiment import Experiment, updates_of
from .host_environment import HostEnvironment
from .loop.callbacks import Callback, check_callback
from .loop.continuing import check_continued
from .loop.divergence import LastFinite, absurd_parameters
from .loop.population import Population
from .loop.sharding import Shard
from .loop.state import RunnerState
from .options import option_values
from .types import PyTree, as_key


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The result of `train`.

    Attributes:
      runner_state: `[S, ...]`, one entry per seed; `.agent` is the agent state.
      metrics: by name, float `[S, updates]`, of the updates of this call, on the host.
      num_updates: updates per seed after which `runner_state` is, those before this call included.
      num_steps: environment steps per seed, likewise.
    """

    runner_state: RunnerState
    metrics: dict[str, np.ndarray]
    num_updates: int
    num_steps: int


class Diverged(TriglotError):
    """A training diverged: a parameter became NaN or infinite.

    Attributes:
      cause: the first metric that is NaN or infinite, with its update and seed.
      result: what was learned before. Its state is a copy from before the divergence (replays are
        those at the end); its metrics are those of all updates, the last ones among them.
    """

    def __init__(self, cause: str, result: TrainResult) -> None:
        self.cause, self.result = cause, result
        super().__init__(
            f"training diverged: {cause}. The last finite state that was kept, after "
            f"{result.num_updates:,} updates, is in the `result` of this exception."
        )


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
) -> TrainResult:
    """Train an agent from scratch or further, all seeds in one program.

    Args:
      agent: the algorithm with its network.
      env: a single environment; the agent steps `agent.num_envs` of them. A host environment is
        stepped in Python, between calls of a compiled policy and a compiled update. That is about
        twice as fast after `jax.config.update("jax_cpu_enable_async_dispatch", False)`, which must
        be set before JAX's first computation; `triglot train` sets it.
      key: a random key such as `jax.random.key(0)`, split into one key per seed; left out where a
        training is continued, whose state has its own.
      total_steps: environment steps per seed, rounded up to whole rollouts; of a training that is
        continued, further steps.
      num_seeds: `S`, independent seeds, vmapped.
      hyper: hyperparameters that replace the agent's own, the algorithm's `Hyperparams` or values
        by name; an array `[S]` in place of a number gives each seed a value of its own, so that a
        sweep is one compiled program.
      devices: how many devices the training is divided among, or a mesh of them with one axis; None
        for JAX's first device. With several processes (`jax.distributed`), all their devices, and
        every process calls `train` alike.
      shard: what is divided, `seeds` or `envs` (the environments of each seed); None for seeds, if
        there are as many as devices. See docs/devices.md.
      callback: called after each chunk with the number of updates done and the chunk's metrics,
        `[S, updates]` each.
      every_update: called after each update, in order and from inside the compiled program, with
        the number of updates done and the update's metrics, `[S]` each. The program does not wait
        for it, but a slow function slows it down; an exception in it ends the training with JAX's
        error. `callback` is cheaper.
      population: the seeds are members of a population of this size, which copy each other and
        change their hyperparameters. The metrics then have `parent`, whom a member copied after an
        update (mostly itself), and what is perturbed. None: they are independent.
      continue_from: the result of an earlier training of this agent in this environment, which is
        continued bit for bit, apart from schedules. Schedules without a span last the whole
        training: they are stretched over the earlier steps and `total_steps` together, so that a
        learning rate that had fallen to 0 goes on from where it would be by then. Environments that
        are stepped in Python begin new episodes. The given state is not changed.
      stop_if_diverged: whether NaN and infinite parameters of a seed end the training with
        `Diverged`. False leaves them, for a sweep in which some values may diverge.

    Returns:
      The final states and the metrics of every update.

    Raises:
      Diverged: if a parameter is NaN or infinite after a chunk; it has what was learned before.
      TriglotError: before anything compiles, if an argument is not what it should be, such as
        another key, an agent for other observations or actions, or an array in `hyper` of another
        shape than `[S]`; while it is traced, if the environment does not return what its specs
        declare; if the devices do not exist or do not divide the training.
      HostFailure: if a host environment fails; it holds the state after the last whole update.
    """
    if callback is not None:
        check_callback("callback", callback)
    state: Any = continue_from
    if isinstance(continue_from, TrainResult):
        state = continue_from.runner_state
    if state is not None:
        if key is not None:
            raise TriglotError("key has no effect, since continue_from has its own: leave it out.")
        if isinstance(state, RunnerState) and np.ndim(state.num_updates) and num_seeds == 1:
            num_seeds = state.num_updates.shape[0]
    experiment = Experiment(
        agent,
        env,
        key=as_key(jax.random.key(0) if key is None and state is not None else key),
        total_steps=total_steps,
        num_seeds=num_seeds,
        hyper=hyper,
        devices=devices,
        shard=shard,
        population=population,
        every_update=every_update,
    )
    if state is None:
        state = experiment.start()
    else:
        done = check_continued(agent, experiment.shapes, state, experiment.num_seeds)
        whole = (done + experiment.num_updates) * experiment.steps_per_update
        named = hyper if hyper is None or isinstance(hyper, Mapping) else option_values(hyper)
        experiment = replace(experiment, total_steps=whole)
        state = experiment.continued(state, (named or {}).keys())
    history: list[dict[str, np.ndarray]] = []
    cause = None
    # Several processes would not agree on the time of a copy.
    kept = LastFinite(state) if stop_if_diverged and jax.process_count() == 1 else None

    def result(state: RunnerState) -> TrainResult:
        if every_update is not None:
            jax.effects_barrier()  # the last calls may still be pending
        metrics = {n: np.concatenate([m[n] for m in history], axis=1) for n in history[0]}
        after = updates_of(state)
        return TrainResult(
            runner_state=state,
            metrics=metrics,
            num_updates=after,
            num_steps=after * experiment.steps_per_update,
        )

    for chunk in experiment.chunks(state):
        state = chunk.runner_states
        history.append(chunk.metrics)
        if callback is not None:
            callback(chunk.num_updates, chunk.metrics)
        cause = experiment.divergence(chunk) if stop_if_diverged else None
        if cause is not None:
            break
        if kept is not None and chunk.num_updates < experiment.num_updates:
            kept.update(state)
    state = experiment.whole(state)
    if cause is not None:
        last = state if kept is None else kept.restore(state, experiment.num_seeds)
        raise Diverged(cause, result(last))
    if (absurd := absurd_parameters(state)) is not None:
        warnings.warn(absurd, stacklevel=2)
    return result(state)
