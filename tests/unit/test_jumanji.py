"""jumanji's adapter: what its episodes end by, what is seen, what an action means."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jumanji.registration import make as make_library_env

from triglot.core import specs
from triglot.core.errors import TriglotError
from triglot.core.vectorize import VectorEnvironment
from triglot.envs import jumanji

PROMOTES = pytest.mark.library_promotion("jumanji's own `step` mixes dtypes")
slow = pytest.mark.slow


def choose(env: jumanji.Jumanji, mask: jax.Array | None, key: jax.Array) -> jax.Array:
    """Draw an action uniformly, of those that are allowed."""
    if mask is None:
        return specs.sample(env.action_spec, key)
    return jax.random.categorical(key, jnp.where(mask, 0.0, -1e9)).astype(jnp.int32)


def play(env: jumanji.Jumanji, num_steps: int, num_envs: int = 4, seed: int = 0) -> tuple[Any, Any]:
    """Take random allowed actions; return the starts `[N, ...]` and the steps `[T, N, ...]`."""

    @jax.jit
    @jax.vmap
    def run(key: jax.Array) -> tuple[Any, Any]:
        def step(before: Any, key: jax.Array) -> tuple[Any, Any]:
            action_key, step_key = jax.random.split(key)
            action = choose(env, before.action_mask, action_key)
            after = env.step(before.state, action, step_key)
            return after, after

        start = env.reset(key)
        return start, jax.lax.scan(step, start, jax.random.split(key, num_steps))[1]

    starts, steps = run(jax.random.split(jax.random.key(seed), num_envs))
    return starts, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), steps)


def types(tree: Any) -> Any:
    """Replace each array by its (shape, dtype, whether weakly typed)."""
    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype), leaf.weak_type), tree)


def every() -> list[Any]:
    """List all ids; those that compile quickly are tried always."""
    quick = {"Maze-v0", "Snake-v1", "TSP-v1", "Game2048-v1", "Minesweeper-v0"}
    return [pytest.param(i, marks=() if i in quick else slow) for i in jumanji.names()]


@pytest.mark.parametrize("env_id", every())
@pytest.mark.parametrize("observation", ["default", "dict"])
def test_it_keeps_to_its_specs(env_id: str, observation: str) -> None:
    env = jumanji.make(env_id, observation=observation)
    assert env == jumanji.make(env_id, observation=observation)
    assert hash(env) == hash(jumanji.make(env_id, observation=observation))
    start = jax.eval_shape(env.reset, jax.random.key(0))
    action = specs.zeros(env.action_spec)
    after = jax.eval_shape(env.step, start.state, action, jax.random.key(0))
    assert types(start) == types(after)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(start))
    starts, steps = play(env, 40, num_envs=2)
    done = np.asarray(steps.terminated | steps.truncated)
    going_on = np.cumsum(done, axis=0) - done == 0  # what follows an episode's end is never used
    reached = jax.tree.map(lambda leaf: leaf[going_on], steps.obs)
    for observed in (starts.obs, reached):
        for index in range(len(jax.tree.leaves(observed)[0])):
            obs = jax.tree.map(lambda leaf, at=index: np.asarray(leaf[at]), observed)
            assert specs.mismatch(env.obs_spec, obs) is None
    assert not (steps.terminated & steps.truncated).any()
    if steps.action_mask is not None:
        assert isinstance(env.action_spec, specs.Discrete)
        assert steps.action_mask.shape[2:] == (env.action_spec.num_values,)
        assert steps.action_mask.any(-1).all()


LIMITED = [
    ("Maze-v0", {}),
    ("Snake-v1", {"num_rows": 5, "num_cols": 5}),
    ("SlidingTilePuzzle-v0", {}),
    ("RubiksCube-v0", {"num_scrambles_on_reset": 5}),
    pytest.param("Tetris-v0", {}, marks=slow),
    pytest.param("PacMan-v1", {}, marks=slow),
    pytest.param("Cleaner-v0", {}, marks=slow),
    pytest.param("RobotWarehouse-v0", {}, marks=slow),
    pytest.param("LevelBasedForaging-v0", {}, marks=slow),
    pytest.param("Connector-v3", {"num_agents": 3}, marks=slow),
    pytest.param(
        "MMST-v0",
        {"num_agents": 2, "num_nodes": 12, "num_edges": 18, "num_nodes_per_agent": 3},
        marks=slow,
    ),
]


@pytest.mark.parametrize(("env_id", "options"), LIMITED)
def test_a_time_limit_truncates_and_does_not_terminate(env_id: str, options: Any) -> None:
    env = jumanji.make(env_id, time_limit=3, **options)
    _, steps = play(env, 3, num_envs=8)
    going_on = ~np.asarray(steps.terminated).any(axis=0)
    assert going_on.any()
    expected = [[False] * going_on.sum(), [False] * going_on.sum(), [True] * going_on.sum()]
    np.testing.assert_array_equal(steps.truncated[:, going_on], expected)


@slow
def test_a_deadline_that_is_part_of_the_task_terminates() -> None:
    _, steps = play(jumanji.make("SearchAndRescue-v0", time_limit=3), 3, num_envs=2)
    np.testing.assert_array_equal(steps.terminated, [[False] * 2, [False] * 2, [True] * 2])
    assert not steps.truncated.any()


def test_a_task_that_ends_at_the_limit_is_terminated() -> None:
    env = jumanji.make("RubiksCube-v0", num_scrambles_on_reset=1, time_limit=1)

    @jax.jit
    def after_each_turn(key: jax.Array) -> Any:
        start = env.reset(key)
        return jax.vmap(lambda action: env.step(start.state, action, key))(jnp.arange(18))

    steps = after_each_turn(jax.random.key(0))
    assert steps.terminated.sum() == 1  # one turn undoes the other
    np.testing.assert_array_equal(steps.terminated, steps.reward == 1.0)
    np.testing.assert_array_equal(steps.truncated, ~steps.terminated)


@pytest.mark.parametrize(
    ("env_id", "num_steps"),
    [
        ("Maze-v0", 110),
        ("Game2048-v1", 40),
        ("Minesweeper-v0", 20),
        pytest.param("Tetris-v0", 30, marks=slow),
        pytest.param("LevelBasedForaging-v0", 110, marks=slow),
        pytest.param("MultiCVRP-v0", 30, marks=slow),
        pytest.param("SearchAndRescue-v0", 10, marks=slow),
    ],
)
@PROMOTES
def test_it_agrees_with_jumanji_from_the_same_state(env_id: str, num_steps: int) -> None:
    env = jumanji.make(env_id, observation="dict")
    library = make_library_env(env_id)
    actions = jumanji._library(env_id, ()).actions

    @jax.jit
    def compare(before: Any, key: jax.Array) -> Any:
        action_key, step_key = jax.random.split(key)
        action = choose(env, before.action_mask, action_key)
        ours = env.step(before.state, action, step_key)
        state = replace(before.state, key=step_key)
        return ours, library.step(state, actions.to_library(action))

    step = env.reset(jax.random.key(3))
    for key in jax.random.split(jax.random.key(4), num_steps):
        step, (state, theirs) = compare(step, key)
        theirs_obs = env._observation.convert(theirs.observation)
        jax.tree.map(
            np.testing.assert_array_equal,
            (replace(step.state, key=None), step.obs),
            (replace(state, key=None), theirs_obs),
        )
        assert step.reward == pytest.approx(float(theirs.reward.sum()))
        assert bool(step.terminated | step.truncated) == bool(theirs.last())
        if theirs.last():
            break


def test_a_maze_is_an_image_of_walls_agent_and_target() -> None:
    env = jumanji.make("Maze-v0")
    assert env.obs_spec == specs.Box((10, 10, 3), "float32", 0.0, 1.0)
    step = env.reset(jax.random.key(0))
    walls, agent, target = np.moveaxis(np.asarray(step.obs), -1, 0)
    np.testing.assert_array_equal(walls, step.state.walls)
    for channel, position in ((agent, "agent_position"), (target, "target_position")):
        where = getattr(step.state, position)
        assert np.argwhere(channel).tolist() == [[int(where.row), int(where.col)]]


def test_a_vector_holds_the_numbers_without_mask_and_time() -> None:
    step = jumanji.make("Maze-v0", observation="vector").reset(jax.random.key(0))
    state: Any = step.state
    places = [*state.agent_position, *state.target_position]
    expected = np.concatenate(
        [np.array(places, np.float32), np.ravel(state.walls).astype(np.float32)]
    )
    np.testing.assert_array_equal(step.obs, expected)


def test_a_place_becomes_one_hot_in_a_vector() -> None:
    env = jumanji.make("TSP-v1")
    start = env.reset(jax.random.key(0))
    assert start.obs[40:60].sum() == 0.0  # before the first city
    step = env.step(start.state, jnp.int32(7), jax.random.key(0))
    np.testing.assert_array_equal(step.obs[40:60], np.eye(20, dtype=np.float32)[7])


@pytest.mark.parametrize("env_id", ["Minesweeper-v0", pytest.param("Tetris-v0", marks=slow)])
def test_a_joint_action_counts_in_row_major_order(env_id: str) -> None:
    env = jumanji.make(env_id)
    actions = jumanji._library(env_id, ()).actions
    numbers = jnp.arange(100 if env_id == "Minesweeper-v0" else 40)
    parts = np.asarray(jax.vmap(actions.to_library)(numbers))
    np.testing.assert_array_equal(np.ravel_multi_index(parts.T, actions.sizes), numbers)
    raw = jumanji.make(env_id, observation="dict").reset(jax.random.key(0))
    allowed = np.asarray(raw.obs["action_mask"])[tuple(parts.T)]
    np.testing.assert_array_equal(env.reset(jax.random.key(0)).action_mask, allowed)


@slow
def test_a_joint_action_is_allowed_if_each_agents_part_is() -> None:
    step = jumanji.make("Cleaner-v0", observation="dict").reset(jax.random.key(0))
    own = np.asarray(step.obs["action_mask"])
    parts = np.stack(np.unravel_index(np.arange(64), (4, 4, 4)), axis=-1)
    expected = own[np.arange(3), parts].all(axis=-1)
    np.testing.assert_array_equal(step.action_mask, expected)


def test_the_mask_can_be_left_out() -> None:
    env = jumanji.make("Maze-v0", use_action_mask=False)
    start = env.reset(jax.random.key(0))
    assert start.action_mask is None
    assert env.step(start.state, jnp.int32(0), jax.random.key(0)).action_mask is None


def test_a_steps_randomness_comes_from_its_key() -> None:
    env = jumanji.make("Game2048-v1")
    start = env.reset(jax.random.key(0))
    assert start.action_mask is not None
    action = jnp.argmax(start.action_mask).astype(jnp.int32)
    boards = jax.jit(jax.vmap(lambda k: env.step(start.state, action, k).obs))(
        jax.random.split(jax.random.key(1), 20)
    )
    assert len(np.unique(boards, axis=0)) > 1


def test_options_reach_the_environment_and_its_generator() -> None:
    env = jumanji.make("Maze-v0", num_rows=5, time_limit=7)
    assert env.obs_spec == specs.Box((5, 10, 3), "float32", 0.0, 1.0)
    assert env == jumanji.make("Maze-v0", time_limit=7, num_rows=5)
    assert env != jumanji.make("Maze-v0")
    assert jumanji.make("Connector-v3", num_agents=2).action_spec == specs.Discrete(25)


def test_it_may_be_first_used_while_a_program_is_traced() -> None:
    jumanji._library.cache_clear()
    env = jumanji.Jumanji("Maze-v0")
    jax.jit(env.reset)(jax.random.key(0))
    assert env.reset(jax.random.key(1)).obs.shape == (10, 10, 3)


def test_starts_from_a_pool_are_different_mazes() -> None:
    vector = VectorEnvironment(jumanji.make("Maze-v0", num_rows=5, num_cols=5), 3, resets="pool")
    state = jax.jit(vector.reset)(jax.random.key(0))
    assert state.pool is not None
    assert len(np.unique(state.pool.starts.obs, axis=0)) == 3


def test_an_episode_is_drawn_without_a_display(tmp_path: Path) -> None:
    env = jumanji.make("Maze-v0", num_rows=5, num_cols=5)
    _, steps = play(env, 2, num_envs=1)
    states = jax.tree.map(lambda leaf: leaf[:, 0], steps.state)
    jumanji.animate(env, states, str(tmp_path / "episode.gif"))
    assert (tmp_path / "episode.gif").read_bytes()[:3] == b"GIF"


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("Maze", {}, "unknown jumanji environment 'Maze'; did you mean 'Maze-v0'"),
        ("Sokoban-v0", {}, "Sokoban-v0 is not offered: it downloads"),
        ("Maze-v0", {"rows": 4}, "unknown option of jumanji:Maze-v0 'rows'; did you mean 'num_row"),
        ("Maze-v0", {"time_limit": [4]}, "'time_limit'.*number, a string or a tuple.*got a list"),
        ("Maze-v0", {"observation": "picture"}, "unknown observation of jumanji:Maze-v0 'picture'"),
        ("TSP-v1", {"observation": "image"}, "unknown observation.*Choices: dict, vector"),
        ("Connector-v3", {}, r"9,765,625 joint actions \(5 x 5 .*make it smaller with options"),
        ("RubiksCube-v0", {"time_limit": 0}, "jumanji:RubiksCube-v0 could not be made with"),
    ],
)
def test_bad_input_is_explained(env_id: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        jumanji.make(env_id, **options)


def test_all_are_named_but_those_that_download_or_are_too_large() -> None:
    names = jumanji.names()
    assert len(names) == 22
    assert not {"Sokoban-v0", "Connector-v3", "JobShop-v0", "MMST-v0"} & set(names)
