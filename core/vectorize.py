"""Many copies of one environment, with resets that keep the true successor observation."""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from .environment import Environment, TimeStep
from .errors import TriglotError

PyTree: TypeAlias = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Pool:
    """Starts made in advance, used in order, so that none repeats before all were used."""

    starts: TimeStep  # [P, ...]
    position: jax.Array  # int32 [], starts used since the pool was made


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class VectorState:
    """Where `N` environments stand, after any reset.

    Attributes:
      state: the environments' own states, `[N, ...]`.
      obs, action_mask: what the policy sees next, `[N, ...]`.
      first: bool `[N]`, an episode starts here.
      episode_return: float32 `[N]`, reward since the episode's start.
      episode_length: int32 `[N]`, steps since the episode's start.
      pool: starts made in advance, or None.
    """

    state: PyTree
    obs: PyTree
    action_mask: jax.Array | None
    first: jax.Array
    episode_return: jax.Array
    episode_length: jax.Array
    pool: Pool | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Transition:
    """What the `N` environments said of one action, before any reset.

    Attributes:
      reward: float32 `[N]`.
      terminated, truncated: bool `[N]`.
      next_obs, next_action_mask: the true successor's, `[N, ...]`.
      episode_return, episode_length: `[N]`, of the episode so far, this step included.
    """

    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    next_obs: PyTree
    next_action_mask: jax.Array | None
    episode_return: jax.Array
    episode_length: jax.Array

    @property
    def done(self) -> jax.Array:
        """Tell where an episode ended, either way; never bootstrap on it."""
        return self.terminated | self.truncated


@dataclass(frozen=True)
class VectorEnvironment:
    """`num_envs` copies of `env`, each restarted as soon as its episode ends.

    Attributes:
      env: the single environment.
      num_envs: `N`.
      resets: `fresh` makes a new start for every environment at every step and keeps those that
        are needed (under `vmap` a conditional computes both sides anyway): right where a reset
        costs little. `pool` makes `pool_size` starts at each `refresh`, between rollouts, and
        deals them out in order: right where a reset is costly, such as a generated maze. `auto`
        is `pool` where the environment declares `costly_reset = True`, and else `fresh`.
      pool_size: `P`; 0 means `num_envs`.
    """

    env: Environment
    num_envs: int
    resets: Literal["auto", "fresh", "pool"] = "auto"
    pool_size: int = 0

    def __post_init__(self) -> None:
        if self.num_envs < 1:
            raise TriglotError(f"num_envs must be at least 1, got {self.num_envs}.")
        if self.resets not in ("auto", "fresh", "pool"):
            raise TriglotError(f"resets must be 'auto', 'fresh' or 'pool', got {self.resets!r}.")
        if self.resets == "auto":
            costly = getattr(self.env, "costly_reset", False)
            object.__setattr__(self, "resets", "pool" if costly else "fresh")
        if self.pool_size < 0 or (self.pool_size and self.resets == "fresh"):
            raise TriglotError(
                f"pool_size is for resets='pool' and at least 0, got {self.pool_size} with "
                f"resets={self.resets!r}."
            )

    def reset(self, key: jax.Array) -> VectorState:
        """Start all environments."""
        start_key, pool_key = jax.random.split(key)
        starts = self._starts(start_key, self.num_envs)
        return VectorState(
            state=starts.state,
            obs=starts.obs,
            action_mask=starts.action_mask,
            first=jnp.ones((self.num_envs,), bool),
            episode_return=jnp.zeros((self.num_envs,), jnp.float32),
            episode_length=jnp.zeros((self.num_envs,), jnp.int32),
            pool=self._new_pool(pool_key),
        )

    def refresh(self, state: VectorState, key: jax.Array) -> VectorState:
        """Fill the pool anew; call it between rollouts. Without a pool, nothing changes."""
        return state if self.resets == "fresh" else replace(state, pool=self._new_pool(key))

    def step(
        self, state: VectorState, action: jax.Array, key: jax.Array
    ) -> tuple[VectorState, Transition]:
        """Take one action `[N, ...]` in each environment; restart those whose episode ended."""
        step_key, reset_key = jax.random.split(key)
        step_keys = jax.random.split(step_key, self.num_envs)
        stepped = jax.vmap(self.env.step)(state.state, action, step_keys)
        transition = Transition(
            reward=stepped.reward,
            terminated=stepped.terminated,
            truncated=stepped.truncated,
            next_obs=stepped.obs,
            next_action_mask=stepped.action_mask,
            episode_return=state.episode_return + stepped.reward,
            episode_length=state.episode_length + 1,
        )
        done = transition.done
        starts, pool = self._deal(state.pool, done, reset_key)

        def where_done(start: jax.Array, going_on: jax.Array) -> jax.Array:
            mask = done.reshape(done.shape + (1,) * (going_on.ndim - 1))
            return jnp.where(mask, start, going_on)

        now = jax.tree.map(where_done, starts, stepped)
        return VectorState(
            state=now.state,
            obs=now.obs,
            action_mask=now.action_mask,
            first=done,
            episode_return=jnp.where(done, 0.0, transition.episode_return),
            episode_length=jnp.where(done, 0, transition.episode_length),
            pool=pool,
        ), transition

    def _starts(self, key: jax.Array, count: int) -> TimeStep:
        return jax.vmap(self.env.reset)(jax.random.split(key, count))

    def _new_pool(self, key: jax.Array) -> Pool | None:
        if self.resets == "fresh":
            return None
        starts = self._starts(key, self.pool_size or self.num_envs)
        return Pool(starts=starts, position=jnp.zeros((), jnp.int32))

    def _deal(
        self, pool: Pool | None, done: jax.Array, key: jax.Array
    ) -> tuple[TimeStep, Pool | None]:
        if pool is None:
            return self._starts(key, self.num_envs), None
        taken = jnp.cumsum(done.astype(jnp.int32))
        size = self.pool_size or self.num_envs
        index = (pool.position + taken - 1) % size
        starts = jax.tree.map(lambda leaf: leaf[index], pool.starts)
        return starts, replace(pool, position=pool.position + taken[-1])
