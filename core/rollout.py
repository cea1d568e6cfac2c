"""Collecting trajectories: one scan, statistics reduced as it goes."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from .agent import Agent, Trajectory, View
from .hoist import scan_keys
from .ratio import ratio
from .vectorize import Transition, VectorEnvironment, VectorState

PyTree: TypeAlias = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class EpisodeStats:
    """Sums over the episodes that ended; float32 `[]` each."""

    count: jax.Array
    return_sum: jax.Array
    length_sum: jax.Array

    @classmethod
    def zero(cls) -> "EpisodeStats":
        zero = jnp.zeros((), jnp.float32)
        return cls(count=zero, return_sum=zero, length_sum=zero)

    def add(self, transition: Transition) -> "EpisodeStats":
        """Count the episodes that end with `transition`."""
        done = transition.done.astype(jnp.float32)
        return EpisodeStats(
            count=self.count + done.sum(),
            return_sum=self.return_sum + (done * transition.episode_return).sum(),
            length_sum=self.length_sum
            + (done * transition.episode_length.astype(jnp.float32)).sum(),
        )

    def metrics(self) -> dict[str, jax.Array]:
        """Average over episodes; NaN where none ended."""
        return {
            "num_episodes": self.count,
            "episode_return": ratio(self.return_sum, self.count),
            "episode_length": ratio(self.length_sum, self.count),
        }


def rollout(
    agent: Agent,
    env: VectorEnvironment,
    agent_state: Any,
    memory: PyTree,
    env_state: VectorState,
    key: jax.Array,
) -> tuple[VectorState, PyTree, Trajectory, EpisodeStats]:
    """Let the agent act for `agent.rollout_length` steps, exploring.

    Returns:
      The environments' state and the memory after the last step, the trajectory `[T, N]`, and the
      statistics of the episodes that ended in it.
    """

    def step(carry: tuple, step_key: jax.Array) -> tuple[tuple, dict[str, Any]]:
        env_state, memory, stats = carry
        act_key, env_key = jax.random.split(step_key)
        view = View(obs=env_state.obs, first=env_state.first, action_mask=env_state.action_mask)
        decision = agent.act(agent_state, memory, view, act_key, explore=True)
        env_state, transition = env.step(env_state, decision.action, env_key)
        seen = {
            "obs": view.obs,
            "first": view.first,
            "action_mask": view.action_mask,
            "action": decision.action,
            "reward": transition.reward,
            "terminated": transition.terminated,
            "truncated": transition.truncated,
            "next_obs": transition.next_obs,
            "next_action_mask": transition.next_action_mask,
            "extras": decision.extras,
        }
        return (env_state, decision.memory, stats.add(transition)), seen

    keys = jax.random.split(key, agent.rollout_length)
    start = (env_state, memory, EpisodeStats.zero())
    (env_state, last_memory, stats), seen = scan_keys(step, start, keys)
    return env_state, last_memory, Trajectory(**seen, memory=memory), stats
