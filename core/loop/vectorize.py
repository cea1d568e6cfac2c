"""Many copies of one environment, with resets that keep the true successor observation."""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from ..environment import Environment, TimeStep, has_costly_reset
from ..errors import TriglotError
from ..host_environment import require_jittable

PyTree: TypeAlias = Any


# Starts that a pool makes in one call: of fewer than some 64, a generated maze costs far more.
_BATCH = 64
# Steps of an episode, on average, down to which a rollout's episodes have a start each.
_SHORT_EPISODE = 8


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Pool:
    """A ring of `R` starts made in advance, dealt in order.

    Attributes:
      starts: `[R, ...]`.
      next: int32 `[]`, which start is dealt next.
      dealt: int32 `[]`, how many before it were dealt and not made anew since.
    """

    starts: TimeStep
    next: jax.Array
    dealt: jax.Array


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
        costs little. `pool` deals starts that were made in advance, and `refresh`, between
        rollouts, makes as many anew as were dealt: right where a reset is costly, such as a
        generated maze. `auto` is `pool` where the environment declares `costly_reset = True`, and
        else `fresh`.
      pool_size: episodes that may end between two refreshes without any start being dealt twice,
        within a rollout or ever; where more end, the oldest of the pool are dealt again. 0 leaves
        it to `for_rollouts`, which `Trainer` calls; `N` where nobody does. The pool itself is
        larger by a batch.
    """

    env: Environment
    num_envs: int
    resets: Literal["auto", "fresh", "pool"] = "auto"
    pool_size: int = 0

    def __post_init__(self) -> None:
        require_jittable(self.env)
        if self.num_envs < 1:
            raise TriglotError(f"num_envs must be at least 1, got {self.num_envs}.")
        if self.resets not in ("auto", "fresh", "pool"):
            raise TriglotError(f"resets must be 'auto', 'fresh' or 'pool', got {self.resets!r}.")
        if self.resets == "auto":
            costly = has_costly_reset(self.env)
            object.__setattr__(self, "resets", "pool" if costly else "fresh")
        if self.pool_size < 0 or (self.pool_size and self.resets == "fresh"):
            raise TriglotError(
                f"pool_size is for resets='pool' and at least 0, got {self.pool_size} with "
                f"resets={self.resets!r}."
            )

    def for_rollouts(self, rollout_length: int) -> "VectorEnvironment":
        """Choose the pool's size, unless it was given, for a refresh every `rollout_length` steps.

        Where episodes last 8 steps or more on average, no start is dealt twice.
        """
        if self.resets == "fresh" or self.pool_size:
            return self
        return replace(self, pool_size=self.num_envs * -(-rollout_length // _SHORT_EPISODE))

    def reset(self, key: jax.Array) -> VectorState:
        """Start all environments, and fill the pool."""
        start_key, pool_key = jax.random.split(key)
        keys, pool = jax.random.split(start_key, self.num_envs), None
        if self.resets == "pool":
            keys = jnp.concatenate([keys, jax.random.split(pool_key, self._ring_size)])
        starts = jax.vmap(self.env.reset)(keys)  # one call, so that a generator compiles once
        if self.resets == "pool":
            ring = jax.tree.map(lambda leaf: leaf[self.num_envs :], starts)
            starts = jax.tree.map(lambda leaf: leaf[: self.num_envs], starts)
            pool = Pool(starts=ring, next=jnp.int32(0), dealt=jnp.int32(0))
        return VectorState(
            state=starts.state,
            obs=starts.obs,
            action_mask=starts.action_mask,
            first=jnp.ones((self.num_envs,), bool),
            episode_return=jnp.zeros((self.num_envs,), jnp.float32),
            episode_length=jnp.zeros((self.num_envs,), jnp.int32),
            pool=pool,
        )

    def refresh(self, state: VectorState, key: jax.Array) -> VectorState:
        """Make anew the starts that were dealt; call it between rollouts.

        Without a pool, nothing changes. They are made in whole batches, so that nothing is made in
        vain; what is less than a batch waits for the next time.
        """
        if state.pool is None:
            return state

        def make_batch(pool: Pool) -> Pool:
            made = self._starts(jax.random.fold_in(key, pool.dealt), self._batch_size)
            first = pool.next - pool.dealt
            index = (first + jnp.arange(self._batch_size, dtype=jnp.int32)) % self._ring_size
            starts = jax.tree.map(lambda old, new: old.at[index].set(new), pool.starts, made)
            return replace(pool, starts=starts, dealt=pool.dealt - self._batch_size)

        pool = replace(state.pool, dealt=jnp.minimum(state.pool.dealt, self._ring_size))
        pool = jax.lax.while_loop(lambda pool: pool.dealt >= self._batch_size, make_batch, pool)
        return replace(state, pool=pool)

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

    @property
    def _batch_size(self) -> int:
        """Count the starts that `refresh` makes in one call."""
        return max(_BATCH, self.num_envs)

    @property
    def _ring_size(self) -> int:
        """Count the starts of a pool: those promised, and those that await the next refresh."""
        return (self.pool_size or self.num_envs) + self._batch_size - 1

    def _deal(
        self, pool: Pool | None, done: jax.Array, key: jax.Array
    ) -> tuple[TimeStep, Pool | None]:
        if pool is None:
            return self._starts(key, self.num_envs), None
        taken = jnp.cumsum(done.astype(jnp.int32))
        index = (pool.next + taken - 1) % self._ring_size
        starts = jax.tree.map(lambda leaf: leaf[index], pool.starts)
        after = (pool.next + taken[-1]) % self._ring_size
        return starts, replace(pool, next=after, dealt=pool.dealt + taken[-1])
