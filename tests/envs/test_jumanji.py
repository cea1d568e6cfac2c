"""jumanji's adapter: what its episodes end by, what is seen, what an action means."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jumanji.environments.commons.maze_utils.maze_generation import generate_maze
from jumanji.registration import make as make_library_env

from tests.envs.amiss import AMISS
from triglot.checks.environment.check import check_environment
from triglot.core import specs
from triglot.core.errors import MissingExtra, TriglotError
from triglot.core.loop.vectorize import VectorEnvironment, VectorState
from triglot.core.rl.distributions import policy
from triglot.envs import adapting, jumanji
from triglot.envs.adapting import Adapted
from triglot.envs.adapting import mazes as generator
from triglot.envs.adapting.parts import Actions, actions_of
from triglot.envs.adapting.spaces import map_leaves
from triglot.envs.jumanji import spec_of

PROMOTES = pytest.mark.library_promotion("jumanji's own `step` mixes dtypes")
slow = pytest.mark.slow


def choose(env: Adapted, mask: jax.Array | None, key: jax.Array) -> jax.Array:
    """Draw an action uniformly, of those that are allowed."""
    if mask is None:
        return specs.sample(env.action_spec, key)
    return policy(env.action_spec, {"logits": jnp.zeros(mask.shape)}, mask).sample(key)


def play(env: Adapted, num_steps: int, num_envs: int = 4, seed: int = 0) -> tuple[Any, Any]:
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


def library_actions(library: Any) -> Actions:
    """Convert the actions of jumanji's own environment."""
    _, step = jax.eval_shape(library.reset, jax.random.key(0))
    mask = getattr(step.observation, "action_mask", None)
    shape = None if mask is None else mask.shape
    return actions_of("jumanji", spec_of(library.action_spec), shape, None)


def every() -> list[Any]:
    """List all ids with each observation; a handful is tried always."""
    quick = {("Maze-v0", "default")}
    return [
        pytest.param(env_id, observation, marks=() if (env_id, observation) in quick else slow)
        for env_id in jumanji.names()
        for observation in ("default", "dict")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "observation"), every())
def test_it_passes_the_check_of_environments(env_id: str, observation: str) -> None:
    report = check_environment(jumanji.make(env_id, observation=observation))
    assert {*report.failed} == AMISS.get(f"jumanji:{env_id}", set()), str(report)


@pytest.mark.parametrize("env_id", ["Maze-v0", "Snake-v1"])
def test_it_hashes_by_value(env_id: str) -> None:
    assert jumanji.make(env_id) == jumanji.make(env_id)
    assert hash(jumanji.make(env_id)) == hash(jumanji.make(env_id))
    assert jumanji.make(env_id, observation="dict") != jumanji.make(env_id)


@pytest.fixture(scope="module")
def maze() -> Adapted:
    return jumanji.make("Maze-v0")


@pytest.fixture(scope="module")
def maze_step(maze: Adapted) -> Any:
    return jax.jit(maze.step)


@pytest.fixture(scope="module")
def maze_start(maze: Adapted) -> Any:
    """Give a start next to a wall."""
    starts = jax.jit(jax.vmap(maze.reset))(jax.random.split(jax.random.key(0), 8))
    beside = int(jnp.argmin(starts.action_mask.all(-1)))
    return jax.tree.map(lambda leaf: leaf[beside], starts)


def test_a_maze_is_truncated_at_its_limit(maze_start: Any, maze_step: Any) -> None:
    into_the_wall = jnp.argmin(maze_start.action_mask).astype(jnp.int32)
    step = maze_start
    for time in range(1, 101):
        step = maze_step(step.state, into_the_wall, jax.random.key(time))
        ends = bool(step.terminated), bool(step.truncated), float(step.reward)
        assert ends == (False, time == 100, 0.0)
    np.testing.assert_array_equal(step.obs, maze_start.obs)


@pytest.mark.parametrize("step_count", [50, 99])
def test_a_maze_whose_target_is_reached_is_terminated_at_the_limit_too(
    maze_start: Any, maze_step: Any, step_count: int
) -> None:
    action = jnp.argmax(maze_start.action_mask).astype(jnp.int32)
    state = replace(maze_start.state, step_count=jnp.int32(step_count))
    there = maze_step(state, action, jax.random.key(0)).state.agent_position
    step = maze_step(replace(state, target_position=there), action, jax.random.key(0))
    assert (bool(step.terminated), bool(step.truncated), float(step.reward)) == (True, False, 1.0)
    np.testing.assert_array_equal(step.obs[..., 1], step.obs[..., 2])  # the true successor


LIMITED = [
    ("Snake-v1", {"num_rows": 5, "num_cols": 5}),
    pytest.param("SlidingTilePuzzle-v0", {}, marks=slow),
    pytest.param("RubiksCube-v0", {"num_scrambles_on_reset": 5}, marks=slow),
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


@slow
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


@pytest.mark.covering(2)
@pytest.mark.parametrize(
    ("env_id", "num_steps"),
    [
        ("Maze-v0", 110),
        ("Minesweeper-v0", 20),
        pytest.param("Game2048-v1", 40, marks=slow),
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
    actions = library_actions(library)

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
        theirs_obs = map_leaves(lambda _, values: values, env.obs_spec, theirs.observation)
        jax.tree.map(
            np.testing.assert_array_equal,
            (replace(step.state, key=None), step.obs),
            (replace(state, key=None), theirs_obs),
        )
        assert step.reward == pytest.approx(float(theirs.reward.sum()))
        assert bool(step.terminated | step.truncated) == bool(theirs.last())
        if theirs.last():
            break


def test_a_maze_is_an_image_of_walls_agent_and_target(maze: Adapted, maze_start: Any) -> None:
    assert maze.obs_spec == specs.Box((10, 10, 3), "float32", 0.0, 1.0, whole=True)
    assert (maze_start.obs.shape, maze_start.obs.dtype) == ((10, 10, 3), jnp.float32)
    step = maze_start
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
    actions = library_actions(make_library_env(env_id))
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


@slow
def test_separate_parts_have_a_mask_each_and_mean_the_same() -> None:
    parts = jumanji.make("Cleaner-v0", observation="dict", joint_actions=False)
    joint = jumanji.make("Cleaner-v0", observation="dict")
    assert parts.action_spec == specs.MultiDiscrete((4, 4, 4))
    step = parts.reset(jax.random.key(0))
    np.testing.assert_array_equal(step.action_mask, step.obs["action_mask"].ravel())
    action = np.asarray(step.obs["action_mask"]).argmax(axis=-1)
    after = parts.step(step.state, jnp.asarray(action, jnp.int32), jax.random.key(1))
    number = jnp.int32(np.ravel_multi_index(tuple(action), (4, 4, 4)))
    same = joint.step(step.state, number, jax.random.key(1))
    np.testing.assert_array_equal(after.obs["grid"], same.obs["grid"])


@pytest.mark.slow
def test_several_agents_have_one_part_each_where_the_combinations_are_too_many() -> None:
    assert jumanji.make("Connector-v3").action_spec == specs.MultiDiscrete((5,) * 10)
    assert jumanji.make("MMST-v0").action_spec == specs.MultiDiscrete((36, 36, 36))


def test_the_mask_can_be_left_out() -> None:
    env = jumanji.make("Maze-v0", use_action_mask=False)
    start = env.reset(jax.random.key(0))
    assert start.action_mask is None
    assert env.step(start.state, jnp.int32(0), jax.random.key(0)).action_mask is None


@slow
def test_a_steps_randomness_comes_from_its_key() -> None:
    env = jumanji.make("Game2048-v1")
    start = env.reset(jax.random.key(0))
    assert start.action_mask is not None
    action = jnp.argmax(start.action_mask).astype(jnp.int32)
    boards = jax.jit(jax.vmap(lambda k: env.step(start.state, action, k).obs))(
        jax.random.split(jax.random.key(1), 20)
    )
    assert len(np.unique(boards, axis=0)) > 1


@pytest.mark.slow
def test_options_reach_the_environment_and_its_generator() -> None:
    env = jumanji.make("Maze-v0", num_rows=5, time_limit=7)
    assert env.obs_spec == specs.Box((5, 10, 3), "float32", 0.0, 1.0, whole=True)
    assert env == jumanji.make("Maze-v0", time_limit=7, num_rows=5)
    assert env != jumanji.make("Maze-v0")
    assert jumanji.make("Connector-v3", num_agents=2).action_spec == specs.Discrete(25)


def test_it_may_be_first_used_while_a_program_is_traced() -> None:
    env = jumanji.make("Maze-v0")
    adapting._adapter.cache_clear()
    jax.jit(env.reset)(jax.random.key(0))
    assert env.reset(jax.random.key(1)).obs.shape == (10, 10, 3)


@pytest.mark.slow
def test_after_an_end_comes_another_maze_and_the_true_successor_is_kept() -> None:
    vector = VectorEnvironment(jumanji.make("Maze-v0", num_rows=5, num_cols=5), 16)
    assert vector.resets == "pool"

    @jax.jit
    def run(key: jax.Array) -> Any:
        def step(state: VectorState, key: jax.Array) -> Any:
            assert state.action_mask is not None
            action_key, step_key = jax.random.split(key)
            logits = jnp.where(state.action_mask, 0.0, -1e9)
            action = jax.random.categorical(action_key, logits).astype(jnp.int32)
            after, transition = vector.step(state, action, step_key)
            return after, (state, transition)

        return jax.lax.scan(step, vector.reset(key), jax.random.split(key, 60))

    last, (states, transitions) = run(jax.random.key(0))
    assert not (transitions.terminated & transitions.truncated).any()
    np.testing.assert_array_equal(transitions.terminated, transitions.reward == 1.0)
    np.testing.assert_array_equal(transitions.truncated, transitions.episode_length == 25)
    _, agent, target = np.moveaxis(np.asarray(transitions.next_obs), -1, 0)
    np.testing.assert_array_equal((agent == target).all((-1, -2)), transitions.terminated)
    assert transitions.terminated.any() and transitions.truncated.any()
    begun = np.asarray(states.obs)[np.asarray(states.first)]
    assert len(np.unique(begun[16:], axis=0)) > 0.9 * len(begun[16:]) > 20
    assert int(last.pool.dealt) == transitions.done.sum()


@pytest.mark.slow
def test_mazes_are_as_frequent_as_jumanjis() -> None:
    keys = jax.random.split(jax.random.key(0), 2**13)
    ours = jax.jit(jax.vmap(lambda key: generator.divide(key, 4, 3)))(keys)
    theirs = jax.jit(jax.vmap(lambda key: generate_maze(3, 4, key)))(keys)
    counts = [Counter(one.tobytes() for one in np.asarray(m, bool)) for m in (ours, theirs)]
    assert counts[0].keys() == counts[1].keys()
    assert len(counts[0]) == 6
    chi_squared = sum(
        (counts[0][m] - counts[1][m]) ** 2 / (counts[0] + counts[1])[m] for m in counts[0]
    )
    assert chi_squared < 20.5  # 5 degrees of freedom: one time in a thousand it is more


def test_in_a_maze_there_is_a_way_from_everywhere_to_everywhere() -> None:
    divide = jax.jit(jax.vmap(lambda key: generator.divide(key, 10, 7)))
    for walls in np.asarray(divide(jax.random.split(jax.random.key(0), 20))):
        free = set(map(tuple, np.argwhere(~walls).tolist()))
        reached, at_the_edge = set(), [min(free)]
        while at_the_edge:
            row, col = at_the_edge.pop()
            reached.add((row, col))
            near = {(row + 1, col), (row - 1, col), (row, col + 1), (row, col - 1)}
            at_the_edge += (near & free) - reached
        assert reached == free
        assert all(walls[:, 1::2].any(0))


@slow
@pytest.mark.parametrize(("use_action_mask", "share"), [(True, 0.28), (False, 0.19)])
def test_a_random_policy_solves_the_share_of_mazes_that_is_known(
    use_action_mask: bool, share: float
) -> None:
    env = jumanji.make("Maze-v0", use_action_mask=use_action_mask)
    _, steps = play(env, 100, num_envs=4096)
    ended = np.cumsum(np.asarray(steps.terminated), axis=0) > 0
    assert ended[-1].mean() == pytest.approx(share, abs=0.025)  # 3.5 standard errors


@pytest.mark.slow
def test_an_episode_is_drawn_without_a_display_or_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = jumanji.make("Maze-v0", num_rows=5, num_cols=5)
    _, steps = play(env, 2, num_envs=1)
    states = jax.tree.map(lambda leaf: leaf[:, 0], steps.state)
    env.draw(states, str(tmp_path / "episode.gif"))
    assert (tmp_path / "episode.gif").read_bytes()[:3] == b"GIF"
    assert not caplog.records


@pytest.mark.slow
def test_a_notebook_keeps_its_way_to_show_figures() -> None:
    program = """
import builtins
builtins.__IPYTHON__ = True  # and there is none, so that jumanji's own call of it would fail
from triglot.envs import jumanji
assert "Maze-v0" in jumanji.names()
assert builtins.__IPYTHON__
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_missing_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jumanji", None)
    with pytest.raises(MissingExtra, match=r"^jumanji is not installed: run `pip install 'trig.*$"):
        jumanji.make("Maze-v0")


@pytest.mark.covering(4)
@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("Maze", {}, "unknown jumanji environment 'Maze'; did you mean 'Maze-v0'"),
        ("Sokoban-v0", {}, "Sokoban-v0 is not supported: it downloads"),
        ("Maze-v0", {"rows": 4}, "unknown option 'rows' of jumanji:Maze-v0; did you mean 'num_row"),
        ("Maze-v0", {"num_rows": [4]}, "'num_rows'.*number, a string or a tuple.*got a list"),
        ("Maze-v0", {"observation": "picture"}, "unknown observation 'picture' of jumanji:Maze-v0"),
        ("Maze-v0", {"use_mask": False}, "did you mean 'use_action_mask'"),
        ("TSP-v1", {"observation": "image"}, "unknown observation.*Choices: dict, vector"),
        (
            "Connector-v3",
            {"joint_actions": True},
            r"9,765,625 joint actions \(5 x 5 .*make the environment smaller.*or leave out joint_",
        ),
        ("BinPack-v2", {"joint_actions": False}, r"mask .* combinations of parts \(40 x 20\)"),
        ("Maze-v0", {"joint_actions": False}, "has one part: leave out joint_actions=False"),
        ("Maze-v0", {"joint_actions": 2}, "joint_actions of.*must be True or False, got 2"),
        ("SearchAndRescue-v0", {"joint_actions": False}, "continuous actions: leave out joint_act"),
        (
            "Maze-v0",
            {"time_limit": 0},
            "time_limit of jumanji:Maze-v0 must be at least 1, got 0",
        ),
        ("Maze-v0", {"use_action_mask": 1}, "use_action_mask of.*must be True or False, got 1"),
        ("Maze-v0", {"num_rows": 1}, "num_rows of a maze must be at least 2, got 1"),
        ("Knapsack-v1", {"num_items": -1}, "num_items of jumanji:Knapsack-v1 must be at least 1"),
    ],
)
def test_bad_input_is_explained(env_id: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        jumanji.make(env_id, **options)


def test_all_are_named_but_those_that_download() -> None:
    names = jumanji.names()
    assert len(names) == 25
    assert "Sokoban-v0" not in names
