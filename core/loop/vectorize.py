"""Vectorize an environment, with automatic resets that keep the true successor observation."""

import functools
from dataclasses import dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp

from ..arguments import check_env
from ..environment import (
    Environment,
    TimeStep,
    check_starts,
    check_steps,
    curriculum,
    has_costly_reset,
    initial_progress,
    with_strong_reward,
)
from ..errors import TriglotError, user_error_context
from ..host_environment import require_jittable
from ..hyper import check_count
from ..numerics import where_rows
from ..types import EnvState, Obs, PyTree, pytree_dataclass

# Initial states generated per call for a pool; smaller batches cost far more per generated maze.
_BATCH = 64
# A pool has enough initial states for episodes of at least this mean length.
_SHORT_EPISODE = 8


@pytree_dataclass
class Pool:
    """A ring buffer of `R` precomputed initial states, used in order.

    Attributes:
      starts: initial states, `[R, ...]`.
      next: int32 `[]`, the index of the next one to use.
      dealt: int32 `[]`, how many before it were used and not yet replaced.
    """

    starts: TimeStep
    next: jax.Array
    dealt: jax.Array


@pytree_dataclass
class VectorState:
    """The state of `N` environments, after any reset.

    Attributes:
      state: the environments' states, `[N, ...]`.
      obs, action_mask: the next policy input, `[N, ...]`.
      first: bool `[N]`, an episode starts here.
      episode_return: float32 `[N]`, reward since the episode's start.
      episode_length: int32 `[N]`, steps since the episode's start.
      pool: precomputed initial states, or None.
      progress: of a `Curriculum`, shared by the environments; None without. In the environments'
        own states, each would know its own episodes only.
    """

    state: EnvState
    obs: Obs
    action_mask: jax.Array | None
    first: jax.Array
    episode_return: jax.Array
    episode_length: jax.Array
    pool: Pool | None
    progress: PyTree = None


@pytree_dataclass
class Transition:
    """The batched result of one step of `N` environments, before any reset.

    Attributes:
      reward: float32 `[N]`.
      terminated, truncated: bool `[N]`.
      next_obs, next_action_mask: the true successor's, `[N, ...]`.
      episode_return, episode_length: `[N]`, of the episode so far, including this step.
    """

    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    next_obs: Obs
    next_action_mask: jax.Array | None
    episode_return: jax.Array
    episode_length: jax.Array

    @property
    def done(self) -> jax.Array:
        """Where an episode ended, by termination or truncation; do not bootstrap on it."""
        return self.terminated | self.truncated


@dataclass(frozen=True)
class VectorEnvironment:
    """`num_envs` copies of `env`, each reset as soon as its episode ends.

    Attributes:
      env: the single environment.
      num_envs: `N`.
      resets: `fresh` computes a reset of every environment at every step and uses those that are
        needed (under `vmap` a conditional computes both branches anyway). Use it for cheap resets.
        `pool` takes precomputed initial states, and `refresh`, between rollouts, replaces the used
        ones. Use it for costly resets, such as generated mazes. `auto` is `pool` if the environment
        declares `costly_reset = True`, and `fresh` otherwise.
      pool_size: episodes that may end between two refreshes before an initial state is reused. If
        more end, the oldest are reused. 0 lets `for_rollouts`, which `Trainer` calls, choose it;
        without that call it is `N`. The pool is larger by one batch.
    """

    env: Environment
    num_envs: int
    resets: Literal["auto", "fresh", "pool"] = "auto"
    pool_size: int = 0

    def __post_init__(self) -> None:
        check_env(self.env)
        require_jittable(self.env)
        check_count("num_envs", self.num_envs)
        if self.resets not in ("auto", "fresh", "pool"):
            raise TriglotError(f"resets must be 'auto', 'fresh' or 'pool', got {self.resets!r}.")
        if self.resets == "auto":
            costly = has_costly_reset(self.env)
            object.__setattr__(self, "resets", "pool" if costly else "fresh")
        check_count("pool_size", self.pool_size, 0)
        if self.pool_size and self.resets == "fresh":
            raise TriglotError(
                f"pool_size must be 0 unless resets='pool'; got {self.pool_size} with "
                f"resets={self.resets!r}."
            )

    def for_rollouts(self, rollout_length: int) -> "VectorEnvironment":
        """Choose the pool size, unless given, for a refresh every `rollout_length` steps.

        No initial state is reused if episodes last 8 steps or more on average.
        """
        if self.resets == "fresh" or self.pool_size:
            return self
        return replace(self, pool_size=self.num_envs * -(-rollout_length // _SHORT_EPISODE))

    def reset(self, key: jax.Array) -> VectorState:
        """Reset all environments and fill the pool."""
        start_key, pool_key = jax.random.split(key)
        keys, pool = jax.random.split(start_key, self.num_envs), None
        if self.resets == "pool":
            keys = jnp.concatenate([keys, jax.random.split(pool_key, self._ring_size)])
        progress = initial_progress(self.env)
        starts = self._starts(keys, progress)  # one call, so that a generator compiles once
        if self.resets == "pool":
            ring = jax.tree.map(lambda leaf: leaf[self.num_envs :], starts)
            starts = jax.tree.map(lambda leaf: leaf[: self.num_envs], starts)
            pool = Pool(starts=ring, next=jnp.int32(0), dealt=jnp.int32(0))
        return self._begun(starts, pool, progress)

    def restart(self, state: VectorState, key: jax.Array) -> VectorState:
        """Begin a new episode in every environment; what a `Curriculum` has learned is kept."""
        starts, pool = self._deal(state, jnp.ones((self.num_envs,), bool), key)
        return self._begun(starts, pool, state.progress)

    def refresh(self, state: VectorState, key: jax.Array) -> VectorState:
        """Replace the used initial states of the pool; call it between rollouts.

        They are replaced in whole batches; a remainder waits for the next call. Without a pool,
        this returns `state`.
        """
        if state.pool is None:
            return state

        def make_batch(pool: Pool) -> Pool:
            keys = jax.random.split(jax.random.fold_in(key, pool.dealt), self._batch_size)
            batch_starts = self._starts(keys, state.progress)
            first = pool.next - pool.dealt
            index = (first + jnp.arange(self._batch_size, dtype=jnp.int32)) % self._ring_size
            starts = jax.tree.map(
                lambda old, new: old.at[index].set(new), pool.starts, batch_starts
            )
            return replace(pool, starts=starts, dealt=pool.dealt - self._batch_size)

        pool = replace(state.pool, dealt=jnp.minimum(state.pool.dealt, self._ring_size))
        pool = jax.lax.while_loop(lambda pool: pool.dealt >= self._batch_size, make_batch, pool)
        return replace(state, pool=pool)

    def step(
        self, state: VectorState, action: jax.Array, key: jax.Array
    ) -> tuple[VectorState, Transition]:
        """Take one action `[N, ...]` in each environment; reset those whose episode ended."""
        step_key, reset_key = jax.random.split(key)
        step_keys = jax.random.split(step_key, self.num_envs)
        with user_error_context(f"the environment {self.env.name} failed in step", chained=True):
            stepped = jax.vmap(self.env.step)(state.state, action, step_keys)
        stepped = with_strong_reward(stepped)
        check_steps(self.env, state.state, state.obs, stepped)
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
        progress = state.progress
        if progress is not None:
            progress = curriculum(self.env).update_progress(
                progress, stepped.state, transition.episode_return, done
            )
        starts, pool = self._deal(replace(state, progress=progress), done, reset_key)
        now = where_rows(done, starts, stepped)
        return VectorState(
            state=now.state,
            obs=now.obs,
            action_mask=now.action_mask,
            first=done,
            episode_return=jnp.where(done, 0.0, transition.episode_return),
            episode_length=jnp.where(done, 0, transition.episode_length),
            pool=pool,
            progress=progress,
        ), transition

    def _begun(self, starts: TimeStep, pool: Pool | None, progress: PyTree) -> VectorState:
        return VectorState(
            state=starts.state,
            obs=starts.obs,
            action_mask=starts.action_mask,
            first=jnp.ones((self.num_envs,), bool),
            episode_return=jnp.zeros((self.num_envs,), jnp.float32),
            episode_length=jnp.zeros((self.num_envs,), jnp.int32),
            pool=pool,
            progress=progress,
        )

    def _starts(self, keys: jax.Array, progress: PyTree) -> TimeStep:
        env, reset = self.env, self.env.reset
        if progress is not None:
            reset = functools.partial(curriculum(env).reset_by, progress)
        with user_error_context(f"the environment {env.name} failed in reset", chained=True):
            starts = with_strong_reward(jax.vmap(reset)(keys))
        check_starts(env, starts)
        return starts

    @property
    def _batch_size(self) -> int:
        """Initial states that `refresh` replaces per batch."""
        return max(_BATCH, self.num_envs)

    @property
    def _ring_size(self) -> int:
        """Size of the ring: the pool, and the remainder that waits for the next refresh."""
        return (self.pool_size or self.num_envs) + self._batch_size - 1

    def _deal(
        self, state: VectorState, done: jax.Array, key: jax.Array
    ) -> tuple[TimeStep, Pool | None]:
        pool = state.pool
        if pool is None:
            return self._starts(jax.random.split(key, self.num_envs), state.progress), None
        taken = jnp.cumsum(done.astype(jnp.int32))
        index = (pool.next + taken - 1) % self._ring_size
        starts = jax.tree.map(lambda leaf: leaf[index], pool.starts)
        after = (pool.next + taken[-1]) % self._ring_size
        return starts, replace(pool, next=after, dealt=pool.dealt + taken[-1])
