"""Levels: the same reset each time, others held out, and sampling by learning progress."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.core.wrappers.clock import Clock
from triglot.core.environment import initial_progress
from triglot.core.errors import TriglotError
from triglot.core.loop.vectorize import VectorEnvironment, VectorState
from triglot.core.wrappers.ends import TimeLimit
from triglot.core.wrappers.levels import (
    FAST,
    SLOW,
    UNIFORM,
    LevelProgress,
    Levels,
    LevelState,
    held_out,
)
from triglot.core.wrappers.observations import FrameStack
from triglot.envs import gridworld, gymnax

CARTPOLE = gymnax.make("CartPole-v1", max_steps_in_episode=5)  # each key gives another start


def starts(env: Any, count: int = 200) -> np.ndarray:
    return np.asarray(jax.vmap(env.reset)(jax.random.split(jax.random.key(0), count)).obs)


def rows(observations: np.ndarray) -> set[tuple[float, ...]]:
    return {tuple(row.tolist()) for row in observations}


def test_a_level_is_a_reset_by_its_number() -> None:
    env = Levels(CARTPOLE, 3, first_level=10)
    key = jax.random.key(0)
    expected = [CARTPOLE.reset(jax.random.fold_in(key, number)).obs for number in (10, 11, 12)]
    for level in range(3):
        np.testing.assert_array_equal(env.start(jnp.int32(level)).obs, expected[level])
    assert rows(starts(env)) == rows(np.stack(expected))


def test_levels_are_equally_likely() -> None:
    env = Levels(CARTPOLE, 4)
    levels = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 4000)).state.level
    counts = np.bincount(levels, minlength=4)
    assert np.abs(counts - 1000).max() < 4 * (4000 * 0.25 * 0.75) ** 0.5


def test_held_out_levels_are_other_levels_inside_all_wrappers() -> None:
    env = TimeLimit(FrameStack(Levels(CARTPOLE, 5, sampling="learning_progress"), 1), 9)
    unseen: Any = held_out(env)
    assert isinstance(unseen, TimeLimit) and isinstance(unseen.env, FrameStack)
    assert unseen.env.env == Levels(CARTPOLE, 2**31 - 6, 5)
    assert unseen.obs_spec == env.obs_spec
    trained, others = rows(starts(env)), rows(starts(unseen))
    assert len(trained) == 5 and len(others) == 200 and not trained & others
    assert held_out(TimeLimit(CARTPOLE, 9)) is None and held_out(CARTPOLE) is None


def by_hand(num_levels: int) -> tuple[Levels, LevelProgress]:
    env = Levels(CARTPOLE, num_levels, sampling="learning_progress")
    progress = initial_progress(env)
    assert isinstance(progress, LevelProgress)
    return env, progress


def learn(env: Levels, progress: Any, *episodes: tuple[int, float, bool]) -> Any:
    level, returns, done = map(jnp.array, zip(*episodes, strict=True))
    states = LevelState(state=(), level=level.astype(jnp.int32))
    return jax.jit(env.update_progress)(progress, states, returns.astype(jnp.float32), done)


def test_progress_by_hand() -> None:
    env, progress = by_hand(3)
    np.testing.assert_allclose(env.probabilities(progress), [1 / 3] * 3, rtol=1e-6)
    # Two episodes of level 0 end at once, and one of level 2; that of level 1 goes on.
    progress = learn(env, progress, (0, 1.0, True), (0, 3.0, True), (2, 5.0, True), (1, 9.0, False))
    assert progress.fast.tolist() == progress.slow.tolist() == [2.0, 0.0, 5.0]
    assert progress.seen.tolist() == [True, False, True]
    np.testing.assert_allclose(env.probabilities(progress), [1 / 3] * 3, rtol=1e-6)
    progress = learn(env, progress, (0, 4.0, True), (2, np.nan, False))
    np.testing.assert_allclose(progress.fast, [2 + FAST * 2, 0.0, 5.0], rtol=1e-6)
    np.testing.assert_allclose(progress.slow, [2 + SLOW * 2, 0.0, 5.0], rtol=1e-6)
    rest = UNIFORM / 3
    expected = [1 - UNIFORM + rest, rest, rest]
    np.testing.assert_allclose(env.probabilities(progress), expected, rtol=1e-6)
    # What becomes worse counts as much.
    progress = learn(env, progress, (2, 3.0, True))
    np.testing.assert_allclose(env.probabilities(progress), [0.4 + rest, rest, 0.4 + rest], 1e-5)


def test_episodes_start_where_the_progress_is() -> None:
    env, progress = by_hand(4)
    progress = learn(env, learn(env, progress, (2, 0.0, True)), (2, 1.0, True))
    keys = jax.random.split(jax.random.key(0), 2000)
    levels = jax.vmap(lambda key: env.reset_by(progress, key).state.level)(keys)
    share = np.bincount(levels, minlength=4) / 2000
    np.testing.assert_allclose(share, env.probabilities(progress), atol=4 * (0.25 / 2000) ** 0.5)


def test_the_last_level_is_drawn_too_and_none_behind_it() -> None:
    env, progress = by_hand(2)
    keys = jax.random.split(jax.random.key(0), 100)
    levels = jax.vmap(lambda key: env.reset_by(progress, key).state.level)(keys)
    assert set(levels.tolist()) == {0, 1}


@pytest.mark.covering(2)
@pytest.mark.parametrize("resets", ["fresh", "pool"])
def test_environments_share_their_progress(resets: Any) -> None:
    # Through wrappers; the clock's return is the same in all levels: 10 + 20.
    env = TimeLimit(FrameStack(Levels(Clock(2), 3, sampling="learning_progress"), 2), 9)
    vector = VectorEnvironment(env, 4, resets=resets)

    def step(state: VectorState, key: jax.Array) -> Any:
        level = state.state.state.state.level  # of the episode that the step belongs to
        after, _ = vector.step(state, jnp.zeros((4,), jnp.int32), key)
        return after, (level, state.progress)

    start = jax.jit(vector.reset)(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 6)
    last, (levels, progress) = jax.jit(lambda s: jax.lax.scan(step, s, keys))(start)
    levels, progress = jax.tree.map(np.asarray, (levels, progress))
    assert not progress.seen[:2].any()  # before the first end
    for time in (2, 4):
        played = set(levels[:time].ravel().tolist())
        assert set(np.flatnonzero(progress.seen[time]).tolist()) == played
        np.testing.assert_array_equal(progress.fast[time][sorted(played)], 30.0)
    assert last.progress.fast.shape == (3,)
    refreshed = jax.jit(vector.refresh)(last, jax.random.key(2))
    chex.assert_trees_all_equal(refreshed.progress, last.progress)


@pytest.mark.slow
def test_the_next_episodes_follow_the_progress() -> None:
    env = Levels(Clock(2), 4, sampling="learning_progress")
    vector = VectorEnvironment(env, 1000)
    state = vector.reset(jax.random.key(0))
    known = LevelProgress(
        fast=jnp.array([30.0, 30.0, 99.0, 30.0]),
        slow=jnp.full((4,), 30.0),
        seen=jnp.ones((4,), bool),
    )
    state = VectorState(**{**vars(state), "progress": known})
    for key in jax.random.split(jax.random.key(1)):  # all episodes end after two steps
        state, _ = vector.step(state, jnp.zeros((1000,), jnp.int32), key)
    assert state.first.all()
    share = np.mean(np.asarray(state.state.level) == 2)
    assert share == pytest.approx(1 - UNIFORM + UNIFORM / 4, abs=0.06)


def test_without_a_curriculum_no_progress_is_kept() -> None:
    env = TimeLimit(Levels(Clock(), 3), 9)
    assert initial_progress(env) is None and initial_progress(Clock()) is None
    assert VectorEnvironment(env, 2).reset(jax.random.key(0)).progress is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jumanji:Maze-v0,num_rows=5,num_cols=5", "gridworld:3x3"])
def test_a_curriculum_trains_and_seeds_do_not_share_it(name: str) -> None:
    env = triglot.make_env(
        name, levels=6, level_sampling="learning_progress", time_limit=8, flatten_observation=True
    )
    config = {"num_envs": 4, "rollout_length": 16}
    agent = triglot.make_agent("ppo", env, config=config)
    key = jax.random.key(0)
    result = triglot.train(agent, env, key=key, total_steps=256, num_seeds=2)
    progress = result.runner_state.env.progress
    assert progress.fast.shape == (2, 6)
    assert np.asarray(progress.seen).any(axis=1).all()
    assert np.isfinite(result.metrics["loss"]).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_levels": 0}, "Levels's num_levels must be at least 1, got 0"),
        ({"first_level": -1}, "Levels's first_level must be at least 0, got -1"),
        ({"sampling": "progress"}, "did you mean 'learning_progress'"),
        ({"first_level": 2**31 - 2}, "levels must be numbered below 2,147,483,647"),
    ],
)
def test_wrong_levels_are_explained(options: dict[str, Any], says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        Levels(gridworld.make("3x3"), **options)
