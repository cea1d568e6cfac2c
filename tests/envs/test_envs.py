"""The environments' own rules: what each does, and where its answers are known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.registration import make as make_library_env

from triglot.core import specs
from triglot.core.errors import TriglotError
from triglot.envs import adapting, gridworld, gymnax, probes

PROMOTES = pytest.mark.library_promotion("gymnax's own `step` mixes dtypes")


@pytest.mark.covering(4)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Catch-bsuite", "DeepSea-bsuite"])
@PROMOTES
def test_gymnax_agrees_with_gymnax_from_the_same_state_and_key(env_id: str) -> None:
    env = gymnax.make(env_id)
    library, _ = make_library_env(env_id)
    # DeepSea terminates and truncates at once; here termination wins.
    both = env_id == "DeepSea-bsuite"

    @jax.jit
    def compare(state: Any, key: jax.Array) -> Any:
        key, action_key = jax.random.split(key)
        action = specs.sample(env.action_spec, action_key)
        ours = env.step(state, action, jax.random.split(key)[0])  # gymnax gives half to the reset
        _, state, reward, terminated, truncated, info = library.step(key, state, action)
        theirs = (info["final_observation"], jnp.float32(reward), terminated, truncated)
        return state, (ours.obs, ours.reward, ours.terminated, ours.truncated), theirs

    state = env.reset(jax.random.key(0)).state
    ended = 0
    for key in jax.random.split(jax.random.key(1), 250):
        state, ours, theirs = compare(state, key)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
        assert bool(ours[2]) == bool(theirs[2])
        assert bool(ours[3]) == bool(theirs[3] and not (both and theirs[2]))
        ended += int(ours[2] | ours[3])
    assert ended > 0


def balance(obs: jax.Array) -> jax.Array:
    """Hold CartPole's pole up for as long as one likes."""
    position, velocity, angle, angular_velocity = obs
    return (0.1 * position + 0.2 * velocity + angle + 0.5 * angular_velocity > 0).astype(jnp.int32)


def test_a_cartpole_that_survives_is_truncated_at_500_and_not_terminated() -> None:
    env = gymnax.make("CartPole-v1")

    def step(start: Any, key: jax.Array) -> Any:
        after = env.step(start.state, balance(start.obs), key)
        return after, (after.terminated, after.truncated)

    @jax.jit
    def episode(key: jax.Array) -> Any:
        reset_key, steps_key = jax.random.split(key)
        return jax.lax.scan(step, env.reset(reset_key), jax.random.split(steps_key, 500))[1]

    terminated, truncated = episode(jax.random.key(0))
    assert not terminated.any()
    assert np.flatnonzero(truncated).tolist() == [499]


def test_gymnax_never_resets_by_itself() -> None:
    env = gymnax.make("CartPole-v1", max_steps_in_episode=3)
    step = env.reset(jax.random.key(0))
    for time in range(1, 4):
        step = env.step(step.state, jnp.int32(0), jax.random.key(time))
        assert step.state.time == time
        assert bool(step.truncated) == (time == 3)
    assert step.obs[1] < -0.3  # pushed left three times, not started anew


def test_gymnax_takes_fields_of_its_params_and_arguments_of_its_constructor() -> None:
    env = gymnax.make("DeepSea-bsuite", size=5, unscaled_move_cost=0.5)
    assert env.obs_spec == specs.Box((5, 5), "float32", 0.0, 1.0)
    assert env == gymnax.make("DeepSea-bsuite", unscaled_move_cost=0.5, size=5)
    assert env != gymnax.make("DeepSea-bsuite")
    right = env.reset(jax.random.key(0)).state.action_mapping[0, 0]
    step = env.step(env.reset(jax.random.key(0)).state, right, jax.random.key(1))
    assert step.reward == pytest.approx(-0.5 / 5)


def test_gymnax_takes_a_tuple_where_the_default_is_an_array() -> None:
    env = gymnax.make("Acrobot-v1", available_torque=(-2.0, 0.0, 2.0))
    step = jax.jit(env.step)(env.reset(jax.random.key(0)).state, jnp.int32(2), jax.random.key(1))
    assert np.isfinite(step.obs).all()


def test_gymnax_reports_what_is_returned_where_the_declaration_is_wrong() -> None:
    assert gymnax.make("Catch-bsuite").obs_spec == specs.Box((10, 5), "float32", 0.0, 1.0)
    assert gymnax.make("FourRooms-misc").obs_spec == specs.Box((4,), "int32", 1.0, 11.0)
    assert gymnax.make("GaussianBandit-misc").obs_spec == specs.Box((4,), "float32")


def test_gymnax_declares_the_largest_float_as_unbounded() -> None:
    spec = gymnax.make("CartPole-v1").obs_spec
    assert isinstance(spec, specs.Box)
    high = np.array([4.8, np.inf, 0.41887903, np.inf], np.float32)
    np.testing.assert_array_equal(spec.bounds()[1], high)


def test_gymnax_may_be_first_used_while_a_program_is_traced() -> None:
    env = gymnax.make("DeepSea-bsuite")  # it keeps a random array, made by its constructor
    adapting._adapter.cache_clear()
    jax.jit(env.reset)(jax.random.key(0))
    assert env.reset(jax.random.key(1)).obs.shape == (8, 8)


def test_gymnax_leaves_the_promotion_settings_alone() -> None:
    env = gymnax.make("UmbrellaChain-bsuite")
    env.step(env.reset(jax.random.key(0)).state, jnp.int32(0), jax.random.key(1))
    with pytest.raises(jax.dtypes.TypePromotionError):
        _ = jnp.ones((2,), jnp.float32) * jnp.ones((2,), jnp.int32)


@pytest.mark.parametrize(
    ("env_id", "params", "message"),
    [
        ("CartPole-v0", {}, "unknown gymnax environment 'CartPole-v0'; did you mean 'CartPole-v1'"),
        ("MNISTBandit-bsuite", {}, "MNISTBandit-bsuite is not supported: it downloads"),
        ("CartPole-v1", {"gravty": 1.0}, "did you mean 'gravity'"),
        ("FourRooms-misc", {"goal_fixed": [1, 1]}, "'goal_fixed'.*must be.*tuple.*got a list"),
    ],
)
def test_gymnax_explains_bad_input(env_id: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        gymnax.make(env_id, **params)


def test_gymnax_names_all_but_the_one_that_downloads() -> None:
    names = gymnax.names()
    assert len(names) == 25
    assert "CartPole-v1" in names
    assert "MNISTBandit-bsuite" not in names


def walk(env: Any, actions: list[int]) -> list[Any]:
    """Take the actions from the start."""
    steps = [env.reset(jax.random.key(0))]
    for action in actions:
        steps.append(env.step(steps[-1].state, jnp.int32(action), jax.random.key(0)))
    return steps


def test_gridworld_starts_bottom_right_and_stays_within_its_border() -> None:
    env = gridworld.make("2x3")
    cells = [int(step.obs) for step in walk(env, [1, 2, 3, 0, 0, 1, 2])]
    assert cells == [5, 5, 5, 4, 1, 1, 2, 5]


def test_gridworld_pays_and_terminates_on_arrival_only() -> None:
    steps = walk(gridworld.make("2x3"), [0, 3, 3])
    assert [float(step.reward) for step in steps] == [0.0, 0.0, 0.0, 1.0]
    assert [bool(step.terminated) for step in steps] == [False, False, False, True]
    assert not any(step.truncated for step in steps)


def test_gridworld_truncates_at_its_time_limit() -> None:
    steps = walk(gridworld.make("2x3", max_steps=2), [0, 0])
    assert [bool(step.truncated) for step in steps[1:]] == [False, True]
    assert not any(bool(step.terminated) for step in steps[1:])


def test_gridworld_shows_the_cell_as_one_hot() -> None:
    index = walk(gridworld.make("2x3"), [0, 3])
    onehot = walk(gridworld.make("2x3", observation="onehot"), [0, 3])
    for cell, vector in zip(index, onehot, strict=True):
        np.testing.assert_array_equal(vector.obs, np.eye(6, dtype=np.float32)[int(cell.obs)])


def test_gridworld_optimal_values_solve_its_bellman_equation() -> None:
    env, discount = gridworld.make("4x5"), 0.9
    values = env.optimal_values(discount)
    for row, column in np.ndindex(4, 5):
        if (row, column) == (0, 0):
            continue
        state = gridworld.GridState(row=jnp.int32(row), column=jnp.int32(column))
        steps = [env.step(state, jnp.int32(action), jax.random.key(0)) for action in range(4)]
        returns = [
            float(step.reward)
            + discount * (not step.terminated) * values[int(step.state.row), int(step.state.column)]
            for step in steps
        ]
        assert values[row, column] == pytest.approx(max(returns))
    assert values[0, 0] == 0.0
    assert values[3, 4] == pytest.approx(0.9**6)


def test_gridworld_of_ten_by_ten_has_the_published_start_value() -> None:
    assert gridworld.make("10x10").optimal_values(0.9)[-1, -1] == pytest.approx(0.1668, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("eight", {}, "height and width, such as 8x8; got 'eight'"),
        ("1x1", {}, "at least two cells, got 1 x 1"),
        ("0x4", {}, "at least two cells, got 0 x 4"),
        ("4x4", {"observation": "one-hot"}, "did you mean 'onehot'"),
        ("4x4", {"size": 3}, "unknown option 'size' of gridworld:4x4"),
        ("4x4", {"max_steps": 0}, "max_steps of gridworld:4x4 must be at least 1, got 0"),
        ("4x4", {"max_steps": 2.5}, "max_steps of gridworld:4x4 must be an integer, got 2.5"),
    ],
)
def test_gridworld_explains_bad_input(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        gridworld.make(name, **options)


def test_there_are_eight_probes() -> None:
    assert probes.names("continuous") == ["reach"]
    assert probes.names("multi") == ["two-dials"]
    assert probes.names() == [*probes.names("discrete"), "two-dials", "reach"]
    assert set(probes.names("discrete")) == {
        "constant-reward",
        "obs-reward",
        "action-reward",
        "obs-action-reward",
        "two-step",
        "truncating",
    }


def test_the_values_that_reach_expects_are_those_of_the_best_action() -> None:
    env = probes.make("reach")
    for case in env.expected(0.9):
        obs, actions = jnp.array(case.obs), jnp.linspace(0.0, 4.0, 41)[:, None]
        rewards = jax.vmap(lambda a, o=obs: env.step(o, a, jax.random.key(0)).reward)(actions)
        assert float(rewards.max()) == pytest.approx(case.value, abs=1e-6)
        assert float(actions[rewards.argmax(), 0]) == pytest.approx(case.action, abs=1e-6)


def test_the_values_that_two_dials_expect_are_those_of_the_best_action() -> None:
    env = probes.make("two-dials")
    actions = [(first, second) for first in range(2) for second in range(3)]
    for state, case in enumerate(env.expected(0.9)):
        steps = jax.vmap(lambda a, s=state: env.step(jnp.int32(s), a, jax.random.key(0)))(
            jnp.array(actions, jnp.int32)
        )
        assert tuple(steps.obs[0].tolist()) == case.obs
        assert actions[steps.reward.argmax()] == case.action
        assert sorted(steps.reward.tolist()) == [0, 0, 0.5, 0.5, 0.5, case.value]


@pytest.mark.parametrize("name", probes.names("discrete"))
def test_the_values_that_a_probe_expects_are_those_of_its_optimal_policy(name: str) -> None:
    env, discount = probes.make(name), 0.5
    expected = {e.obs: e for e in env.expected(discount)}

    def bootstrapped(step: Any) -> float:
        following = 0.0 if step.terminated else expected[tuple(step.obs.tolist())].value
        return float(step.reward) + discount * following

    seen = set()
    step_fn, reset = jax.jit(env.step), jax.jit(env.reset)
    for key in jax.random.split(jax.random.key(0), 12):
        step = reset(key)
        while not (step.terminated | step.truncated):
            obs = tuple(step.obs.tolist())
            seen.add(obs)
            after = [step_fn(step.state, jnp.int32(action), key) for action in range(2)]
            values = [bootstrapped(a) for a in after]
            assert expected[obs].value == pytest.approx(max(values))
            if expected[obs].action is None:
                assert values[0] == pytest.approx(values[1])
            else:
                assert expected[obs].action == int(np.argmax(values))
            step = after[0]
    assert seen == set(expected)


def test_a_truncating_probe_never_terminates_and_tells_no_time() -> None:
    env = probes.make("truncating", max_steps=3)
    step = env.reset(jax.random.key(0))
    flags = []
    for _ in range(3):
        step = env.step(step.state, jnp.int32(0), jax.random.key(1))
        flags.append((bool(step.terminated), bool(step.truncated), float(step.obs[0])))
    assert flags == [(False, False, 0.0), (False, False, 0.0), (False, True, 0.0)]
    assert env.expected(0.9)[0].value == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("constant", {}, "did you mean 'constant-reward'"),
        ("two-step", {"max_steps": 3}, "probe:two-step takes no options, got 'max_steps'"),
        ("truncating", {"steps": 3}, "did you mean 'max_steps'"),
        ("truncating", {"max_steps": 0}, "max_steps must be at least 1, got 0"),
    ],
)
def test_probes_explain_bad_input(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        probes.make(name, **options)
