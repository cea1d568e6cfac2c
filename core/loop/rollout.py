"""Collect trajectories in one scan, and average over the episodes that end in them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from ..agent import Agent, PolicyInput, Trajectory
from ..numerics import divide_or_nan
from ..tracing.hoist import scan_keys
from ..types import pytree_dataclass
from .state import RunnerState, scheduled
from .vectorize import Transition, VectorEnvironment


@pytree_dataclass
class EpisodeStats:
    """Sums over finished episodes; float32 `[]` each."""

    count: jax.Array
    return_sum: jax.Array
    length_sum: jax.Array

    @classmethod
    def zero(cls) -> "EpisodeStats":
        zero = jnp.zeros((), jnp.float32)
        return cls(count=zero, return_sum=zero, length_sum=zero)

    @classmethod
    def of(
        cls,
        done: Bool[Array, "*steps"],
        episode_return: Float[Array, "*steps"],
        episode_length: Integer[Array, "*steps"],
    ) -> "EpisodeStats":
        """Sum over the steps with which an episode ends.

        Args:
          done: bool `[..., N]`.
          episode_return: float32 `[..., N]`, reward since the episode's start.
          episode_length: int32 `[..., N]`, steps since the episode's start.
        """
        return cls(
            count=done.astype(jnp.float32).sum(),
            return_sum=jnp.where(done, episode_return, 0.0).sum(),
            length_sum=jnp.where(done, episode_length.astype(jnp.float32), 0.0).sum(),
        )

    def metrics(self) -> dict[str, jax.Array]:
        """Average over episodes; NaN where none ended."""
        return {
            "num_episodes": self.count,
            "episode_return": divide_or_nan(self.return_sum, self.count),
            "episode_length": divide_or_nan(self.length_sum, self.count),
        }


def rollout(
    agent: Agent, env: VectorEnvironment, start: RunnerState, key: jax.Array
) -> tuple[RunnerState, Trajectory, EpisodeStats]:
    """Act for `agent.rollout_length` steps with exploration.

    Returns:
      The state after the last step, in which the agent is unchanged, the trajectory `[T, N]`, and
      the statistics of the episodes that ended in it.
    """

    def step(before: tuple, step_key: jax.Array) -> tuple[tuple, tuple]:
        env_state, carry = before
        act_key, env_key = jax.random.split(step_key)
        now = replace(start, env=env_state, carry=carry)
        after, step_data, transition = _act_and_step(agent, env, now, act_key, env_key)
        # Summed after the loop: in it, three sums of a few numbers are 1 % of PPO's time.
        totals = transition.episode_return, transition.episode_length
        return (after.env, after.carry), (step_data, totals)

    keys = jax.random.split(key, agent.rollout_length)
    (env_state, carry), (stacked, totals) = scan_keys(step, (start.env, start.carry), keys)
    trajectory: Trajectory = replace(stacked, carry=start.carry).checked()
    done = trajectory.terminated | trajectory.truncated
    after = replace(start, env=env_state, carry=carry)
    return after, trajectory, EpisodeStats.of(done, *totals)


def online_rollout(
    agent: Agent, env: VectorEnvironment, start: RunnerState, key: jax.Array
) -> tuple[RunnerState, dict[str, jax.Array], EpisodeStats]:
    """Alternate one exploring step and one update, `agent.rollout_length` times.

    Returns:
      The state after the last step, the metrics averaged over the steps, and the statistics of the
      episodes that ended.
    """

    def step(before: tuple, inputs: tuple) -> tuple[tuple, None]:
        env_state, carry, agent_state, sums, stats = before
        (act_key, env_key, update_key), num_steps = inputs
        now = replace(start, env=env_state, carry=carry, agent=agent_state)
        now, _ = scheduled(now, env.num_envs * agent.rollout_length, num_steps)
        after, step_data, transition = _act_and_step(agent, env, now, act_key, env_key)
        one_step = jax.tree.map(lambda leaf: leaf[None], step_data)
        one_step = replace(one_step, carry=carry).checked()
        agent_state, metrics = agent.update(now.agent, one_step, update_key)
        sums = metrics if sums is None else jax.tree.map(jnp.add, sums, metrics)
        ended = EpisodeStats.of(
            transition.done, transition.episode_return, transition.episode_length
        )
        stats = jax.tree.map(jnp.add, stats, ended)
        return (after.env, after.carry, agent_state, sums, stats), None

    num_steps = agent.rollout_length
    # Split by use first, so that XLA drops the keys of unused uses.
    keys = tuple(jax.random.split(part, num_steps) for part in jax.random.split(key, 3))
    # Without schedules, the number of steps is not needed.
    num_done = jnp.arange(num_steps, dtype=jnp.float32) * env.num_envs if start.schedules else None
    inputs = (keys, num_done)
    before = (start.env, start.carry, start.agent, None, EpisodeStats.zero())
    first = jax.tree.map(lambda leaf: leaf[0], inputs)
    ((_, _, _, shapes, _), _) = jax.eval_shape(step, before, first)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    before = (start.env, start.carry, start.agent, zeros, EpisodeStats.zero())
    (env_state, carry, agent_state, sums, stats), _ = scan_keys(step, before, inputs)
    after = replace(start, env=env_state, carry=carry, agent=agent_state)
    return after, jax.tree.map(lambda total: total / num_steps, sums), stats


def _act_and_step(
    agent: Agent, env: VectorEnvironment, now: RunnerState, act_key: jax.Array, env_key: jax.Array
) -> tuple[RunnerState, Trajectory, Transition]:
    """Take one step; the trajectory holds it alone, `[N, ...]`, without the carry."""
    inputs = PolicyInput.of(agent, now.env, now.env.first)
    output = agent.act(now.agent, now.carry, inputs, act_key, explore=True)
    env_state, transition = env.step(now.env, output.action, env_key)
    step_data = Trajectory(
        obs=inputs.obs,
        first=inputs.first,
        action_mask=inputs.action_mask,
        action=output.action,
        reward=transition.reward,
        terminated=transition.terminated,
        truncated=transition.truncated,
        next_obs=transition.next_obs,
        next_action_mask=transition.next_action_mask,
        extras=output.extras,
        carry=(),
    )
    return replace(now, env=env_state, carry=output.carry), step_data, transition
