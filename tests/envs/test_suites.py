"""Suites that are one file over `envs.adapting`: their rules against their libraries' own."""

import importlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks are not installed

import triglot
from benchmarks import suites
from tests.envs.amiss import AMISS
from tests.extras import is_missing
from triglot.checks.environment.check import check_environment
from triglot.cli import main as cli
from triglot.core import specs
from triglot.core.environment import BothPlayers, TwoPlayerGame
from triglot.core.errors import TriglotError
from triglot.core.wrappers.games import for_both
from triglot.runs.registry.environments import load_suite

ROOT = Path(__file__).parents[2]
slow = pytest.mark.slow
pytestmark = pytest.mark.filterwarnings("ignore:.* has no goal:UserWarning")
PROMOTES = pytest.mark.library_promotion("the library's own `step` mixes dtypes")


def case(name: str, *values: Any, marks: Any = ()) -> Any:
    """Skip an environment whose suite is not installed."""
    suite = name.partition(":")[0]
    missing = pytest.mark.skipif(is_missing(suite), reason=f"{suite} is missing")
    marks = marks if isinstance(marks, tuple) else (marks,)
    return pytest.param(name, *values, id=name, marks=(missing, *marks))


QUICK = [
    "navix:Navix-DoorKey-5x5-v0",
    "navix:Navix-Dynamic-Obstacles-5x5-v0,observation=rgb_first_person",
    "xminigrid:XLand-MiniGrid-R1-9x9",
    "xminigrid:MiniGrid-Empty-5x5,observation=symbolic",
    "pgx:connect_four",
    "pgx:minatar-breakout",
    "pgx:kuhn_poker",
]
SUITES = ("navix", "xminigrid", "pgx", "craftax", "playground", "brax")


def every() -> list[Any]:
    """List all environments of the suites that are installed; those not in QUICK are slow."""
    found = []
    for suite in SUITES:
        if not is_missing(suite):
            found += [f"{suite}:{name}" for name in load_suite(suite).names()]
    return [*map(case, QUICK), *(case(name, marks=slow) for name in found if name not in QUICK)]


def test_the_page_lists_what_fails_by_name() -> None:
    known = json.loads((ROOT / "docs/suites.json").read_text())
    assert suites.page(known) == (ROOT / "docs/suites.md").read_text()
    shown = {name: set(failed) for name, failed in known["checked"].items() if failed}
    assert not {name for name, failed in shown.items() if not failed <= AMISS.get(name, set())}


@pytest.mark.slow
@pytest.mark.parametrize("name", every())
def test_it_passes_the_check_of_environments(name: str) -> None:
    try:
        env = triglot.make_env(name)
    except TriglotError as error:
        if "mujoco_menagerie" in str(error):  # not downloaded
            pytest.skip(str(error))
        raise
    report = check_environment(env)
    assert set(report.failed) <= AMISS.get(name, set()), str(report)


@pytest.mark.parametrize("name", [case("playground:AeroCubeRotateZAxis")])  # has no `impl`
def test_robots_that_cannot_be_downloaded_are_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise subprocess.CalledProcessError(128, ["git", "clone"])

    monkeypatch.setattr("mujoco_playground.registry.load", fail)
    with pytest.raises(TriglotError, match=r"needs the robots of mujoco_menagerie"):
        triglot.make_env(name)


@pytest.mark.covering(5)
@pytest.mark.parametrize(
    "name",
    [
        case("navix:Navix-Empty-5x5-v0"),
        case("xminigrid:MiniGrid-Empty-5x5"),
        case("pgx:tic_tac_toe"),
        case("craftax:Craftax-Classic-Symbolic-v1"),
        case("playground:PendulumSwingup"),
    ],
)
def test_equal_options_give_equal_environments(name: str) -> None:
    env = triglot.make_env(name)
    assert env.name == name
    assert env == triglot.make_env(name) and hash(env) == hash(triglot.make_env(name))


def walk(env: Any, actions: list[int], seed: int = 0) -> list[Any]:
    """Take actions from a reset, one key each."""
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    steps = [reset(jax.random.key(seed))]
    for time, action in enumerate(actions):
        steps.append(step(steps[-1].state, jnp.int32(action), jax.random.key(time)))
    return steps


RIGHT, FORWARD = 1, 2  # Navix's and MiniGrid's actions: turn right, go forward


@pytest.mark.parametrize(
    ("name", "actions"),
    [
        case("navix:Navix-Empty-5x5-v0", [FORWARD, FORWARD, RIGHT, FORWARD, FORWARD]),
        # XLand's first action goes forward, its second turns right.
        case("xminigrid:MiniGrid-Empty-5x5", [0, 0, 1, 0, 0]),
    ],
)
def test_reaching_the_goal_terminates_and_the_limit_truncates(
    name: str, actions: list[int]
) -> None:
    *_, before, end = walk(triglot.make_env(name), actions)
    assert not before.terminated and end.terminated and not end.truncated
    assert float(end.reward) > 0
    limit = len(actions) - 1
    *_, cut = walk(triglot.make_env(f"{name},max_steps={limit}"), actions[:-1])
    assert cut.truncated and not cut.terminated and float(cut.reward) == 0
    *_, both = walk(triglot.make_env(f"{name},max_steps={limit + 1}"), actions)
    assert both.terminated and not both.truncated


@pytest.mark.parametrize("name", [case("navix:Navix-DoorKey-5x5-v0")])
def test_planes_show_each_number_of_the_symbols(name: str) -> None:
    symbols = walk(triglot.make_env(f"{name},observation=symbolic"), [])[0].obs
    planes = walk(triglot.make_env(name), [])[0].obs
    kinds, colours, states = np.split(np.asarray(planes), [11, 17], axis=-1)
    np.testing.assert_array_equal(kinds.argmax(-1), symbols[..., 0])
    np.testing.assert_array_equal(kinds.sum(-1), 1)
    known = np.asarray(symbols[..., 1]) < 6  # 255 is no colour
    np.testing.assert_array_equal(colours.sum(-1), known)
    np.testing.assert_array_equal(states.argmax(-1), symbols[..., 2])


@pytest.mark.slow
@pytest.mark.parametrize("name", [case("craftax:Craftax-Classic-Symbolic-v1")])
@PROMOTES
def test_craftax_agrees_with_its_library_and_truncates_at_its_limit(name: str) -> None:
    library = importlib.import_module("craftax.craftax_env")
    env = library.make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=False)
    params = env.default_params
    key = jax.random.key(1)
    ours = walk(triglot.make_env(f"{name},max_timesteps=3"), [1, 5, 6], seed=1)
    obs, state = jax.jit(env.reset_env)(key, params)
    np.testing.assert_allclose(ours[0].obs, obs, rtol=1e-6)
    for time, (action, step) in enumerate(zip([1, 5, 6], ours[1:], strict=True)):
        obs, state, reward, done, _ = jax.jit(env.step_env)(
            jax.random.key(time), state, action, params
        )
        np.testing.assert_allclose(step.obs, obs, rtol=1e-6)
        assert float(step.reward) == pytest.approx(float(reward)) and not bool(done)
        assert not step.terminated and bool(step.truncated) == (time == 2)


@pytest.mark.parametrize("name", [case("xminigrid:XLand-MiniGrid-R1-9x9")])
def test_rooms_without_tasks_are_said_to_have_no_goal(name: str) -> None:
    with pytest.warns(UserWarning, match=f"{name} has no goal.*benchmark="):
        triglot.make_env(name, view_size=3)


@pytest.mark.parametrize("name", [case("xminigrid:XLand-MiniGrid-R1-9x9")])
def test_each_episode_has_a_task_of_the_benchmark(name: str, tmp_path: Path) -> None:
    library = importlib.import_module("xminigrid.benchmarks")
    goals = importlib.import_module("xminigrid.core.goals")
    rules = importlib.import_module("xminigrid.core.rules")
    tiles = jnp.array([[3, 1], [4, 2]], jnp.uint8)  # a red ball, a green square
    tasks = [goals.AgentHoldGoal(tile=tile).encode() for tile in tiles]
    held = {
        "goals": jnp.stack(tasks),
        "rules": jnp.stack([rules.EmptyRule().encode()[None]] * 2),
        "init_tiles": jnp.stack([tiles] * 2),
        "num_rules": jnp.zeros(2, jnp.int32),
    }
    path = tmp_path / "two.pkl"
    library.save_bz2_pickle(held, str(path))
    env = triglot.make_env(name, benchmark=str(path))
    starts = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 16))
    given = {tuple(goal.tolist()) for goal in np.asarray(starts.state.goal_encoding)}
    assert given == {tuple(np.asarray(task).tolist()) for task in tasks}
    second = triglot.make_env(name, benchmark=str(path), ruleset=1)
    fixed = jax.vmap(second.reset)(jax.random.split(jax.random.key(0), 4)).state.goal_encoding
    np.testing.assert_array_equal(fixed, np.stack([tasks[1]] * 4))


def first_legal(obs: jax.Array, legal: jax.Array, key: jax.Array) -> jax.Array:
    """Play the first legal action."""
    return jnp.argmax(legal).astype(jnp.int32)


@pytest.mark.slow
@pytest.mark.parametrize("name", [case("pgx:connect_four")])
def test_a_step_holds_the_opponents_move(name: str) -> None:
    env = triglot.make_env(name, opponent=first_legal)
    seats = set()
    for seed in range(8):
        start = walk(env, [], seed)[0]
        pieces = int(start.obs.sum())
        seats.add(pieces)
        assert float(start.reward) == 0 and int(start.state.current_player) == 0
    assert seats == {0, 1}  # the agent begins, or the opponent has moved
    # The opponent fills the first column, and the agent wins in the last.
    begins = next(s for s in range(8) if int(walk(env, [], s)[0].obs.sum()) == 0)
    steps = walk(env, [6, 6, 6, 6], begins)
    assert [float(step.reward) for step in steps] == [0, 0, 0, 0, 1]
    assert bool(steps[-1].terminated) and not steps[-2].terminated
    # Whoever plays elsewhere loses: the opponent's fourth piece stands in the first column.
    lost = walk(env, [6, 5, 6, 5], begins)
    assert float(lost[-1].reward) == -1 and bool(lost[-1].terminated)


@pytest.mark.parametrize("name", [case("pgx:connect_four,opponent=self")])
def test_a_planner_moves_for_both_players_of_a_game(name: str) -> None:
    game = triglot.make_env(name)
    env = for_both(game)
    assert isinstance(game, TwoPlayerGame) and isinstance(env, BothPlayers)
    columns = [0, 1, 0, 1, 0, 1, 0]  # who begins fills the first column
    for seed in range(4):
        begins = int(env.moving(walk(env, [], seed)[0].state))
        steps = walk(env, columns, seed)
        movers = [int(env.moving(step.state)) for step in steps[:-1]]
        assert movers == [begins, 1 - begins] * 3 + [begins]
        assert [float(step.reward) for step in steps] == [0] * 7 + [1]  # of either player
        assert bool(steps[-1].terminated)
        own, other = (steps[1].obs[..., plane].sum() for plane in (0, 1))
        assert (float(own), float(other)) == (0, 1)  # as the player who moves sees it


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [case("pgx:connect_four")])
def test_an_opponent_is_named(name: str, in_folder: Path) -> None:
    text = "import jax.numpy as jnp\ndef last(obs, legal, key): return 6 - jnp.argmax(legal[::-1])"
    (in_folder / "my_opponents.py").write_text(text)
    env = triglot.make_env(f"{name},opponent=my_opponents:last")
    boards = [np.asarray(walk(env, [], seed)[0].obs).sum(-1) for seed in range(8)]
    assert {tuple(np.argwhere(board)[:, 1].tolist()) for board in boards} == {(), (6,)}
    with pytest.raises(TriglotError, match="unknown name 'lost' in my_opponents; did you mean"):
        triglot.make_env(f"{name},opponent=my_opponents:lost")
    with pytest.raises(TriglotError, match="opponent 'no_such_file:last': no module"):
        triglot.make_env(f"{name},opponent=no_such_file:last")


@pytest.mark.parametrize("name", [case("pgx:tic_tac_toe", marks=slow)])
def test_a_policy_plays_against_its_frozen_copy(name: str, in_folder: Path) -> None:
    small = ["--no-preset", "--total-steps", "256", "--num-envs", "4", "--rollout-length", "16"]
    assert cli.main(["train", "ppo", name, *small, "--out", "first"]) == 0
    text = """
    import triglot

    policy = triglot.load_policy("first")

    def frozen(obs, legal_actions, key):
        return policy(obs, legal_actions)
    """
    (in_folder / "my_opponent.py").write_text(textwrap.dedent(text))
    second = f"{name},opponent=my_opponent:frozen"
    assert cli.main(["train", "ppo", second, *small, "--out", "second"]) == 0
    policy, env = triglot.load_policy("first"), triglot.make_env(second)
    for seed in range(20):
        start = env.reset(jax.random.key(seed))
        if start.obs.any():  # the opponent has begun, greedily
            empty = jnp.zeros_like(start.obs)
            action = policy(empty, jnp.ones(9, bool))
            assert np.asarray(start.obs).reshape(9, 2)[int(action), 1] == 1
            break
    else:
        pytest.fail("the opponent never began")


@pytest.mark.parametrize("name", [case("pgx:tic_tac_toe")])
def test_a_small_board_is_a_vector_and_illegal_actions_are_masked(name: str) -> None:
    env = triglot.make_env(name)
    assert env.obs_spec == specs.Box((18,), "float32", 0.0, 1.0, whole=True)
    start = walk(env, [], 3)[0]
    taken = np.asarray(start.obs).reshape(3, 3, 2).any(axis=-1).ravel()
    np.testing.assert_array_equal(start.action_mask, ~taken)


@pytest.mark.parametrize("name", [case("playground:PendulumSwingup,episode_length=2")])
def test_playground_truncates_at_its_length(name: str) -> None:
    env = triglot.make_env(name)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    first = reset(jax.random.key(0))
    action = jnp.zeros((1,))
    second = step(first.state, action, jax.random.key(0))
    third = step(second.state, action, jax.random.key(1))
    assert not second.truncated and third.truncated and not third.terminated


@pytest.mark.covering(3)
@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        case("navix:Navix-Empty-5x5-v0", ".gif"),
        case("xminigrid:MiniGrid-Empty-5x5", ".gif"),
        case("craftax:Craftax-Classic-Symbolic-v1", ".gif", marks=slow),
        case("pgx:minatar-breakout", ".gif"),
        case("pgx:tic_tac_toe", ".svg"),
        case("playground:PendulumSwingup", ".html"),
    ],
)
def test_it_is_drawn(name: str, suffix: str, tmp_path: Path) -> None:
    env: Any = triglot.make_env(name)
    assert env.draw_suffix == suffix
    start = jax.jit(env.reset)(jax.random.key(0))
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), start.state)
    env.draw(states, str(tmp_path / f"episode{suffix}"))
    assert (tmp_path / f"episode{suffix}").stat().st_size > 300


@pytest.mark.parametrize(
    ("name", "words"),
    [
        case("navix:Navix-DoorKey-7x7-v0", "did you mean"),
        case("navix:Navix-Empty-5x5-v0,observation=pixels", "'pixels'"),
        case("navix:Navix-Empty-5x5-v0,max_step=3", "did you mean 'max_steps'"),
        case("xminigrid:MiniGrid-Empty-5x5,benchmark=trivial", "benchmark (or no file)"),
        case("xminigrid:XLand-MiniGrid-R1-9x9,ruleset=7", "benchmark"),
        case("xminigrid:MiniGrid-Empty-5x5,view_size=big", "must be a number|integer"),
        case("craftax:Craftax-Classic-Symbolic-v1,max_timestep=3", "did you mean 'max_timesteps'"),
        case("pgx:connect_for", "did you mean 'connect_four'"),
        case("pgx:2048,opponent=random", "opponent"),
        case("pgx:connect_four,opponent=strong", "opponent 'strong' of pgx"),
        case("playground:CheetahRan", "did you mean 'CheetahRun'"),
        case("playground:CheetahRun,impl=c", "'c' of playground:CheetahRun"),
    ],
)
def test_a_mistake_is_one_sentence(name: str, words: str) -> None:
    with pytest.raises(TriglotError) as caught:
        triglot.make_env(name)
    assert any(each in str(caught.value) for each in words.split("|")), caught.value
    assert str(caught.value).count("\n") == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [case("craftax:Craftax-Classic-Symbolic-v1")])
def test_worlds_made_in_a_batch_are_those_made_alone(name: str) -> None:
    """XLA computes other noise from the ninth world of a batch on."""
    env = triglot.make_env(name)
    keys = jax.random.split(jax.random.key(0), 10)
    batch = jax.jit(jax.vmap(env.reset))(keys).state.map
    alone = jax.jit(lambda keys: jax.lax.map(env.reset, keys))(keys).state.map
    np.testing.assert_array_equal(batch, alone)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0.9")
    with pytest.raises(TriglotError, match=r"pgx 0.0.9 is installed, and triglot works with pgx"):
        triglot.make_env("pgx:connect_four")


@pytest.mark.slow
@pytest.mark.parametrize("name", [case("pgx:tic_tac_toe")])
def test_it_trains(name: str) -> None:
    env = triglot.make_env(name)
    agent = triglot.make_agent("ppo", env, config=triglot.PPO.Config(num_envs=4, rollout_length=8))
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=64)
    assert np.isfinite(np.asarray(result.metrics["loss"])).all()
