"""Train an agent in Python: a host loop over compiled chunks of updates."""

import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from .agent import Agent
from .arguments import check_agent
from .environment import Environment
from .errors import TriglotError, kind_of
from .host_environment import HostEnvironment
from .hyper import (
    as_hyperparams,
    check_count,
    check_hyperparams,
    fill_schedule_horizon,
    per_seed,
    with_schedules,
)
from .loop.callbacks import Callback, check_callback
from .loop.chunks import run_chunks
from .loop.continuing import check_continued, continued
from .loop.divergence import LastFinite, absurd_parameters, divergence, updates_before_learning
from .loop.population import Population
from .loop.sharding import Shard, gathered, make_sharding
from .loop.state import RunnerState
from .loop.trainer import init_seeds, updates_for
from .options import option_values
from .trainers import make_trainer
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
    check_agent(agent)
    name = agent.name
    check_count("num_seeds", num_seeds)
    for what, given in (("callback", callback), ("every_update", every_update)):
        if given is not None:
            check_callback(what, given)
    if population is not None:
        if not isinstance(population, Population):
            raise TriglotError(
                f"population must be a triglot.Population, got {kind_of(population)}: give "
                "triglot.Population(size=32, perturb=['learning_rate'])."
            )
        if num_seeds not in (1, population.size):
            raise TriglotError(
                f"num_seeds is the size of the population, {population.size}, got {num_seeds}: "
                "leave it out."
            )
        num_seeds = population.size
    state: Any = continue_from
    if isinstance(continue_from, TrainResult):
        state = continue_from.runner_state
    if state is None:
        key = as_key(key)
    elif key is not None:
        raise TriglotError("key has no effect, since continue_from has its own: leave it out.")
    elif isinstance(state, RunnerState) and np.ndim(state.num_updates):
        num_seeds = num_seeds if num_seeds > 1 else state.num_updates.shape[0]
    sharding = None
    if devices is not None:
        sharding = make_sharding(devices, shard, num_seeds=num_seeds, num_envs=agent.num_envs)
    elif shard is not None:
        raise TriglotError(f"shard={shard!r} has no effect without devices: give both.")
    trainer = make_trainer(agent, env, every_update=every_update, sharding=sharding)
    num_updates, done = updates_for(trainer, total_steps), 0
    named = hyper if hyper is None or isinstance(hyper, Mapping) else option_values(hyper)
    changes = {*(named or ())}
    hyper = with_schedules(agent.for_environment(as_hyperparams(name, hyper, agent.hyper)))
    if hyper is not agent.hyper:
        check_hyperparams(name, hyper, agent.config)
    given, hyper = hyper, fill_schedule_horizon(hyper, num_updates)
    if population is not None:
        population = population.for_agent(agent, hyper, num_updates)
        trainer = make_trainer(
            agent, env, population=population, every_update=every_update, sharding=sharding
        )
    boundaries = () if population is None else (population.exploit_every,)
    hyper = per_seed(hyper, num_seeds)
    if state is None:
        state = init_seeds(trainer, jax.random.split(as_key(key), num_seeds), hyper)
    else:
        keys = jax.random.split(jax.random.key(0), num_seeds)
        expected = init_seeds.eval_shape(trainer, keys, hyper)
        done = check_continued(agent, expected, state, num_seeds)
        num_updates += done
        filled = fill_schedule_horizon(given, num_updates)
        changed = {name: getattr(filled, name) for name in changes}
        state = continued(name, state, changed, num_updates, trainer.steps_per_update)
    per_update = trainer.steps_per_update
    empty = updates_before_learning(agent.learning_starts, per_update)
    history, size, cause = [], trainer.chunk_size, None
    # Several processes would not agree on the time of a copy.
    kept = LastFinite(state) if stop_if_diverged and jax.process_count() == 1 else None

    def result(state: RunnerState) -> TrainResult:
        if every_update is not None:
            jax.effects_barrier()  # the last calls may still be pending
        metrics = {n: np.concatenate([m[n] for m in history], axis=1) for n in history[0]}
        after = int(np.asarray(state.num_updates)[0])
        return TrainResult(
            runner_state=state, metrics=metrics, num_updates=after, num_steps=after * per_update
        )

    with closing(trainer.program()) as program:
        how = {"boundaries": boundaries, "done": done}
        for chunk in run_chunks(program, state, num_updates, size, **how):
            state = chunk.runner_states
            history.append(chunk.metrics)
            if callback is not None:
                callback(chunk.num_updates, chunk.metrics)
            done = chunk.num_updates
            if stop_if_diverged:
                before = done - chunk.count
                cause = divergence(env.name, state, chunk.metrics, before, empty)
            if cause is not None:
                break
            if kept is not None and done < num_updates:
                kept.update(state)
    state = gathered(state, num_seeds)
    if cause is not None:
        raise Diverged(cause, result(state if kept is None else kept.restore(state, num_seeds)))
    if (absurd := absurd_parameters(state)) is not None:
        warnings.warn(absurd, stacklevel=2)
    return result(state)
