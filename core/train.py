"""Train an agent from scratch: the host's loop around compiled chunks of updates."""

import functools
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import numpy as np

from .agent import Agent
from .environment import Environment, check_constant_shapes
from .errors import TriglotError
from .host.trainer import HostProgram, HostTrainer
from .host_environment import HostEnvironment
from .hyper import fill_schedule_horizon
from .loop.callbacks import Callback
from .loop.state import RunnerState
from .loop.trainer import Trainer, chunks, init_seeds, train_seeds, updates_for
from .loop.vectorize import VectorEnvironment

PyTree: TypeAlias = Any


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What `train` returns.

    Attributes:
      runner_state: `[S, ...]` of the `S` seeds; `.agent` is what acts.
      metrics: by name, float `[S, num_updates]` on the host.
      num_updates: updates done per seed.
      num_steps: environment steps done per seed.
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
    callback: Callback | None = None,
    every_update: Callback | None = None,
) -> TrainResult:
    """Train an agent from scratch, all seeds in one program.

    Args:
      agent: the algorithm with its network.
      env: a single environment; the agent says how many copies it steps. One of the host is
        stepped in Python, between calls of a compiled policy and a compiled update. That is about
        twice as fast after `jax.config.update("jax_cpu_enable_async_dispatch", False)`, which JAX
        heeds before its first computation, and which `triglot train` does by itself.
      key: a typed key; the seeds' keys are split from it.
      total_steps: environment steps per seed, rounded up to whole rollouts.
      num_seeds: `S`, trained under `vmap`.
      hyper: numeric hyperparameters in place of the agent's own.
      callback: called after each chunk with the updates done so far and that chunk's metrics,
        `[S, updates]` each.
      every_update: called after each update, in their order and from inside the compiled program,
        with the updates done so far and that update's metrics, `[S]` each. The program waits for
        nobody, but a slow function slows it; an exception in it ends the training with JAX's error.
        `callback` costs less.

    Returns:
      The final states and every update's metrics.

    Raises:
      TriglotError: if `total_steps` or `num_seeds` is not positive, or the environment changes its
        shapes.
      HostFailure: if an environment of the host fails; it brings what was learned before.
    """
    if num_seeds < 1:
        raise TriglotError(f"num_seeds must be at least 1, got {num_seeds}.")
    with ExitStack() as stack:
        if isinstance(env, HostEnvironment):
            trainer = HostTrainer(agent, env, every_update=every_update)
            program = stack.enter_context(closing(HostProgram(trainer)))
        else:
            vector = VectorEnvironment(env, agent.num_envs)
            trainer = Trainer(agent, vector, every_update=every_update)
            program = functools.partial(train_seeds, trainer)
        num_updates = updates_for(trainer, total_steps)
        hyper = fill_schedule_horizon(agent.hyper if hyper is None else hyper, num_updates)
        state = init_seeds(trainer, jax.random.split(key, num_seeds), hyper)
        history, done = [], 0
        for count in chunks(num_updates, trainer.chunk_size):
            try:
                state, buffers = program(state, count)
            except TypeError:
                if isinstance(trainer, Trainer):
                    check_constant_shapes(trainer.env.env)  # says in words what JAX says of a scan
                raise
            metrics = {name: np.asarray(value[:, :count]) for name, value in buffers.items()}
            history.append(metrics)
            done += count
            if callback is not None:
                callback(done, metrics)
    if every_update is not None:
        jax.effects_barrier()  # else the last calls may still be on their way
    return TrainResult(
        runner_state=state,
        metrics={n: np.concatenate([m[n] for m in history], axis=1) for n in history[0]},
        num_updates=done,
        num_steps=done * trainer.steps_per_update,
    )
