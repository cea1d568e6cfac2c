"""The runner state, and the random keys of each update."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ..agent import Agent
from ..types import PyTree, pytree_dataclass


@pytree_dataclass
class RunnerState:
    """The complete state of a training run.

    Attributes:
      key: the run's key; the key of an update is folded from it, see `update_keys`.
      agent: the agent state.
      carry: the policy's carry, `[N, ...]`.
      env: the environments' `VectorState`; `()` for host environments.
      num_updates: int32 `[]`, updates done.
      opponent: in self-play, the copy of the policy that plays the others; None without.
    """

    key: jax.Array
    agent: Any
    carry: PyTree
    env: Any
    num_updates: jax.Array
    opponent: PyTree = None


def first_state(
    agent: Agent, num_envs: int, reset: Callable[[jax.Array], Any], key: jax.Array, hyper: PyTree
) -> RunnerState:
    """Initialize the agent and its environments, which `reset(key)` resets."""
    agent_key, env_key, run_key = jax.random.split(key, 3)
    state = agent.init(agent_key, num_envs, hyper)
    carry, env = agent.initial_carry(state, num_envs), reset(env_key)
    zero = jnp.zeros((), jnp.int32)
    return RunnerState(key=run_key, agent=state, carry=carry, env=env, num_updates=zero)


Updated: TypeAlias = tuple[RunnerState, dict[str, Any]]  # with the metrics by name


class UpdateKeys(NamedTuple):
    """The keys of one update.

    Attributes:
      pool: refills the pool of initial states.
      rollout: acts and steps the environments.
      learn: learns from the trajectory.
      start: opens host environments before the update.
    """

    pool: jax.Array
    rollout: jax.Array
    learn: jax.Array
    start: jax.Array


def update_keys(key: jax.Array, num_updates: jax.Array) -> UpdateKeys:
    """Make the keys of update number `num_updates`, int32 `[]`, counted from 0.

    They depend on the run's key and the number only, so the keys of many updates can be made at
    once.
    """
    return UpdateKeys(*jax.random.split(jax.random.fold_in(key, num_updates), 4))
