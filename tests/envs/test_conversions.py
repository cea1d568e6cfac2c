"""Values between Python and JAX: what a type of JAX cannot hold is refused, and never wraps."""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import triglot
from triglot.core.errors import TriglotError
from triglot.core.host.vector import HostRunner
from triglot.core.host_environment import HostStep, to_dtype
from triglot.core.specs import Box, Discrete, Spec
from triglot.core.trainers import make_trainer
from triglot.envs.adapting.spaces import spec_from_space
from triglot.envs.gymnasium import make

LARGE = 986497006768  # wraps to -1345471312 in int32
INT64, FLOAT64, UINT64 = np.iinfo(np.int64), np.finfo(np.float64), np.iinfo(np.uint64)


class Shows(gymnasium.Env):
    """Show a value in any space from the second step on, and record the actions."""

    actions: ClassVar[list[Any]] = []

    def __init__(self, kind: str, value: Any = 0, actions: str = "two") -> None:
        self.observation_space, self.value = (
            KINDS[kind],
            float(value) if type(value) is str else value,
        )
        self.action_space = ACTIONS[actions]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(0), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        self.time += 1
        self.actions.append(action)
        return self.observe(self.value if self.time > 1 else 0), 1.0, False, self.time == 4, {}

    def observe(self, value: Any) -> Any:
        space: Any = self.observation_space
        if isinstance(space, spaces.Dict):
            return {"part": np.full((2,), value, space["part"].dtype)}
        if isinstance(space, spaces.Discrete):
            return int(value) + int(space.start)
        return np.full(space.shape, value, space.dtype)


KINDS: dict[str, Any] = {
    "int64": spaces.Box(0, 2**40, (2,), np.int64),
    "negative": spaces.Box(-(2**40), 0, (2,), np.int64),
    "uint64": spaces.Box(0, 2**40, (2,), np.uint64),
    "float64": spaces.Box(0.0, 1e300, (2,), np.float64),
    "elements": spaces.Box(0, np.array([5, 2**31]), dtype=np.int64),
    "part": spaces.Dict({"part": spaces.Box(0, 2**40, (2,), np.int64)}),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 2**40, (2,), np.int64))),
    "discrete": spaces.Discrete(2**33),
    "several": spaces.MultiDiscrete([3, 2**33]),
    "free int64": spaces.Box(INT64.min, INT64.max, (2,), np.int64),
    "free uint64": spaces.Box(0, UINT64.max, (2,), np.uint64),
    "free float64": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "largest float64": spaces.Box(FLOAT64.min, FLOAT64.max, (2,), np.float64),
    "free part": spaces.Dict({"part": spaces.Box(INT64.min, INT64.max, (2,), np.int64)}),
    "small int64": spaces.Box(0, 100, (2,), np.int64),
    "started": spaces.Discrete(5, start=LARGE),
    "five": spaces.Discrete(5),
}
ACTIONS: dict[str, Any] = {
    "two": spaces.Discrete(2),
    "tenths": spaces.Box(-0.1, 0.1, (2,), np.float64),
    "int64": spaces.Box(0, 2**40, (2,), np.int64),
    "many": spaces.Discrete(2**33),
}
gymnasium.register("triglot/Shows-v0", cast(Any, Shows))


@pytest.mark.parametrize(
    "kind",
    ["int64", "negative", "uint64", "float64", "elements", "part", "tuple", "discrete", "several"],
)
def test_declared_values_that_the_type_cannot_hold_are_refused_at_once(kind: str) -> None:
    with pytest.raises(TriglotError, match=r"cannot hold .*smaller range|must be at most 2,147"):
        make("triglot/Shows-v0", kind=kind)


@pytest.mark.parametrize("actions", ["int64", "many"])
def test_declared_actions_that_the_type_cannot_hold_are_refused_at_once(actions: str) -> None:
    with pytest.raises(TriglotError, match=r"cannot hold|must be at most 2,147"):
        make("triglot/Shows-v0", kind="five", actions=actions)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("free int64", LARGE),
        ("free int64", -LARGE),
        ("free uint64", LARGE),
        ("free float64", "1e300"),
        ("largest float64", "-1e300"),
        ("free part", LARGE),
        ("small int64", LARGE),
    ],
)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_value_that_the_type_cannot_hold_ends_the_step(
    kind: str, value: float, mode: str
) -> None:
    if mode == "async" and kind != "free int64":
        pytest.skip("the conversion is the same")
    env = make("triglot/Shows-v0", kind=kind, value=value, vectorization_mode=mode)
    runner = HostRunner(env, 2, [0])
    try:
        runner.step(np.zeros((1, 2), np.int32))
        with pytest.raises(TriglotError, match=r"in step 2: an observation is .* cannot hold"):
            runner.step(np.zeros((1, 2), np.int32))
    finally:
        runner.close()


@pytest.mark.parametrize(
    ("kind", "value", "dtype"),
    [
        ("free int64", 2**31 - 1, "int32"),
        ("free int64", -(2**31), "int32"),
        ("free uint64", 2**32 - 1, "uint32"),
        ("free float64", 3.0e38, "float32"),
        ("small int64", 100, "int32"),
        ("started", 4, "int32"),
    ],
)
def test_values_that_the_type_holds_arrive(kind: str, value: float, dtype: str) -> None:
    vector = make("triglot/Shows-v0", kind=kind, value=value).open(1)
    vector.reset(0)
    step = [vector.step(np.zeros(1, np.int32)) for _ in range(2)][-1]
    assert step.next_obs.dtype == dtype
    np.testing.assert_array_equal(step.next_obs, np.full_like(step.next_obs, value))


def test_float64_is_rounded_to_float32() -> None:
    vector = make("triglot/Shows-v0", kind="free float64", value=0.1).open(1)
    vector.reset(0)
    step = [vector.step(np.zeros(1, np.int32)) for _ in range(2)][-1]
    assert (step.next_obs == np.float32(0.1)).all()


def test_an_index_outside_its_range_ends_the_rollout() -> None:
    env = make("triglot/Shows-v0", kind="five", value=7)
    agent = triglot.make_agent("q_learning", env, config={"num_envs": 2, "rollout_length": 4})
    with pytest.raises(TriglotError, match=r"returned next_obs 7 in step 2 .*Discrete"):
        triglot.train(agent, env, key=jax.random.key(0), total_steps=8)


def test_actions_stay_within_the_bounds_of_a_float64_space() -> None:
    env = make("triglot/Shows-v0", kind="five", actions="tenths")
    vector = env.open(1)
    vector.reset(0)
    Shows.actions.clear()
    for sign in (-1, 1):  # float32(0.1) is above 0.1
        vector.step(np.full((1, 2), sign * np.float32(0.1), np.float32))
    assert len(Shows.actions) == 2
    assert all(ACTIONS["tenths"].contains(action) for action in Shows.actions)


@dataclass(frozen=True)
class Custom:
    """An environment of the host's protocol that returns what it is given."""

    obs_spec: Spec
    obs: float = 0.0
    reward: Any = 1.0
    flag: Any = False
    name = "custom"
    action_spec = Discrete(2)

    def open(self, num_envs: int) -> "CustomVector":
        return CustomVector(self, num_envs)


class CustomVector:
    def __init__(self, env: Custom, num_envs: int) -> None:
        self.env, self.num_envs = env, num_envs

    def reset(self, seed: int) -> Any:
        del seed
        spec: Any = self.env.obs_spec
        return np.zeros((self.num_envs, *spec.shape), spec.dtype)

    def step(self, action: np.ndarray) -> HostStep:
        del action
        obs = self.reset(0) + np.asarray(self.env.obs).astype(self.env.obs_spec.dtype)  # pyright: ignore
        flag = np.full(self.num_envs, self.env.flag)
        reward = np.broadcast_to(self.env.reward, (self.num_envs, *np.shape(self.env.reward)[1:]))
        return HostStep(reward, flag, np.zeros(self.num_envs, bool), obs, obs)

    def close(self) -> None:
        pass


VECTOR = Box((2,), "float32")


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (Custom(Box((2,), "int64"), obs=LARGE), "an observation is 986497006768"),
        (Custom(Box((2,), "float64"), obs=1e300), "an observation is 1e.300"),
        (Custom(VECTOR, reward=1e300), "a reward is 1e.300"),
        (Custom(VECTOR, flag=2), "terminated is 2"),
        (Custom(VECTOR, flag=float("nan")), "terminated is nan"),
        (Custom(VECTOR, reward=((1.0,),)), r"a reward must have the shape \(2,\)"),
    ],
)
def test_what_a_custom_vector_returns_is_converted_or_refused(env: Custom, says: str) -> None:
    runner = HostRunner(env, 2, [0])
    with pytest.raises(TriglotError, match=f"in step 1: {says}"):
        runner.step(np.zeros((1, 2), np.int32))


@pytest.mark.parametrize(
    "env",
    [
        Custom(Box((2,), "int64", 0, 9), obs=9),
        Custom(Box((2,), "float64", 0, 9), obs=9),
        Custom(Discrete(10, "int64"), obs=9),
        Custom(VECTOR, reward=3, flag=1),
    ],
)
def test_what_fits_is_converted(env: Custom) -> None:
    runner = HostRunner(env, 2, [0])
    step = runner.step(np.zeros((1, 2), np.int32))
    assert step.next_obs.dtype == jax.dtypes.canonicalize_dtype(env.obs_spec.dtype)  # pyright: ignore
    assert (step.next_obs == env.obs).all()
    assert step.reward.dtype == np.float32 and (step.reward == env.reward).all()
    assert step.terminated.dtype == bool and (step.terminated == bool(env.flag)).all()
    assert runner.obs.dtype == step.next_obs.dtype


@pytest.mark.parametrize("spec", [Box((2,), "int64", 0, LARGE), Box((1,), "int64", -LARGE, 0)])
def test_a_custom_environment_that_declares_too_much_is_refused(spec: Spec) -> None:
    env: Any = Custom(spec)
    agent = triglot.make_agent("ppo", Custom(VECTOR), backend="jax")  # pyright: ignore
    with pytest.raises(TriglotError, match=r"an observation of custom.*cannot hold"):
        make_trainer(agent, env)


@pytest.mark.slow
def test_whole_numbers_outside_their_range_do_not_wrap_in_a_replay_buffer() -> None:
    env: Any = Custom(Box((2,), "float32", 0, 1, whole=True), obs=300)
    agent = triglot.make_agent("dqn", env, backend="jax", config={"num_envs": 2})
    with pytest.raises(TriglotError, match=r"returned next_obs \[300.0, 300.0\]"):
        triglot.train(agent, env, key=jax.random.key(0), total_steps=2)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([2**31], "int32"), ([-1], "uint8"), ([256], "uint8"), ([0.5], "int32"),
        ([float("nan")], "int32"), ([float("inf")], "int64"), ([2**70], "int64"),
        ([2], "bool"), ([1e39], "float32"), ([70000.0], "float16"),
    ],
)  # fmt: skip
def test_a_conversion_that_would_change_a_value_is_refused(values: list, dtype: str) -> None:
    with pytest.raises(TriglotError, match=f"which {dtype} cannot hold"):
        to_dtype(values, dtype)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([255, 0], "uint8"), ([1.0], "int32"), ([0, 1], "bool"), ([1, -5], "float32"), ([], "int32")],
)
def test_a_conversion_that_keeps_values_is_done(values: list, dtype: str) -> None:
    found = to_dtype(values, dtype)
    assert found.dtype == dtype and found.tolist() == values


def test_infinite_and_missing_floats_stay_for_their_own_check() -> None:
    found = to_dtype(np.array([np.inf, -np.inf, np.nan]), "float32")
    np.testing.assert_array_equal(found, np.array([np.inf, -np.inf, np.nan], np.float32))


def test_a_result_is_a_copy() -> None:
    given = np.zeros(3, np.float32)
    assert not np.shares_memory(to_dtype(given, "float32"), given)


def test_bounds_of_32_bits_are_declared_as_they_are() -> None:
    whole = np.iinfo(np.uint32)
    spec = spec_from_space(spaces.Box(0, whole.max, (2,), np.uint32))
    assert spec == Box((2,), "uint32", 0.0, float(whole.max))
    assert spec_from_space(KINDS["free uint64"]) == Box((2,), "uint32", 0.0)
