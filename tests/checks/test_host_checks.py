"""`check_environment` on environments stepped in Python: sound ones pass, planted faults fail."""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import triglot
from triglot.checks.environment import host_case
from triglot.checks.environment.host_checks import CHECKS
from triglot.cli import main as cli
from triglot.core.host_environment import HostStep
from triglot.core.specs import Box, Discrete, Spec

from .defects import only_failure

NARROW = spaces.Box(-10, 10, (2,), np.float32)
LARGE = 986497006768


class Walk(gymnasium.Env):
    """Walk on a line from near 0 until beyond 2; a time limit of 20 steps truncates.

    Attributes:
      fault: what is wrong, or what is unusual and right.
    """

    shared: ClassVar[dict[str, float]] = {"offset": 0.0}

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.observation_space: Any = NARROW
        self.action_space: Any = spaces.Discrete(3)
        self.state, self.time = np.zeros(2, np.float32), 0
        if fault == "dictionary":
            parts = {"place": NARROW, "time": spaces.Discrete(100, start=1)}
            self.observation_space = spaces.Dict({"inner": spaces.Dict(parts)})
        if fault in ("box", "nan at a bound", "raises at a bound"):
            self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        if fault == "large":
            free = np.iinfo(np.int64)
            self.observation_space = spaces.Box(free.min, free.max, (2,), np.int64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=None if self.fault == "ignores the seed" else seed)
        place = self.np_random.uniform(-0.1, 0.1)
        if self.fault == "global numbers":
            place = np.random.uniform(-0.1, 0.1)
        if self.fault == "fixed start":
            place = 0.05
        if self.fault == "one buffer":
            self.state[:] = place, 0
        else:
            self.state = np.array([place, 0], np.float32)
        if self.fault != "goes on":
            self.time = 0
        if self.fault == "class state":
            self.shared["offset"] = 0.0
        obs = self.observe()
        return obs if self.fault == "no info" else (obs, self.info())

    def step(self, action: Any) -> Any:
        move = np.float32([-0.5, 0.0, 0.5][action] if np.ndim(action) == 0 else action[0])
        self.time += 1
        if self.fault == "class state":
            self.shared["offset"] += 0.01
        place = self.state[0] + move + np.float32(0.01 * self.time)
        if self.fault == "class state":
            place = np.float32(place + self.shared["offset"])
        if self.fault == "one buffer":
            self.state[:] = place, min(self.time, 19) / 2
        else:
            self.state = np.array([place, min(self.time, 19) / 2], np.float32)
        terminated, truncated = bool(abs(place) > 2), self.time >= 20
        reward: Any = float(move)
        obs, info = self.observe(), self.info()
        match self.fault:
            case "resets itself" if terminated or truncated:
                obs, info = self.reset()
            case "an array as reward":
                reward = np.array([reward])
            case "no reward":
                reward = None
            case "a number as flag":
                return obs, reward, int(terminated), truncated, info
            case "an array as flag":
                return obs, reward, np.array([terminated]), truncated, info
            case "four values":
                return obs, reward, terminated or truncated, info
            case "nan at a bound" if abs(move) == 1:
                reward = float("nan")
            case "raises at a bound" if abs(move) == 1:
                raise RuntimeError("too far")
            case "both flags":
                terminated = truncated = terminated or truncated
        return obs, reward, terminated, truncated, info

    def observe(self) -> Any:
        match self.fault:
            case "one buffer":
                return self.state
            case "other dtype":
                return self.state.astype(np.float64)
            case "other shape":
                return self.state[:1]
            case "out of bounds" if self.time == 3:
                return np.array([11, 0], np.float32)
            case "nan" if self.time == 3:
                return np.array([np.nan, 0], np.float32)
            case "large":
                return np.array([0, LARGE if self.time > 2 else 0])
            case "dictionary":
                return {"inner": {"place": self.state.copy(), "time": self.time + 1}}
        return self.state.copy()

    def info(self) -> dict[str, Any]:
        mask = np.array([1, 1, 1], np.int8)
        match self.fault:
            case "mask":
                return {"action_mask": mask}
            case "mask comes late":
                return {"action_mask": mask} if self.time else {}
            case "mask goes":
                return {"action_mask": mask} if self.time < 3 else {}
            case "mask allows nothing":
                return {"action_mask": mask * (self.time < 3)}
        return {}


class WrongVector(gymnasium.vector.SyncVectorEnv):
    """A vector entry point whose `final_obs` is the next episode's start."""

    metadata: dict[str, Any] = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012 (as in the base class)

    def __init__(self, num_envs: int, fault: str = "", **options: Any) -> None:
        mode = gymnasium.vector.AutoresetMode.SAME_STEP
        super().__init__([Walk] * num_envs, autoreset_mode=mode)
        self.fault = fault

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(actions)
        if self.fault == "no final_obs":
            info.pop("final_obs", None)
        elif "final_obs" in info:
            info["final_obs"] = np.array([*obs, None], object)[:-1]
        return obs, reward, terminated, truncated, info


WALK = cast(Any, Walk)
gymnasium.register("triglot/Walk-v0", WALK)
gymnasium.register("triglot/WrongVector-v0", WALK, vector_entry_point=WrongVector)


@dataclass(frozen=True)
class Custom:
    """A sound environment of the host's protocol, of one random number."""

    obs_spec: Spec = Box((1,), "float32", 0.0, 1.0)
    name: Any = "custom"
    action_spec: Spec = Discrete(2)

    def open(self, num_envs: int) -> Any:
        return Numbers(self, num_envs)


class Numbers:
    def __init__(self, env: Custom, num_envs: int) -> None:
        self.env, self.num_envs = env, num_envs

    def draw(self) -> np.ndarray:
        spec: Any = self.env.obs_spec
        drawn = self.rng.random((self.num_envs, *spec.shape))
        return (10 * drawn if isinstance(spec, Discrete) else drawn).astype(spec.dtype)

    def reset(self, seed: int) -> np.ndarray:
        self.rng = np.random.default_rng(seed)
        return self.draw()

    def step(self, action: np.ndarray) -> HostStep:
        done, last = self.rng.random(self.num_envs) < 0.2, self.draw()
        obs = np.where(done.reshape(-1, *[1] * (last.ndim - 1)), self.draw(), last)
        return HostStep(action.astype(np.float32), done, ~done & done, last, obs)

    def close(self) -> None:
        pass


class Unhashable(Custom):
    __hash__: Any = None


@dataclass(frozen=True)
class Closed(Custom):
    def open(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise AssertionError


SOUND = {
    "CartPole-v1": ("gymnasium:CartPole-v1", {}),
    "its own vector, alone": ("gymnasium:CartPole-v1", {"vectorization_mode": "sync"}),
    "Pendulum-v1": ("gymnasium:Pendulum-v1", {}),
    "Taxi-v4": ("gymnasium:Taxi-v4", {}),
    "Blackjack-v1": ("gymnasium:Blackjack-v1", {}),
    "FrozenLake-v1": ("gymnasium:FrozenLake-v1", {}),
    "walk": ("gymnasium:triglot/Walk-v0", {}),
    "dictionary": ("gymnasium:triglot/Walk-v0", {"fault": "dictionary"}),
    "box": ("gymnasium:triglot/Walk-v0", {"fault": "box"}),
    "mask": ("gymnasium:triglot/Walk-v0", {"fault": "mask"}),
    "fixed start": ("gymnasium:triglot/Walk-v0", {"fault": "fixed start"}),
    "both flags": ("gymnasium:triglot/Walk-v0", {"fault": "both flags"}),
}
FAULTS = [
    ("reset", "no info"),
    ("step", "four values"),
    ("observation", "other dtype"),
    ("observation", "other shape"),
    ("declared bounds", "out of bounds"),
    ("reward", "an array as reward"),
    ("reward", "no reward"),
    ("flags", "a number as flag"),
    ("flags", "an array as flag"),
    ("action masks", "mask comes late"),
    ("action masks", "mask goes"),
    ("action masks", "mask allows nothing"),
    ("rollout", "large"),
    ("finite", "nan"),
    ("seeding", "global numbers"),
    ("seeding", "ignores the seed"),
    ("resets", "goes on"),
    ("independent", "class state"),
    ("last observation", "one buffer"),
    ("no self-reset", "resets itself"),
    ("every action", "nan at a bound"),
    ("every action", "raises at a bound"),
]
OTHERS = [
    ("protocol", Custom(name=3)),
    ("protocol", Closed()),
    ("protocol", Custom(obs_spec=Box((1,), "int64", 0, 2**40))),
    ("hashing", Unhashable()),
    ("declared ranges", Custom(obs_spec=Discrete(4))),
]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_case, "NUM_STEPS", 120)
    monkeypatch.setattr(host_case, "NUM_RAW", 60)


@pytest.mark.covering(6)
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_environment_passes(name: str) -> None:
    text, options = SOUND[name]
    report = triglot.check_environment(triglot.make_env(text, **options))
    assert report.passed, str(report)


def test_a_sound_custom_environment_passes() -> None:
    report = triglot.check_environment(Custom())
    assert report.passed, str(report)


@pytest.mark.covering(3)
@pytest.mark.parametrize(("check", "fault"), FAULTS)
@pytest.mark.filterwarnings("ignore:.*")  # Gymnasium's own checker
def test_one_check_finds_the_fault_and_no_other(check: str, fault: str) -> None:
    env = triglot.make_env("gymnasium:triglot/Walk-v0", fault=fault)
    only_failure(triglot.check_environment(env), check)


@pytest.mark.parametrize(("check", "env"), OTHERS)
def test_one_check_finds_what_is_wrong_in_a_custom_environment(check: str, env: Any) -> None:
    only_failure(triglot.check_environment(env), check)


@pytest.mark.parametrize(
    ("check", "fault"), [("no self-reset", "start as end"), ("rollout", "no final_obs")]
)
def test_a_vector_of_its_own_is_checked_too(check: str, fault: str) -> None:
    name = "gymnasium:triglot/WrongVector-v0"
    env = triglot.make_env(name, fault=fault, vectorization_mode="vector_entry_point")
    result = only_failure(triglot.check_environment(env), check)
    assert "final_obs" in result.found + result.fix


def test_every_check_has_a_fault() -> None:
    assert {check for check, _ in [*FAULTS, *OTHERS]} == {check.name for check in CHECKS.checks}


def test_notes_say_what_is_unusual() -> None:
    def notes(**options: Any) -> str:
        env = triglot.make_env("gymnasium:triglot/Walk-v0", **options)
        return " ".join(triglot.check_environment(env).notes)

    assert "Every seed gives the same trajectory" in notes(fault="fixed start")
    assert "Both flags are True" in notes(fault="both flags")
    assert "networks read obs as float32" in notes()


def test_the_command_reports_and_exits_by_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    name = "gymnasium:tests.checks.test_host_checks:triglot/Walk-v0"
    assert cli.main(["check", name]) == 0
    assert "environment 'gymnasium:tests.checks" in capsys.readouterr().out
    assert cli.main(["check", f"{name},fault=resets itself"]) == 1
    out = capsys.readouterr().out
    assert "FAILED   no self-reset" in out and "how to fix it" in out
