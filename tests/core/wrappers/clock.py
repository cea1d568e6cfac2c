"""A tiny environment in which each number of a step is known."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from triglot.core.environment import Environment, TimeStep, first_step
from triglot.core.specs import Box, Discrete


@dataclass(frozen=True)
class Clock:
    """Observes the time and the last action; the reward is ten times the time, and the action.

    After its end it returns NaN, as an environment may.

    Attributes:
      length: steps of an episode.
      end: how it ends.
      masked: whether the time, as an action, is forbidden.
    """

    length: int = 3
    end: Literal["terminated", "truncated"] = "terminated"
    masked: bool = False

    name = "clock"
    obs_spec = Box((2,), "float32", 0.0, 9.0)
    action_spec = Discrete(5)

    def reset(self, key: jax.Array) -> TimeStep:
        time = jnp.zeros((), jnp.int32)
        return first_step(time, jnp.zeros((2,), jnp.float32), self._mask(time))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        time, over = state + 1, state >= self.length
        ended, no = time >= self.length, jnp.zeros((), bool)
        obs = jnp.stack([time, action]).astype(jnp.float32)
        reward = (10 * time + action).astype(jnp.float32)
        return TimeStep(
            state=time,
            obs=jnp.where(over, jnp.nan, obs),
            reward=jnp.where(over, jnp.nan, reward),
            terminated=ended if self.end == "terminated" else no,
            truncated=ended if self.end == "truncated" else no,
            action_mask=self._mask(time),
        )

    def _mask(self, time: jax.Array) -> jax.Array | None:
        return jnp.arange(5, dtype=jnp.int32) != time if self.masked else None


def play(env: Environment, actions: list[Any], seed: int = 0) -> list[TimeStep]:
    """Take the actions from a start, with another key for each step."""
    keys = jax.random.split(jax.random.key(seed), len(actions) + 1)
    steps, step = [env.reset(keys[0])], jax.jit(env.step)
    for action, key in zip(actions, keys[1:], strict=True):
        steps.append(step(steps[-1].state, jnp.int32(action), key))
    return steps


def rewards(steps: list[TimeStep]) -> list[float]:
    """List the rewards, without that of the reset."""
    return [float(step.reward) for step in steps[1:]]


def ends(steps: list[TimeStep]) -> str:
    """Write each step as T for terminated, t for truncated, B for both and - for neither."""
    codes = {(False, False): "-", (True, False): "T", (False, True): "t", (True, True): "B"}
    return "".join(codes[bool(step.terminated), bool(step.truncated)] for step in steps[1:])
