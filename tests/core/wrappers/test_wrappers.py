"""Each wrapper by hand, and all of them by the rules of every environment."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import triglot
from tests.core.wrappers.clock import Clock, ends, play, rewards
from triglot.checks.environment.check import check_environment
from triglot.core.environment import Environment, first_step
from triglot.core.errors import TriglotError
from triglot.core.specs import Box, Dict, Discrete, MultiDiscrete, Spec, floats, mismatch, sample
from triglot.core.wrappers.actions import ActionRepeat, StickyActions, _allows
from triglot.core.wrappers.base import Wrapper, without_wrappers
from triglot.core.wrappers.ends import AbsorbingStates, TimeLimit, absorbing_until
from triglot.core.wrappers.levels import Levels
from triglot.core.wrappers.observations import FlattenObservation, FrameStack, SelectEntries
from triglot.core.wrappers.rewards import ClipReward, ScaleReward
from triglot.envs import gridworld, gymnasium, gymnax, probes

CUT = Clock(end="truncated")
NO_ENV: Any = "env"
GYMNASIUM: Any = gymnasium.make("CartPole-v1")


@dataclass(frozen=True)
class Shown:
    """Observes a fixed value at the start; for the specs of observations."""

    obs_spec: Spec
    shown: Any = None
    name = "shown"
    action_spec = Discrete(2)

    def reset(self, key: jax.Array) -> Any:
        return first_step((), jax.tree.map(jnp.asarray, self.shown))

    def step(self, state: Any, action: Any, key: jax.Array) -> Any:
        return self.reset(key)

    __hash__ = None  # type: ignore[assignment]


def observations(steps: list[Any]) -> list[list[float]]:
    return [step.obs.tolist() for step in steps]


def test_frames_are_stacked_from_the_oldest_and_the_first_is_repeated() -> None:
    env = FrameStack(Clock(), 3)
    assert env.obs_spec == Box((6,), "float32", 0.0, 9.0)
    assert observations(play(env, [4, 3, 2])) == [
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 4],
        [0, 0, 1, 4, 2, 3],
        [1, 4, 2, 3, 3, 2],
    ]


@pytest.mark.parametrize(
    ("shape", "stacked"),
    [((), (4,)), ((5,), (20,)), ((5, 6), (5, 6, 4)), ((5, 6, 3), (5, 6, 12))],
)
def test_images_are_stacked_as_channels(shape: tuple[int, ...], stacked: tuple[int, ...]) -> None:
    image = np.arange(np.prod(shape, dtype=int), dtype=np.uint8).reshape(shape)
    env = FrameStack(Shown(Box(shape, "uint8", 0, 255), image), 4)
    obs = env.reset(jax.random.key(0)).obs
    assert env.obs_spec == Box(stacked, "uint8", 0.0, 255.0)
    assert mismatch(env.obs_spec, obs) is None
    newest = np.asarray(obs)[..., -(shape[-1] if len(shape) in (1, 3) else 1) :]
    np.testing.assert_array_equal(newest.reshape(shape), image)


def test_stacked_bits_are_read_as_bits() -> None:
    env: Any = FrameStack(Shown(Box((2,), "uint8", 0, 1), np.array([1, 0], np.uint8)), 2)
    obs = env.reset(jax.random.key(0)).obs
    assert floats(env.obs_spec, obs).tolist() == [1, 0, 1, 0]


def test_bounds_of_each_element_are_stacked_with_it() -> None:
    env: Any = FrameStack(gymnax.make("CartPole-v1"), 2)
    low, high = env.obs_spec.bounds()
    one = env.env.obs_spec.bounds()
    np.testing.assert_array_equal(low, np.tile(one[0], 2))
    np.testing.assert_array_equal(high, np.tile(one[1], 2))


def test_entries_are_observed_in_the_order_that_is_given() -> None:
    env: Any = SelectEntries(gymnax.make("CartPole-v1"), (2, 0))
    whole = play(env.env, [1, 0, 1])
    assert observations(play(env, [1, 0, 1])) == [
        step.obs[np.array([2, 0])].tolist() for step in whole
    ]
    for bound, one in zip(env.obs_spec.bounds(), env.env.obs_spec.bounds(), strict=True):
        np.testing.assert_array_equal(bound, one[[2, 0]])


def test_sticky_actions_take_the_action_before_as_often_as_they_say() -> None:
    env, count = StickyActions(Clock(length=10**6), 0.25), 4000
    chosen = jnp.arange(count, dtype=jnp.int32) % 5

    def step(state: Any, inputs: Any) -> Any:
        after = env.step(state, *inputs)
        return after.state, after.obs[1]

    keys = jax.random.split(jax.random.key(1), count)
    _, taken = jax.lax.scan(step, env.reset(jax.random.key(0)).state, (chosen, keys))
    taken, before = np.asarray(taken, int), np.roll(taken, 1)
    stuck = taken != np.asarray(chosen)
    assert not stuck[0]
    np.testing.assert_array_equal(taken[stuck], before[stuck])
    # A chosen action may be the one before, after a replacement; 4 standard errors.
    assert stuck.mean() == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / count) ** 0.5 + 0.01)


@pytest.mark.parametrize(("probability", "taken"), [(0.0, [4, 3, 2]), (1.0, [4, 4, 4])])
def test_sticky_actions_always_and_never(probability: float, taken: list[int]) -> None:
    steps = play(StickyActions(Clock(), probability), [4, 3, 2])
    assert [int(step.obs[1]) for step in steps[1:]] == taken
    assert ends(steps) == "--T"


def test_a_forbidden_action_is_not_taken_again() -> None:
    # The time is forbidden: 2 is allowed after the first step, and not after the second.
    steps = play(StickyActions(Clock(length=9, masked=True), 1.0), [2, 3, 4, 0])
    assert [int(step.obs[1]) for step in steps[1:]] == [2, 2, 4, 4]


def test_a_forbidden_value_of_several_integers_is_not_taken_again() -> None:
    mask = jnp.array([True, False, True, True, False])
    spec = MultiDiscrete((2, 3))
    allowed = [[a, b] for a in range(2) for b in range(3) if _allows(spec, mask, jnp.array([a, b]))]
    assert allowed == [[0, 0], [0, 1]]


REPEATED = [
    # The end of the clock, times each action is taken, rewards and ends of two steps.
    (Clock(5), 2, [10 + 20 + 2, 30 + 40 + 6], "--"),
    (Clock(3), 2, [10 + 20 + 2, 30 + 3], "-T"),
    (Clock(3, "truncated"), 2, [10 + 20 + 2, 30 + 3], "-t"),
    (Clock(9), 1, [10 + 1, 20 + 3], "--"),
]


@pytest.mark.parametrize(("clock", "times", "sums", "codes"), REPEATED)
def test_an_action_is_repeated_until_an_end(
    clock: Clock, times: int, sums: list[float], codes: str
) -> None:
    steps = play(ActionRepeat(clock, times), [1, 3])
    assert rewards(steps) == sums
    assert ends(steps) == codes
    assert int(steps[-1].obs[0]) == min(2 * times, clock.length)


def test_a_repeated_action_gets_another_key_each_time() -> None:
    @dataclass(frozen=True)
    class Draws(Clock):
        def step(self, state: Any, action: Any, key: jax.Array) -> Any:
            return replace(super().step(state, action, key), reward=jax.random.uniform(key))

    once, twice = play(Draws(9), [0])[1].reward, play(ActionRepeat(Draws(9), 2), [0])[1].reward
    assert not np.isclose(twice, 2 * once)


def test_rewards_are_scaled_and_clipped() -> None:
    assert rewards(play(ScaleReward(Clock(), 0.5), [0, 1, 2])) == [5.0, 10.5, 16.0]
    assert rewards(play(ClipReward(Clock(), 12.0, 21.0), [0, 1, 2])) == [12.0, 21.0, 21.0]
    assert rewards(play(ScaleReward(ClipReward(Clock()), -3), [0, 1, 2])) == [-3.0] * 3


def test_an_observation_of_all_kinds_is_flattened_in_the_order_of_names() -> None:
    spec = Dict({
        "speed": Box((2,), "float32", -1.0, 2.0),
        "cell": Discrete(3),
        "dials": MultiDiscrete((2, 2)),
        "image": Box((1, 2), "uint8", 0, 255),
        "on": Box((), "bool", 0, 1),
    })  # fmt: skip
    shown = {
        "speed": np.array([0.5, -1], np.float32),
        "cell": np.int32(2),
        "dials": np.array([1, 0], np.int32),
        "image": np.array([[7, 255]], np.uint8),
        "on": np.bool_(True),
    }
    env: Any = FlattenObservation(Shown(spec, shown))
    obs = env.reset(jax.random.key(0)).obs
    assert obs.tolist() == [0, 0, 1, 0, 1, 1, 0, 7, 255, 1, 0.5, -1]
    assert mismatch(env.obs_spec, obs) is None
    low, high = env.obs_spec.bounds()
    assert low.tolist() == [0] * 10 + [-1] * 2
    assert high.tolist() == [1] * 7 + [255] * 2 + [1, 2, 2]


@pytest.mark.parametrize(
    ("spec", "whole"),
    [
        (Discrete(3), True),
        (Box((2,), "uint8", 0, 255), True),
        (Box((2,), whole=True), True),
        (Box((2,)), False),
    ],
)
def test_a_flat_observation_is_whole_where_all_is(spec: Spec, whole: bool) -> None:
    env: Any = FlattenObservation(Shown(spec, sample(spec, jax.random.key(0))))
    assert env.obs_spec.whole == whole


def test_after_its_end_a_task_is_absorbed() -> None:
    env = absorbing_until(Clock(), 5)
    assert env.obs_spec == Box((3,), "float32", 0.0, (9.0, 9.0, 1.0))
    steps = play(env, [4, 3, 2, 1, 0])
    assert observations(steps) == [[0, 0, 0], [1, 4, 0], [2, 3, 0], *[[0, 0, 1]] * 3]
    assert rewards(steps) == [14.0, 23.0, 32.0, 0.0, 0.0]
    assert ends(steps) == "----t"
    assert int(steps[-1].state.state.state) == 3  # the last state of the task, for drawings


def test_a_truncation_is_not_absorbed() -> None:
    steps = play(AbsorbingStates(CUT), [0, 0, 0])
    assert ends(steps) == "--t"
    assert [float(step.obs[-1]) for step in steps] == [0.0] * 4


def test_every_action_is_allowed_once_absorbed() -> None:
    steps = play(AbsorbingStates(Clock(masked=True)), [4, 3, 2, 1])
    assert [np.count_nonzero(np.asarray(step.action_mask)) for step in steps] == [4, 4, 4, 5, 5]


def test_a_time_limit_counts_steps() -> None:
    assert ends(play(TimeLimit(Clock(), 2), [0, 0])) == "-t"
    assert ends(play(TimeLimit(Clock(), 3), [0, 0, 0])) == "--T"
    assert ends(play(TimeLimit(ActionRepeat(Clock(9), 2), 2), [0, 0])) == "-t"


def first_entries(env: Any) -> Environment:
    """Swap the first two entries, or keep the only one."""
    return SelectEntries(env, (1, 0) if env.obs_spec.shape[0] > 1 else (0,))


WRAP: dict[str, Callable[[Any], Environment]] = {
    "frames": lambda env: FrameStack(env, 3),
    "sticky": lambda env: StickyActions(env, 0.5),
    "repeat": lambda env: ActionRepeat(env, 2),
    "scale": lambda env: ScaleReward(env, 0.1),
    "clip": lambda env: ClipReward(env, -0.5, 0.5),
    "limit": lambda env: TimeLimit(env, 7),
    "flat": FlattenObservation,
    "entries": first_entries,
    "absorbing": lambda env: absorbing_until(env, 9),
    "levels": lambda env: Levels(env, 4),
    "all": lambda env: FrameStack(
        absorbing_until(
            first_entries(
                FlattenObservation(
                    ClipReward(ScaleReward(ActionRepeat(StickyActions(Levels(env, 4)), 2), 3.0))
                )
            ),
            9,
        ),
        2,
    ),
}
ENVIRONMENTS: dict[str, Callable[[], Environment]] = {
    "two dials": lambda: probes.make("two-dials"),
    "grid": lambda: gridworld.make("3x3", observation="onehot", max_steps=12),
    "cartpole": lambda: gymnax.make("CartPole-v1"),
}
wrapped = pytest.mark.parametrize("wrap", WRAP.values(), ids=list(WRAP))


@pytest.mark.covering(33)
@wrapped
@pytest.mark.parametrize("make", ENVIRONMENTS.values(), ids=list(ENVIRONMENTS))
def test_a_wrapped_environment_passes_the_check_of_environments(
    wrap: Callable[[Any], Environment], make: Callable[[], Environment]
) -> None:
    report = check_environment(wrap(make()))
    assert report.passed, str(report)


@wrapped
def test_wrappers_are_equal_where_their_options_are(wrap: Callable[[Any], Environment]) -> None:
    one, other = wrap(gridworld.make("3x3", observation="onehot")), wrap(GRID)
    assert one == other and hash(one) == hash(other)
    assert one != wrap(gridworld.make("3x4", observation="onehot"))
    assert one != TimeLimit(one, 4)
    assert one.name == "gridworld:3x3"


GRID = gridworld.make("3x3", observation="onehot")


@wrapped
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_no_wrapper_merges_the_two_ends(wrap: Callable[[Any], Environment], end: Any) -> None:
    codes = ends(play(wrap(Clock(4, end)), [0] * 9))
    if end == "truncated":
        assert "T" not in codes
    assert "B" not in codes


@wrapped
def test_an_episode_is_drawn_through_wrappers(
    wrap: Callable[[Any], Environment], tmp_path: Path
) -> None:
    env: Any = wrap(GRID)
    states = [step.state for step in play(env, [0, 3])]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    assert env.draw_suffix == ".gif"
    env.draw(stacked, str(tmp_path / "episode.gif"))
    with Image.open(tmp_path / "episode.gif") as picture:
        assert picture.n_frames == 3  # pyright: ignore[reportAttributeAccessIssue]
    inside, inner = without_wrappers(env, stacked)
    assert inside is GRID and inner.row.shape == (3,)


def test_a_wrapper_passes_on_whether_resets_are_costly() -> None:
    @dataclass(frozen=True)
    class Costly(Clock):
        costly_reset: bool = True

    assert FrameStack(Costly()).costly_reset and not FrameStack(Clock()).costly_reset


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FrameStack(Clock(), 0), "FrameStack's num_frames must be at least 1, got 0"),
        (lambda: StickyActions(Clock(), 1.5), "probability must be within \\[0, 1\\], got 1.5"),
        (lambda: ActionRepeat(Clock(), True), "num_repeats must be an integer, got True"),
        (lambda: ScaleReward(Clock(), float("inf")), "scale must be finite, got inf"),
        (lambda: ClipReward(Clock(), 1.0, 1.0), "needs low < high, got 1.0 and 1.0"),
        (lambda: FrameStack(gridworld.make("3x3")), "has a Discrete: wrap it in FlattenObs"),
        (lambda: AbsorbingStates(gridworld.make("3x3")), "a float32 vector.*FlattenObservation"),
        (lambda: FrameStack(GYMNASIUM), "got gymnasium:CartPole-v1.*wrappers"),
        (lambda: Wrapper(NO_ENV), "wraps an environment in JAX.*got 'env'"),
    ],
)
def test_a_wrong_wrapper_is_explained(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        make()


@pytest.mark.slow
def test_a_wrapped_environment_trains() -> None:
    env = WRAP["all"](GRID)
    agent = triglot.make_agent("ppo", env, config={"num_envs": 2, "rollout_length": 8})
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=32)
    assert np.isfinite(result.metrics["loss"]).all()
