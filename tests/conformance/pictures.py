"""An environment of small images and continuous actions, which compiles fast."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from triglot.core.environment import TimeStep, first_step
from triglot.core.specs import Box


@dataclass(frozen=True)
class Pictures:
    """Pays for naming the mean of a random image; an episode terminates after 8 images."""

    name: ClassVar[str] = "pictures"
    obs_spec: ClassVar[Box] = Box((6, 6, 2), "float32", 0.0, 1.0)
    action_spec: ClassVar[Box] = Box((1,), "float32", -1.0, 1.0)

    def reset(self, key: jax.Array) -> TimeStep:
        obs = jax.random.uniform(key, self.obs_spec.shape)
        return first_step((obs, jnp.int32(0)), obs)

    def step(self, state: tuple, action: jax.Array, key: jax.Array) -> TimeStep:
        seen, time = state
        obs = jax.random.uniform(key, self.obs_spec.shape)
        return TimeStep(
            state=(obs, time + 1),
            obs=obs,
            reward=1.0 - jnp.abs(action[0] - seen.mean()),
            terminated=time == 7,
            truncated=jnp.zeros((), bool),
        )
