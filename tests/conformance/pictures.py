"""An environment of small images in bytes and continuous actions, which compiles fast."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from triglot.core.environment import TimeStep, first_step
from triglot.core.specs import Box, Discrete, sample


@dataclass(frozen=True)
class Tiles:
    """Shows random kinds of tiles from 3 to 10, in bytes; an episode is one step."""

    name: ClassVar[str] = "tiles"
    obs_spec: ClassVar[Box] = Box((6, 6, 2), "uint8", 3, 10)
    action_spec: ClassVar[Discrete] = Discrete(3)

    def reset(self, key: jax.Array) -> TimeStep:
        return first_step((), sample(self.obs_spec, key))

    def step(self, state: tuple, action: jax.Array, key: jax.Array) -> TimeStep:
        return TimeStep(
            state=state,
            obs=sample(self.obs_spec, key),
            reward=(action == 1).astype(jnp.float32),
            terminated=jnp.ones((), bool),
            truncated=jnp.zeros((), bool),
        )


@dataclass(frozen=True)
class Pictures:
    """Pays for naming the mean of a random image; an episode terminates after 8 images."""

    name: ClassVar[str] = "pictures"
    obs_spec: ClassVar[Box] = Box((6, 6, 2), "uint8", 0, 255)
    action_spec: ClassVar[Box] = Box((1,), "float32", -1.0, 1.0)

    def reset(self, key: jax.Array) -> TimeStep:
        obs = jax.random.bits(key, self.obs_spec.shape, jnp.uint8)
        return first_step((obs, jnp.int32(0)), obs)

    def step(self, state: tuple, action: jax.Array, key: jax.Array) -> TimeStep:
        seen, time = state
        obs = jax.random.bits(key, self.obs_spec.shape, jnp.uint8)
        return TimeStep(
            state=(obs, time + 1),
            obs=obs,
            reward=1.0 - jnp.abs(action[0] - seen.astype(jnp.float32).mean() / 255),
            terminated=time == 7,
            truncated=jnp.zeros((), bool),
        )
