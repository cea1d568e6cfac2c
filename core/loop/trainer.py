"""The compiled trainer: a chunk of updates as one pure function over `RunnerState`."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp

from ..agent import Agent
from ..errors import TriglotError
from ..tracing.hoist import draw_ahead
from .callbacks import Callback, run_callback
from .rollout import online_rollout, rollout
from .state import RunnerState, UpdateKeys, update_keys
from .vectorize import VectorEnvironment

if TYPE_CHECKING:
    from ..host.trainer import HostTrainer

# Steps of a rollout, up to which making random numbers for each update shows in its time, and the
# bytes that those of a chunk may take.
_SHORT_ROLLOUT = 8
_MOST_DRAWN = 2**25

PyTree: TypeAlias = Any
Monitor: TypeAlias = Callable[[Any], dict[str, jax.Array]]


@dataclass(frozen=True)
class Trainer:
    """An agent in its environments; pure functions over `RunnerState`.

    Attributes:
      agent: the algorithm.
      env: the environments it steps.
      chunk_size: most updates in one chunk.
      monitor: extra metrics of the agent's state after each update, or None.
      every_update: called on the host from inside the compiled program, see `train`; or None, and
        then the program knows nothing of it.
    """

    agent: Agent
    env: VectorEnvironment
    chunk_size: int = 64
    monitor: Monitor | None = None
    every_update: Callback | None = None

    def __post_init__(self) -> None:
        sized = self.env.for_rollouts(self.agent.rollout_length)
        object.__setattr__(self, "env", sized)

    @property
    def steps_per_update(self) -> int:
        """Environment steps that one update consumes."""
        return self.agent.rollout_length * self.env.num_envs

    def init(self, key: jax.Array, hyper: PyTree | None = None) -> RunnerState:
        """Make the agent and start the environments."""
        agent_key, env_key, run_key = jax.random.split(key, 3)
        agent_state = self.agent.init(agent_key, self.env.num_envs, hyper)
        return RunnerState(
            key=run_key,
            agent=agent_state,
            carry=self.agent.initial_carry(agent_state, self.env.num_envs),
            env=self.env.reset(env_key),
            num_updates=jnp.zeros((), jnp.int32),
        )

    def update(
        self, runner_state: RunnerState, keys: UpdateKeys | None = None
    ) -> tuple[RunnerState, dict[str, jax.Array]]:
        """Collect one rollout and learn from it, or in it where the agent is online.

        `keys` are this update's `update_keys`, for whoever has made them already.
        """
        if keys is None:
            keys = update_keys(runner_state.key, runner_state.num_updates)
        env_state = self.env.refresh(runner_state.env, keys.pool)
        start = (runner_state.agent, runner_state.carry, env_state, keys.rollout)
        if self.agent.online:
            env_state, carry, agent_state, metrics, stats = online_rollout(
                self.agent, self.env, *start
            )
        else:
            env_state, carry, trajectory, stats = rollout(self.agent, self.env, *start)
            agent_state, metrics = self.agent.update(runner_state.agent, trajectory, keys.learn)
        extra = {} if self.monitor is None else self.monitor(agent_state)
        return RunnerState(
            key=runner_state.key,
            agent=agent_state,
            carry=carry,
            env=env_state,
            num_updates=runner_state.num_updates + 1,
        ), {**stats.metrics(), **metrics, **extra}

    def train_chunk(
        self, runner_state: RunnerState, num_updates: int | jax.Array | None = None
    ) -> tuple[RunnerState, dict[str, jax.Array]]:
        """Do `num_updates` updates; pure, to be jitted, vmapped over seeds or hyperparameters.

        Args:
          runner_state: where training stands.
          num_updates: how many, at most `chunk_size` (the default); may be traced, so that a
            shorter last chunk is not another program.

        Returns:
          Where training stands then, and each metric `[chunk_size]`, of which the first
          `num_updates` are written.
        """
        count = self.chunk_size if num_updates is None else num_updates
        numbers = runner_state.num_updates + jnp.arange(self.chunk_size, dtype=jnp.int32)
        keys = jax.vmap(lambda number: update_keys(runner_state.key, number))(numbers)
        drawn, update = self._draw(runner_state, keys)
        _, shapes = jax.eval_shape(update, runner_state, jax.tree.map(lambda leaf: leaf[0], drawn))
        buffers = jax.tree.map(lambda s: jnp.zeros((self.chunk_size, *s.shape), s.dtype), shapes)

        def body(index: jax.Array, carry: tuple) -> tuple:
            runner_state, buffers = carry
            of_this = jax.tree.map(lambda leaf: leaf[index], drawn)
            runner_state, metrics = update(runner_state, of_this)
            if self.every_update is not None:
                run_callback(self.every_update, runner_state.num_updates, metrics)
            return runner_state, jax.tree.map(lambda b, m: b.at[index].set(m), buffers, metrics)

        return jax.lax.fori_loop(0, count, body, (runner_state, buffers))

    def _draw(
        self, runner_state: RunnerState, keys: UpdateKeys
    ) -> tuple[PyTree, Callable[[RunnerState, PyTree], tuple[RunnerState, dict[str, jax.Array]]]]:
        """Draw a chunk's random numbers at once, where its updates are short and that pays.

        Returns:
          What each update draws, `[chunk_size, ...]`, or its keys; and `update`, given one share.
        """
        if self.agent.rollout_length <= _SHORT_ROLLOUT and not jax.config.values["jax_disable_jit"]:
            drawn, update = draw_ahead(self.update, runner_state, keys)
            if sum(leaf.size * leaf.dtype.itemsize for leaf in drawn) <= _MOST_DRAWN:
                return drawn, update
        return keys, jax.jit(self.update)  # jitted, it is traced once for both its uses


def vmap_seeds(function: Callable[[PyTree], PyTree], seeds: PyTree) -> PyTree:
    """Vmap over the leading axis `[S]`; a single seed is spared the batched products' cost."""
    if jax.tree.leaves(seeds)[0].shape[0] > 1:
        return jax.vmap(function)(seeds)
    result = function(jax.tree.map(lambda leaf: leaf[0], seeds))
    return jax.tree.map(lambda leaf: leaf[None], result)


@functools.partial(jax.jit, static_argnums=0)
def init_seeds(trainer: Trainer, keys: jax.Array, hyper: PyTree = None) -> RunnerState:
    """Start one training per key `[S]`, all with the same hyperparameters."""
    # One after the other, not vmapped: batched orthogonal initialisers compile twice as long, and
    # with JAX 0.10.2 some of their programs wait for themselves for ever on two CPU cores.
    return jax.lax.map(lambda key: trainer.init(key, hyper), keys)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def train_seeds(
    trainer: Trainer, runner_states: RunnerState, num_updates: int | jax.Array
) -> tuple[RunnerState, dict[str, jax.Array]]:
    """Do `num_updates` updates of every seed; the states given are used up.

    The function is compiled once per trainer: equal trainers share it.
    """
    return vmap_seeds(lambda state: trainer.train_chunk(state, num_updates), runner_states)


def updates_for(trainer: "Trainer | HostTrainer", total_steps: int) -> int:
    """Count the updates that cover `total_steps` environment steps, rounded up.

    Raises:
      TriglotError: if `total_steps` is not positive.
    """
    if total_steps < 1:
        raise TriglotError(f"total_steps must be at least 1, got {total_steps}.")
    return -(-total_steps // trainer.steps_per_update)


def chunks(num_updates: int, chunk_size: int) -> Iterator[int]:
    """Cut `num_updates` into pieces of at most `chunk_size`.

    >>> list(chunks(10, 4))
    [4, 4, 2]
    """
    for done in range(0, num_updates, chunk_size):
        yield min(chunk_size, num_updates - done)
