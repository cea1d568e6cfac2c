"""Train an agent from scratch: a host loop over compiled chunks of updates."""

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from .agent import Agent, AgentBase
from .environment import Environment
from .errors import TriglotError
from .host_environment import HostEnvironment
from .hyper import (
    check_count,
    check_hyperparams,
    fill_schedule_horizon,
    per_seed,
    schedules_of,
    with_schedules,
)
from .loop.callbacks import Callback
from .loop.chunks import run_chunks
from .loop.population import Population
from .loop.sharding import Shard, gathered, make_sharding
from .loop.state import RunnerState
from .loop.trainer import init_seeds, updates_for
from .trainers import make_trainer
from .types import PyTree


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The result of `train`.

    Attributes:
      runner_state: `[S, ...]`, one entry per seed; `.agent` is the agent state.
      metrics: by name, float `[S, num_updates]`, on the host.
      num_updates: updates per seed.
      num_steps: environment steps per seed.
    """

    runner_state: RunnerState
    metrics: dict[str, np.ndarray]
    num_updates: int
    num_steps: int


def train(
    agent: Agent,
    env: Environment | HostEnvironment,
    *,
    key: jax.Array,
    total_steps: int,
    num_seeds: int = 1,
    hyper: PyTree | None = None,
    devices: int | Mesh | None = None,
    shard: Shard | None = None,
    callback: Callback | None = None,
    every_update: Callback | None = None,
    population: Population | None = None,
) -> TrainResult:
    """Train an agent from scratch, all seeds in one program.

    Args:
      agent: the algorithm with its network.
      env: a single environment; the agent steps `agent.num_envs` of them. A host environment is
        stepped in Python, between calls of a compiled policy and a compiled update. That is about
        twice as fast after `jax.config.update("jax_cpu_enable_async_dispatch", False)`, which must
        be set before JAX's first computation; `triglot train` sets it.
      key: a typed key, split into one key per seed.
      total_steps: environment steps per seed, rounded up to whole rollouts.
      num_seeds: `S`, independent seeds, vmapped.
      hyper: hyperparameters that replace the agent's own; an array `[S]` in place of a number gives
        each seed a value of its own, so that a sweep is one compiled program.
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

    Returns:
      The final states and the metrics of every update.

    Raises:
      TriglotError: if `total_steps` or `num_seeds` is not positive, an array in `hyper` has another
        shape than `[S]`, the environment's shapes change between reset and step, or the devices do
        not exist or do not divide the training.
      HostFailure: if a host environment fails; it holds the state after the last whole update.
    """
    check_count("num_seeds", num_seeds)
    if population is not None:
        if num_seeds not in (1, population.size):
            raise TriglotError(
                f"num_seeds is the size of the population, {population.size}, got {num_seeds}: "
                "leave it out."
            )
        num_seeds = population.size
    sharding = None
    if devices is not None:
        sharding = make_sharding(devices, shard, num_seeds=num_seeds, num_envs=agent.num_envs)
    trainer = make_trainer(agent, env, every_update=every_update, sharding=sharding)
    num_updates = updates_for(trainer, total_steps)
    hyper = with_schedules(agent.hyper if hyper is None else _complete(agent, hyper))
    if schedules_of(hyper):
        check_hyperparams(type(agent).__name__, hyper, agent.config)
    hyper = fill_schedule_horizon(hyper, num_updates)
    if population is not None:
        population = population.for_agent(agent, hyper, num_updates)
        how: dict[str, Any] = {"every_update": every_update, "sharding": sharding}
        trainer = make_trainer(agent, env, population=population, **how)
    boundaries = () if population is None else (population.exploit_every,)
    hyper = per_seed(hyper, num_seeds)
    with closing(trainer.program()) as program:
        state = init_seeds(trainer, jax.random.split(key, num_seeds), hyper)
        history = []
        size = trainer.chunk_size
        for chunk in run_chunks(program, state, num_updates, size, boundaries=boundaries):
            state = chunk.runner_states
            history.append(chunk.metrics)
            if callback is not None:
                callback(chunk.num_updates, chunk.metrics)
    state = gathered(state, num_seeds)
    if every_update is not None:
        jax.effects_barrier()  # the last calls may still be pending
    metrics = {n: np.concatenate([m[n] for m in history], axis=1) for n in history[0]}
    num_steps = num_updates * trainer.steps_per_update
    return TrainResult(
        runner_state=state, metrics=metrics, num_updates=num_updates, num_steps=num_steps
    )


def _complete(agent: Agent, hyper: PyTree) -> PyTree:
    """Fill in what hyperparameters leave to the environment; a custom agent need not know of it."""
    return agent.for_environment(hyper) if isinstance(agent, AgentBase) else hyper
