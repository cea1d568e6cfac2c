"""Batching, resets and time limits, on an environment that tells where it stands."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.core.environment import TimeStep, first_step
from triglot.core.errors import TriglotError
from triglot.core.loop.vectorize import Transition, VectorEnvironment, VectorState
from triglot.core.specs import Box, Discrete, Spec
from triglot.core.wrappers.ends import TimeLimit
from triglot.envs import gridworld


@dataclass(frozen=True)
class Counter:
    """Observe (start, time); terminate after `length + start % 2` steps; pay the time.

    `start` is drawn from the reset's key, so that it tells one reset from another. The state keeps
    a typed key too, as many environments' states do.
    """

    length: int = 3
    name: str = "counter"

    @property
    def obs_spec(self) -> Spec:
        return Box((2,), "int32", 0)

    @property
    def action_spec(self) -> Spec:
        return Discrete(2)

    def reset(self, key: jax.Array) -> TimeStep:
        start = jax.random.randint(key, (), 0, 2**30)
        return self._at(first_step(None, None), start, jnp.int32(0), key)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        start, time, old_key = state
        at = self._at(first_step(None, None), start, time + 1, old_key)
        ended = time + 1 >= self.length + start % 2
        return replace(at, reward=(time + 1).astype(jnp.float32), terminated=ended)

    def _at(self, step: TimeStep, start: jax.Array, time: jax.Array, key: jax.Array) -> TimeStep:
        # Action 0 is allowed at the start only.
        mask = jnp.stack([time == 0, jnp.ones((), bool)])
        return replace(
            step, state=(start, time, key), obs=jnp.stack([start, time]), action_mask=mask
        )


def play(
    vector: VectorEnvironment, num_steps: int, key: jax.Array
) -> tuple[VectorState, VectorState, Transition]:
    """Return the last state, the state before each step and the transitions, `[T, N]`."""
    reset_key, steps_key = jax.random.split(key)

    def step(state: VectorState, step_key: jax.Array) -> Any:
        action = jnp.ones((vector.num_envs,), jnp.int32)
        next_state, transition = vector.step(state, action, step_key)
        return next_state, (state, transition)

    keys = jax.random.split(steps_key, num_steps)
    last, (states, transitions) = jax.lax.scan(step, vector.reset(reset_key), keys)
    return last, states, transitions


jitted_play = jax.jit(play, static_argnums=(0, 1))


@pytest.fixture(scope="module", params=["fresh", "pool"])
def played(request: pytest.FixtureRequest) -> tuple[VectorState, Transition]:
    """Play 20 steps of 4 counters."""
    vector = VectorEnvironment(
        Counter(), 4, resets=request.param, pool_size=64 if request.param == "pool" else 0
    )
    return jitted_play(vector, 20, jax.random.key(0))[1:]


def test_the_successor_at_an_episodes_end_is_from_before_the_reset(
    played: tuple[VectorState, Transition],
) -> None:
    states, transitions = played
    start, time = np.moveaxis(np.asarray(states.obs), -1, 0)
    next_start, next_time = np.moveaxis(np.asarray(transitions.next_obs), -1, 0)
    np.testing.assert_array_equal(next_start, start)
    np.testing.assert_array_equal(next_time, time + 1)
    np.testing.assert_array_equal(transitions.terminated, next_time == 3 + start % 2)
    assert not np.asarray(transitions.next_action_mask)[..., 0].any()


def test_after_an_end_the_policy_sees_a_new_start(played: tuple[VectorState, Transition]) -> None:
    states, transitions = played
    done = np.asarray(transitions.done)[:-1]
    start, time = np.moveaxis(np.asarray(states.obs), -1, 0)
    np.testing.assert_array_equal(time[1:] == 0, done)
    np.testing.assert_array_equal(start[1:] != start[:-1], done)
    np.testing.assert_array_equal(np.asarray(states.action_mask)[1:, :, 0], done)
    np.testing.assert_array_equal(states.state[1], time)


def test_first_marks_the_starts(played: tuple[VectorState, Transition]) -> None:
    states, transitions = played
    first = np.asarray(states.first)
    assert first[0].all()
    np.testing.assert_array_equal(first[1:], np.asarray(transitions.done)[:-1])


def test_no_two_episodes_start_alike(played: tuple[VectorState, Transition]) -> None:
    states, _ = played
    starts = np.asarray(states.obs)[..., 0][np.asarray(states.first)]
    assert len(starts) > 20
    assert len(set(starts.tolist())) == len(starts)


def test_returns_and_lengths_are_of_the_episode_so_far(
    played: tuple[VectorState, Transition],
) -> None:
    states, transitions = played
    time = np.asarray(transitions.next_obs)[..., 1]
    np.testing.assert_array_equal(transitions.episode_length, time)
    np.testing.assert_array_equal(transitions.episode_return, time * (time + 1) / 2)
    before = np.asarray(states.obs)[..., 1]
    np.testing.assert_array_equal(states.episode_length, before)
    np.testing.assert_array_equal(states.episode_return, before * (before + 1) / 2)


def dealt_in(vector: VectorEnvironment, num_rollouts: int, num_steps: int) -> Any:
    """Return the pool at the start of each rollout, and the starts dealt in each, in order."""

    @jax.jit
    def rollout(state: VectorState, key: jax.Array) -> Any:
        refresh_key, steps_key = jax.random.split(key)
        state = vector.refresh(state, refresh_key)

        def step(state: VectorState, step_key: jax.Array) -> Any:
            action = jnp.ones((vector.num_envs,), jnp.int32)
            after, transition = vector.step(state, action, step_key)
            return after, (after.obs[:, 0], transition.done)

        last, seen = jax.lax.scan(step, state, jax.random.split(steps_key, num_steps))
        return last, state.pool, seen

    state, pools, dealt = vector.reset(jax.random.key(0)), [], []
    for key in jax.random.split(jax.random.key(1), num_rollouts):
        state, pool, (starts, done) = rollout(state, key)
        pools.append(pool)
        # Within a step the environments are served in order.
        dealt.append(np.asarray(starts)[np.asarray(done)].tolist())
    return pools, dealt


def test_no_start_is_dealt_twice_while_no_more_episodes_end_than_the_pool_promises() -> None:
    vector = VectorEnvironment(Counter(), 8, resets="pool", pool_size=200)
    pools, dealt = dealt_in(vector, num_rollouts=6, num_steps=75)
    assert all(100 < len(starts) <= 200 for starts in dealt)
    every = [start for rollout in dealt for start in rollout]
    assert len(every) > 2 * len(pools[0].starts.obs)  # the whole ring was made anew, and again
    assert len(set(every)) == len(every)
    assert all(0 <= int(pool.dealt) < 64 for pool in pools)


@pytest.mark.slow
def test_a_pool_that_is_too_small_deals_its_starts_again_in_order() -> None:
    vector = VectorEnvironment(Counter(), 8, resets="pool", pool_size=8)
    pools, dealt = dealt_in(vector, num_rollouts=2, num_steps=75)
    size = len(pools[0].starts.obs)
    assert size == 8 + 64 - 1
    for pool, starts in zip(pools, dealt, strict=True):
        ring = np.asarray(pool.starts.obs)[:, 0].tolist()
        assert len(starts) > 1.5 * size
        assert starts == [ring[(int(pool.next) + i) % size] for i in range(len(starts))]
    # Then all were made anew, but less than a batch.
    both = set(dealt[0]) & set(dealt[1])
    assert len(both) == size % 64 == int(pools[1].dealt)


def test_a_pools_state_comes_with_its_observation() -> None:
    vector = VectorEnvironment(Counter(), 2, resets="pool", pool_size=3)
    _, states, _ = jitted_play(vector, 12, jax.random.key(0))
    np.testing.assert_array_equal(states.state[0], states.obs[..., 0])


@pytest.mark.covering(3)
@pytest.mark.parametrize("num_envs", [1, 3, 16])
def test_each_start_is_the_reset_of_a_key_of_its_own(num_envs: int) -> None:
    vector = VectorEnvironment(Counter(), num_envs, resets="pool", pool_size=5)
    state = jax.jit(vector.reset)(jax.random.key(0))
    assert state.pool is not None
    starts, _, keys = jax.tree.map(
        lambda own, pooled: jnp.concatenate([own, pooled]), state.state, state.pool.starts.state
    )
    assert len(starts) == num_envs + 5 + 64 - 1 == len(set(starts.tolist()))
    np.testing.assert_array_equal(jax.vmap(vector.env.reset)(keys).obs[:, 0], starts)


def test_refresh_leaves_the_episodes_as_they_are() -> None:
    vector = VectorEnvironment(Counter(), 64, resets="pool")
    last, _, _ = jitted_play(vector, 10, jax.random.key(0))
    refreshed = vector.refresh(last, jax.random.key(1))
    assert last.pool is not None and refreshed.pool is not None
    assert int(last.pool.dealt) >= 64 > int(refreshed.pool.dealt)
    for name in vars(last).keys() - {"pool"}:
        assert getattr(refreshed, name) is getattr(last, name)


@pytest.mark.covering(2)
@pytest.mark.parametrize("resets", ["fresh", "pool"])
def test_a_restart_begins_a_new_episode_everywhere(resets: Any) -> None:
    vector = VectorEnvironment(Counter(length=9), 4, resets=resets)
    last, _, _ = jitted_play(vector, 5, jax.random.key(0))
    begun = vector.restart(last, jax.random.key(1))
    assert not bool(last.first.any()) and bool(begun.first.all())
    assert begun.obs[:, 1].tolist() == begun.episode_length.tolist() == [0, 0, 0, 0]
    assert begun.episode_return.tolist() == [0.0] * 4
    starts = begun.obs[:, 0].tolist()
    assert len({*starts, *last.obs[:, 0].tolist()}) == 8
    if last.pool is not None and begun.pool is not None:
        assert int(begun.pool.dealt) == int(last.pool.dealt) + 4


def test_a_pool_suits_the_rollouts_unless_its_size_was_given() -> None:
    env = Counter()
    pooled = VectorEnvironment(env, 4, resets="pool")
    assert pooled.for_rollouts(128).pool_size == 4 * 16
    assert pooled.for_rollouts(1).pool_size == 4
    given = VectorEnvironment(env, 4, resets="pool", pool_size=5)
    assert given.for_rollouts(128) is given
    fresh = VectorEnvironment(env, 4)
    assert fresh.for_rollouts(128) is fresh


def test_a_costly_reset_takes_a_pool_and_a_time_limit_passes_it_on() -> None:
    @dataclass(frozen=True)
    class Costly(Counter):
        costly_reset: bool = True

    assert VectorEnvironment(Costly(), 2).resets == "pool"
    assert VectorEnvironment(TimeLimit(Costly(), 5), 2).resets == "pool"
    assert VectorEnvironment(TimeLimit(Counter(), 5), 2).resets == "fresh"
    assert VectorEnvironment(Costly(), 2, resets="fresh").resets == "fresh"


def test_refresh_does_nothing_without_a_pool() -> None:
    vector = VectorEnvironment(Counter(), 2)
    state = vector.reset(jax.random.key(0))
    assert vector.refresh(state, jax.random.key(1)) is state


@pytest.mark.covering(2)
@pytest.mark.parametrize("resets", ["fresh", "pool"])
def test_seeds_under_vmap_differ_and_equal_each_run_alone(resets: Any) -> None:
    vector = VectorEnvironment(Counter(), 3, resets=resets, pool_size=5 if resets == "pool" else 0)
    keys = jax.random.split(jax.random.key(0), 2)
    together = jax.jit(jax.vmap(lambda key: play(vector, 10, key)[2]))(keys)
    for seed in range(2):
        alone = jitted_play(vector, 10, keys[seed])[2]
        jax.tree.map(
            lambda several, one, i=seed: np.testing.assert_array_equal(several[i], one),
            together,
            alone,
        )
    assert not np.array_equal(together.next_obs[0], together.next_obs[1])


def test_a_time_limit_truncates_and_never_terminates() -> None:
    vector = VectorEnvironment(TimeLimit(Counter(length=100), 4), 2)
    _, states, transitions = jitted_play(vector, 12, jax.random.key(0))
    assert not transitions.terminated.any()
    expected = np.tile([[False], [False], [False], [True]], (3, 2))
    np.testing.assert_array_equal(transitions.truncated, expected)
    # The true successor, on which to bootstrap, and a clock that starts anew with each episode.
    np.testing.assert_array_equal(np.asarray(transitions.next_obs)[expected][:, 1], 4)
    np.testing.assert_array_equal(states.state.time[:, 0], np.tile(np.arange(4), 3))


def test_a_time_limit_lets_the_task_end_by_itself() -> None:
    vector = VectorEnvironment(TimeLimit(Counter(length=3), 10), 2)
    _, _, transitions = jitted_play(vector, 12, jax.random.key(0))
    assert transitions.terminated.any()
    assert not transitions.truncated.any()


def test_where_both_ends_meet_termination_wins() -> None:
    vector = VectorEnvironment(TimeLimit(Counter(length=3), 3), 4)
    _, _, transitions = jitted_play(vector, 12, jax.random.key(0))
    assert transitions.terminated.any()
    assert not (transitions.terminated & transitions.truncated).any()


def test_a_time_limit_is_the_environment_otherwise() -> None:
    inner = gridworld.make("4x4")
    env = TimeLimit(inner, 5)
    assert (env.name, env.obs_spec, env.action_spec) == (
        inner.name,
        inner.obs_spec,
        inner.action_spec,
    )
    assert hash(env) == hash(TimeLimit(gridworld.make("4x4"), 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"num_envs": 2, "resets": "lazy"}, "resets must be 'auto', 'fresh' or 'pool', got 'lazy'"),
        ({"num_envs": 2, "pool_size": 4}, "pool_size must be .*got 4 with resets='fr"),
        ({"num_envs": 2, "resets": "pool", "pool_size": -1}, "at least 0.*got -1"),
    ],
)
def test_bad_options_are_explained(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        VectorEnvironment(Counter(), **options)
