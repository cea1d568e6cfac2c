"""Normalize observations and scale rewards by running statistics."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from ..agent import Trajectory
from ..errors import TriglotError
from ..hyper import Number
from ..specs import Box, Dict, Spec
from ..types import AnyConfig, PyTree, pytree_dataclass


@pytree_dataclass
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
        """Create the statistics of no samples of a shape."""
        mean, variance = jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32)
        return cls(mean=mean, variance=variance, count=jnp.zeros((), jnp.float32))

    @classmethod
    def of(cls, spec: Spec) -> "RunningStats":
        """Create the statistics of observations for which `can_normalize` is true."""
        return cls.zero(() if isinstance(spec, Dict) else spec.shape)

    def add(self, samples: Shaped[Array, "..."]) -> "RunningStats":
        """Update the statistics with samples `[..., *shape]`.

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

    def normalize(
        self, samples: Shaped[Array, "*samples"], *, limit: float = 10.0
    ) -> Float[Array, "*samples"]:
        """Scale samples `[..., *shape]` to mean 0 and variance 1, clipped to `[-limit, limit]`."""
        batched = jax.vmap(lambda sample: (sample - self.mean) * self.scale)
        flat = samples.astype(jnp.float32).reshape((-1, *self.mean.shape))
        return jnp.clip(batched(flat), -limit, limit).reshape(samples.shape)

    @property
    def scale(self) -> Float[Array, "..."]:
        """1 / standard deviation."""
        return jax.lax.rsqrt(self.variance + 1e-8)


def can_normalize(spec: Spec) -> bool:
    """Return whether observations are one array of floats."""
    return isinstance(spec, Box) and jnp.issubdtype(spec.dtype, jnp.floating)


@pytree_dataclass
class RewardScale:
    """Scale rewards by the standard deviation of the discounted returns.

    Attributes:
      stats: running statistics of the returns.
      returns: float32 `[N]`, discounted return of each environment's last episode so far.
    """

    stats: RunningStats
    returns: jax.Array

    @classmethod
    def zero(cls, num_envs: int) -> "RewardScale":
        return cls(stats=RunningStats.zero(()), returns=jnp.zeros((num_envs,), jnp.float32))

    def add(
        self, trajectory: Trajectory, discount: Number, *, limit: float = 10.0
    ) -> tuple[Float[Array, "T N"], "RewardScale"]:
        """Update the statistics with a rollout's rewards, then scale these rewards.

        Args:
          trajectory: the rollout.
          discount: float `[]`.
          limit: scaled rewards are clipped to `[-limit, limit]`.

        Returns:
          The scaled rewards, float32 `[T, N]`, and the updated scale.
        """
        last, returns = discounted_sums(
            self.returns, trajectory.reward, first=trajectory.first, discount=discount
        )
        stats = self.stats.add(returns)
        reward = jnp.clip(trajectory.reward * stats.scale, -limit, limit)
        return reward, RewardScale(stats=stats, returns=last)


def discounted_sums(
    start: Float[Array, " N"],
    reward: Float[Array, "T N"],
    *,
    first: Bool[Array, "T N"],
    discount: Number,
) -> tuple[Float[Array, " N"], Float[Array, "T N"]]:
    """Sum discounted rewards forward in time, from 0 where an episode starts.

    s_t = r_t + discount * s_{t-1}, with s_{t-1} = 0 where an episode starts, whether the one before
    ended or was cut from outside (`core.rl.cuts`).

    Args:
      start: float32 `[N]`, the sums before the first step.
      reward: float32 `[T, N]`.
      first: bool `[T, N]`, an episode starts with this step.
      discount: float `[]`.

    Returns:
      The sums after the last step `[N]` and at each step `[T, N]`. Rewards are divided by the
      standard deviation of the latter.

    Source: OpenAI baselines' VecNormalize; Huang et al. 2022, detail 7 of continuous actions,
    https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/.
    """

    def step(
        before: jax.Array, reward_and_end: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        now = reward_and_end[0] + discount * jnp.where(reward_and_end[1], 0.0, before)
        return now, now

    return jax.lax.scan(step, start, (reward, first))


def normalized(stats: RunningStats | None, obs: PyTree) -> PyTree:
    """Normalize observations `[..., *shape]`; without statistics they are returned unchanged."""
    return obs if stats is None else stats.normalize(obs)


def require_normalizable(owner: str, normalize_obs: bool | None, obs_spec: Spec) -> None:
    """Reject `normalize_obs` for observations that are not one float array.

    Raises:
      TriglotError: naming the algorithm and the observation.
    """
    if normalize_obs and not can_normalize(obs_spec):
        raise TriglotError(
            f"{owner}'s normalize_obs needs one float array as observation, got {obs_spec}."
        )


@pytree_dataclass
class Normalizer:
    """Normalization of observations and scaling of rewards, each of which may be off.

    Attributes:
      obs_stats: of the observations before this update's; None without normalization.
      reward_scale: of the rewards; None without scaling.
    """

    obs_stats: RunningStats | None
    reward_scale: RewardScale | None

    @classmethod
    def init(
        cls, config: AnyConfig, obs_spec: Spec, action_spec: Spec, num_envs: int
    ) -> "Normalizer":
        """Start as `config.normalize_obs` and `config.scale_rewards` say.

        None means on where actions are continuous, and observations can be normalized.
        """
        continuous = isinstance(action_spec, Box)
        normalize, scale = config.normalize_obs, config.scale_rewards
        if normalize is None:
            normalize = continuous and can_normalize(obs_spec)
        if scale is None:
            scale = continuous
        obs_stats = RunningStats.of(obs_spec) if normalize else None
        reward_scale = RewardScale.zero(num_envs) if scale else None
        return cls(obs_stats=obs_stats, reward_scale=reward_scale)

    def obs(self, obs: PyTree) -> PyTree:
        """Normalize observations `[..., *shape]`."""
        return normalized(self.obs_stats, obs)

    def trajectory(
        self, trajectory: Trajectory, discount: Number
    ) -> tuple[Trajectory, "Normalizer"]:
        """Normalize with the statistics from before the rollout, then add the rollout to them."""
        stats, scale, reward = self.obs_stats, self.reward_scale, trajectory.reward
        if scale is not None:
            reward, scale = scale.add(trajectory, discount)
        obs, next_obs = self.obs(trajectory.obs), self.obs(trajectory.next_obs)
        if stats is not None:
            stats = stats.add(trajectory.obs)
        trajectory = replace(trajectory, obs=obs, next_obs=next_obs, reward=reward)
        return trajectory, Normalizer(obs_stats=stats, reward_scale=scale)
