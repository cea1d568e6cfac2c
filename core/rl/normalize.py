"""Running means and variances: of observations, and of returns to scale rewards by."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ..agent import Trajectory
from ..specs import Box, Dict, Spec

PyTree: TypeAlias = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class RunningStats:
    """The mean and variance of all samples seen so far.

    Attributes:
      mean, variance: float32, of a sample's shape; 0 and 1 before the first.
      count: float32 `[]`, samples seen.
    """

    mean: jax.Array
    variance: jax.Array
    count: jax.Array

    @classmethod
    def zero(cls, shape: tuple[int, ...]) -> "RunningStats":
        return cls(
            mean=jnp.zeros(shape, jnp.float32),
            variance=jnp.ones(shape, jnp.float32),
            count=jnp.zeros((), jnp.float32),
        )

    @classmethod
    def of(cls, spec: Spec) -> "RunningStats":
        """Make those of observations, for which `can_normalize` holds."""
        return cls.zero(() if isinstance(spec, Dict) else spec.shape)

    def add(self, samples: jax.Array) -> "RunningStats":
        """Join samples `[..., *shape]` to those seen.

        Source: Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for
        computing sample variances", equations 1.5, http://i.stanford.edu/TR/CS-TR-79-773.html.
        """
        flat = samples.astype(jnp.float32).reshape((-1, *self.mean.shape))
        number = jnp.asarray(flat.shape[0], jnp.float32)
        total = self.count + number
        delta = flat.mean(axis=0) - self.mean
        share = number / total
        squares = (
            self.variance * (self.count / total)
            + flat.var(axis=0) * share
            + delta**2 * (share * (self.count / total))
        )
        return RunningStats(mean=self.mean + delta * share, variance=squares, count=total)

    def normalize(self, samples: jax.Array, *, limit: float = 10.0) -> jax.Array:
        """Bring samples `[..., *shape]` to mean 0 and variance 1, cut at `limit` on both sides."""
        batched = jax.vmap(lambda sample: (sample - self.mean) * self.scale)
        flat = samples.astype(jnp.float32).reshape((-1, *self.mean.shape))
        return jnp.clip(batched(flat), -limit, limit).reshape(samples.shape)

    @property
    def scale(self) -> jax.Array:
        """What brings the standard deviation to 1."""
        return jax.lax.rsqrt(self.variance + 1e-8)


def can_normalize(spec: Spec) -> bool:
    """Tell whether observations are one array of floats, which has a mean and a variance."""
    return isinstance(spec, Box) and jnp.issubdtype(spec.dtype, jnp.floating)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class RewardScale:
    """What rewards are divided by: the standard deviation of the discounted returns seen so far.

    Attributes:
      stats: of the returns.
      returns: float32 `[N]`, of each environment's episode so far.
    """

    stats: RunningStats
    returns: jax.Array

    @classmethod
    def zero(cls, num_envs: int) -> "RewardScale":
        return cls(stats=RunningStats.zero(()), returns=jnp.zeros((num_envs,), jnp.float32))

    def add(
        self, trajectory: Trajectory, discount: Any, *, limit: float = 10.0
    ) -> tuple[jax.Array, "RewardScale"]:
        """Join a rollout's rewards to those seen, and scale them.

        Args:
          trajectory: the rollout.
          discount: float `[]`.
          limit: the rewards are cut at this on both sides, once they are scaled.

        Returns:
          The rewards, float32 `[T, N]`, and the scale with them in it.
        """
        done = trajectory.terminated | trajectory.truncated
        last, returns = discounted_sums(self.returns, trajectory.reward, done, discount)
        stats = self.stats.add(returns)
        reward = jnp.clip(trajectory.reward * stats.scale, -limit, limit)
        return reward, RewardScale(stats=stats, returns=last)


def discounted_sums(
    start: jax.Array, reward: jax.Array, done: jax.Array, discount: Any
) -> tuple[jax.Array, jax.Array]:
    """Sum discounted rewards forward in time, anew after each episode's end.

    s_t = r_t + discount * s_{t-1}, with s_{t-1} = 0 where an episode starts.

    Args:
      start: float32 `[N]`, the sums before the first step.
      reward: float32 `[T, N]`.
      done: bool `[T, N]`, the episode ended with this step.
      discount: float `[]`.

    Returns:
      The sums after the last step `[N]`, and at each step `[T, N]`; their variance is what rewards
      are scaled by.

    Source: OpenAI baselines' VecNormalize; Huang et al. 2022, detail 7 of continuous actions,
    https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/.
    """

    def step(before: jax.Array, seen: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        now = seen[0] + discount * before
        return jnp.where(seen[1], 0.0, now), now

    return jax.lax.scan(step, start, (reward, done))
