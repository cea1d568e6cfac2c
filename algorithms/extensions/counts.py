"""Counts of visits: a reward for observations that were seen rarely.

Source: Tang et al. 2017, "#Exploration: A Study of Count-Based Exploration for Deep Reinforcement
Learning", https://arxiv.org/abs/1611.04717, equations 1 and 2, algorithm 1 (SimHash).
Differences: each number of an observation is standardized by running statistics, and each bit of a
hash is the side of a hyperplane in a random place, sgn(A x - b). The paper has sgn(A g(x)), with g
the identity or an autoencoder, which has two hashes for one number, and few for numbers that are
all positive. The hash of an observation may thus change, ever more slowly, with the statistics.
Counts may also be those of an episode alone, as in Badia et al. 2020,
https://arxiv.org/abs/2002.06038, where an observation is new again in the next one. An agent with a
replay learns from the bonus that a step had when it was stored, which a later count does not renew.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from ... import rl


@rl.pytree_dataclass
class CountsHyperparams:
    """Hyperparameters of a reward by counts.

    Attributes:
      counts_coef: the reward of the first visit; the n-th has `counts_coef / sqrt(n)`.
    """

    counts_coef: rl.Number = 0.1


@dataclass(frozen=True, kw_only=True)
class CountsConfig:
    """Static configuration of a reward by counts.

    Attributes:
      counts_bits: of an observation's hash; similar observations share one, and so a count.
      counts_episodic: whether every episode counts from 0.
    """

    counts_bits: int = rl.between(16, 1, 24)
    counts_episodic: bool = False


@rl.pytree_dataclass
class CountsState:
    """What was counted.

    Attributes:
      projection: float32 `[D, bits]`, the unit normals of hyperplanes between observations of D
        standardized numbers.
      bias: float32 `[bits]`, their distances from the mean observation, in standard deviations: a
        normal number times a uniform one.
      obs: running statistics of the observations, as one vector.
      table: float32 `[2^bits]`, visits of each hash; episodic ones `[N, 2^bits]`.
    """

    projection: jax.Array
    bias: jax.Array
    obs: rl.RunningStats
    table: jax.Array


class Counts(rl.Extension):
    """A reward of `1 / sqrt(n)` at the n-th visit of an observation's hash."""

    name = "counts"
    Config = CountsConfig
    Hyperparams = CountsHyperparams

    def init(self, key: jax.Array, num_envs: int, hyper: rl.PyTree) -> CountsState:
        del hyper
        bits, size = self.config.counts_bits, rl.vector_size(self.obs_spec)
        shape = (num_envs, 2**bits) if self.config.counts_episodic else (2**bits,)
        normal_key, spread_key = jax.random.split(key)
        normals, offset = jnp.split(jax.random.normal(normal_key, (size + 1, bits)), [size])
        # Near the mean, hyperplanes tell one-hot observations apart; further out, single numbers.
        bias = offset[0] * jax.random.uniform(spread_key, (bits,))
        return CountsState(
            projection=normals / jnp.linalg.norm(normals, axis=0, keepdims=True),
            bias=bias,
            obs=rl.RunningStats.zero((size,)),
            table=jnp.zeros(shape, jnp.float32),
        )

    def update(
        self,
        state: CountsState,
        trajectory: rl.Trajectory,
        key: jax.Array,
        hyper: rl.PyTree,
    ) -> tuple[rl.Trajectory, CountsState, rl.Metrics]:
        """Count the successors in the order of the steps, and add the rewards."""
        del key
        shape = trajectory.reward.shape
        flat = rl.vector(self.obs_spec, rl.flatten(trajectory.next_obs))
        stats = state.obs.add(flat)
        above = stats.normalize(flat) @ state.projection > state.bias[None]
        weights = 2 ** jnp.arange(self.config.counts_bits)
        hashes = jnp.where(above, weights, 0).sum(axis=1).reshape(shape)
        rows = jnp.arange(shape[1])

        def count(
            table: jax.Array, step: tuple[jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array]:
            number, first = step
            if not self.config.counts_episodic:
                table = table.at[number].add(1.0)
                return table, table[number]
            table = jnp.where(first[:, None], 0.0, table).at[rows, number].add(1.0)
            return table, table[rows, number]

        table, visits = jax.lax.scan(count, state.table, (hashes, trajectory.first))
        bonus = jax.lax.rsqrt(visits)
        reward = trajectory.reward + hyper.counts_coef * bonus
        after = replace(state, table=table, obs=stats)
        return replace(trajectory, reward=reward), after, {"reward": bonus.mean()}
