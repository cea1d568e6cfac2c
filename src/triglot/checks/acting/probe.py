"""An environment whose observations can be told apart, and whose episodes end in both ways."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ...core import specs
from ...core.environment import TimeStep
from ...core.specs import Spec
from ...core.types import Obs, PyTree

ENDS = 0.15  # probability with which a step ends an episode, of each kind


@dataclass(frozen=True)
class Probe:
    """Random observations and rewards; masks that are a function of the observation.

    Steps are terminated or truncated at random, so that both ends occur in the middle of rollouts,
    at other steps in each environment. Nothing depends on the actions.

    Attributes:
      obs_spec, action_spec: those of another environment.
      masked: whether some actions are forbidden, where they are discrete.
    """

    obs_spec: Spec
    action_spec: Spec
    masked: bool

    @property
    def name(self) -> str:
        return "probe"

    def reset(self, key: jax.Array) -> TimeStep:
        return self._step(key, jnp.zeros(()), jnp.ones(()))

    def step(self, state: PyTree, action: jax.Array, key: jax.Array) -> TimeStep:
        del state, action
        obs_key, reward_key, end_key = jax.random.split(key, 3)
        return self._step(obs_key, jax.random.normal(reward_key), jax.random.uniform(end_key))

    def _step(self, key: jax.Array, reward: jax.Array, end: jax.Array) -> TimeStep:
        obs = specs.sample(self.obs_spec, key)
        return TimeStep(
            state=(),
            obs=obs,
            reward=reward,
            terminated=end < ENDS,
            truncated=(end >= ENDS) & (end < 2 * ENDS),
            action_mask=self.mask(obs),
        )

    def mask(self, obs: Obs) -> jax.Array | None:
        """Allow some actions: at least one, or one value of each integer."""
        if not self.masked or specs.mask_size(self.action_spec) is None:
            return None
        key = jax.random.key(0)
        for leaf in jax.tree.leaves(obs):
            flat = leaf.ravel().astype(jnp.float32)
            weight = jnp.arange(1, flat.size + 1, dtype=jnp.float32)
            number = jax.lax.bitcast_convert_type(jnp.sum(flat * jnp.cos(weight)), jnp.uint32)
            key = jax.random.fold_in(key, number)
        counts = getattr(self.action_spec, "num_values", 0)
        parts = []
        for number, count in enumerate((counts,) if isinstance(counts, int) else counts):
            bits_key, allowed_key = jax.random.split(jax.random.fold_in(key, number))
            bits = jax.random.bernoulli(bits_key, 0.5, (count,))
            always_allowed = jax.random.randint(allowed_key, (), 0, count)
            parts.append(bits | (jnp.arange(count) == always_allowed))
        return jnp.concatenate(parts)
