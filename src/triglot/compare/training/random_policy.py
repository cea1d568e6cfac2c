"""A uniformly random policy: the zero of a return, and observations that depend on no network."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from ...core.agent import PolicyInput, PolicyOutput
from ...core.environment import Environment, TimeStep
from ...core.experiment import MAX_STEPS
from ...core.loop.episode import play_episodes
from ...core.numerics import where_rows
from ...core.rl.distributions import policy, to_action
from ...core.specs import Spec, sample
from ...core.types import AnyAgentState, Key, PyTree


@dataclass(frozen=True)
class RandomPolicy:
    """Acts uniformly at random, among the allowed actions where there is a mask."""

    action_spec: Spec

    plans: ClassVar[bool] = False

    def initial_carry(self, state: AnyAgentState, num_envs: int) -> PyTree:
        """Return no carry."""
        del state, num_envs
        return ()

    def act(
        self,
        state: AnyAgentState,
        carry: PyTree,
        inputs: PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> PolicyOutput:
        """Draw one action per environment."""
        del state, explore
        spec, mask = self.action_spec, inputs.action_mask
        draw_key, mask_key = jax.random.split(key)
        if mask is None:
            keys = jax.random.split(draw_key, inputs.first.shape[0])
            drawn = jax.vmap(lambda key: sample(spec, key))(keys)
            return PolicyOutput(action=drawn, carry=carry, extras={})
        allowed = policy(spec, {"logits": jnp.zeros(mask.shape)}, mask).sample(mask_key)
        return PolicyOutput(action=to_action(spec, allowed), carry=carry, extras={})


def random_return(env: Environment, key: jax.Array, *, num_episodes: int) -> float:
    """Estimate the mean return of random actions."""
    policy = RandomPolicy(env.action_spec)
    episodes = play_episodes(
        policy, env, (), key, num_episodes=num_episodes, max_steps=MAX_STEPS, explore=True
    )
    return float(episodes.returns.mean())


def random_observations(
    env: Environment, key: jax.Array, *, count: int, num_steps: int = 16
) -> PyTree:
    """Collect one observation from each of `count` environments after up to 16 random actions.

    Returns:
      Observations `[count, ...]`, of a different step in neighbouring environments.
    """
    policy = RandomPolicy(env.action_spec)
    reset_key, step_key = jax.random.split(key)
    first = jax.vmap(env.reset)(jax.random.split(reset_key, count))
    wanted = jnp.arange(count) % (num_steps + 1)

    def step(
        now: tuple[TimeStep, jax.Array], inputs: tuple[jax.Array, Key]
    ) -> tuple[tuple[TimeStep, jax.Array], None]:
        (current, done), (number, key) = now, inputs
        act_key, env_key = jax.random.split(key)
        policy_input = PolicyInput(
            obs=current.obs, first=jnp.zeros((count,), bool), action_mask=current.action_mask
        )
        action = policy.act((), (), policy_input, act_key, explore=True).action
        stepped = jax.vmap(env.step)(current.state, action, jax.random.split(env_key, count))
        stays = done | (number >= wanted)
        keep = where_rows(stays, current, stepped)
        return (keep, stays | keep.terminated | keep.truncated), None

    numbers = jnp.arange(num_steps)
    start = (first, jnp.zeros((count,), bool))
    (last, _), _ = jax.lax.scan(step, start, (numbers, jax.random.split(step_key, num_steps)))
    return last.obs
