"""A random walk with a door at its right end."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from triglot.rl import Box, Discrete, TimeStep, first_step, pytree_dataclass


@pytree_dataclass
class RandomWalkState:
    position: jax.Array  # int32 [], from 0 to length
    time: jax.Array  # int32 [], steps since the reset


@dataclass(frozen=True)
class RandomWalk:
    """Step left (0) or right (1); each step costs 0.1, and reaching the door gives 1.

    Attributes:
      length: steps from the left end to the door.
      slip: probability that a step goes in the opposite direction.
      max_steps: time limit of an episode.
    """

    length: int = 8
    slip: float = 0.1
    max_steps: int = 50

    name = "random_walk"
    obs_spec = Box((1,), "float32", 0.0, 1.0)
    action_spec = Discrete(2)

    def reset(self, key):
        position = jax.random.randint(key, (), 0, self.length)
        state = RandomWalkState(position=position, time=jnp.zeros((), jnp.int32))
        return first_step(state, self._observe(state))

    def step(self, state, action, key):
        slipped = jax.random.bernoulli(key, self.slip)
        move = jnp.where((action == 1) ^ slipped, 1, -1)
        position = jnp.clip(state.position + move, 0, self.length)
        state = RandomWalkState(position=position, time=state.time + 1)
        arrived = position == self.length
        return TimeStep(
            state=state,
            obs=self._observe(state),
            reward=jnp.where(arrived, 1.0, -0.1).astype(jnp.float32),
            terminated=arrived,  # the task is over: no bootstrap
            truncated=(state.time >= self.max_steps) & ~arrived,  # time limit: bootstrap
        )

    def _observe(self, state):
        return state.position.astype(jnp.float32)[None] / self.length
