"""An environment in which nothing repeats, so that joined episodes are seen."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from triglot.core.environment import TimeStep, first_step
from triglot.core.specs import Box, Discrete

NUM_PLACES, NUM_ACTIONS, SHORTEST = 5, 3, 4


@dataclass(frozen=True)
class Wander:
    """A random walk with random rewards, whose episodes last at least `SHORTEST` steps.

    Attributes:
      kind: `floats` with discrete actions, of which one is forbidden; `box` with continuous ones;
        or `table`, with discrete observations.
      truncates: whether some of its episodes end by a time limit.
    """

    kind: str = "floats"
    truncates: bool = True

    @property
    def name(self) -> str:
        return f"test:wander-{self.kind}"

    @property
    def obs_spec(self) -> Any:
        return Discrete(NUM_PLACES) if self.kind == "table" else Box((3,), "float32", 0.0, 1.0)

    @property
    def action_spec(self) -> Any:
        return Box((2,), "float32", -1.0, 1.0) if self.kind == "box" else Discrete(NUM_ACTIONS)

    def reset(self, key: jax.Array) -> TimeStep:
        start = first_step(jnp.int32(0), self._observe(key))
        return replace(start, action_mask=self._mask(jnp.int32(0)))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        obs_key, reward_key, end_key = jax.random.split(key, 3)
        after, drawn = state + 1, jax.random.uniform(end_key)
        late = after >= SHORTEST
        return TimeStep(
            state=after,
            obs=self._observe(obs_key),
            reward=jax.random.normal(reward_key) + jnp.sum(action).astype(jnp.float32),
            terminated=late & (drawn < 0.2),
            truncated=late & (drawn > 0.8) & self.truncates,
            action_mask=self._mask(after),
        )

    def _observe(self, key: jax.Array) -> jax.Array:
        if self.kind == "table":
            return jax.random.randint(key, (), 0, NUM_PLACES)
        return jax.random.uniform(key, (3,))

    def _mask(self, state: jax.Array) -> jax.Array | None:
        return None if self.kind == "box" else jnp.arange(NUM_ACTIONS) != state % NUM_ACTIONS
