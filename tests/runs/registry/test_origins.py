"""Environments are made of objects, and a run folder finds them and agents again by name."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triglot
from triglot.core.errors import TriglotError
from triglot.runs.registry.origins import name_of_env, origin_of_agent

gymnasium = pytest.importorskip("gymnasium")
LINE = """
import gymnasium
import numpy as np


class Line(gymnasium.Env):
    def __init__(self, length=5):
        self.length = length
        self.observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place += 1
        obs = np.full(1, min(1, self.place / self.length), np.float32)
        return obs, 1.0, self.place >= self.length, False, {}


def make_line(length=2):
    return Line(length)
"""


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mygym.py").write_text(LINE)
    monkeypatch.delitem(sys.modules, "mygym", raising=False)
    import mygym  # pyright: ignore[reportMissingImports]

    return mygym


def steps_of(env: Any) -> int:
    """Count the steps of an episode in each of two environments."""
    vector, count = env.open(2), 0
    try:
        vector.reset(0)
        while True:
            count += 1
            if vector.step(np.zeros(2, np.int32)).terminated.all():
                return count
    finally:
        vector.close()


def test_a_gymnasium_environment_is_taken_by_name_class_function_and_object(line: Any) -> None:
    ways = {
        "mygym:Line": (triglot.make_env("mygym:Line"), 5),
        "mygym:Line,length=3": (triglot.make_env(line.Line, length=3), 3),
        "mygym:make_line": (triglot.make_env(line.make_line), 2),
    }
    for name, (env, steps) in ways.items():
        assert name_of_env(env) == name and steps_of(env) == steps
        assert steps_of(triglot.make_env(name)) == steps
    copied = triglot.make_env(line.Line(4))
    assert steps_of(copied) == 4 and name_of_env(copied) is None
    registered = triglot.make_env(gymnasium.make("CartPole-v1"))
    assert registered.obs_spec == triglot.make_env("gymnasium:CartPole-v1").obs_spec


def test_a_gymnasium_environment_is_sent_to_make_env(line: Any) -> None:
    for given in (line.Line, line.Line()):
        with pytest.raises(TriglotError, match=r"give triglot.make_env\("):
            triglot.make_agent("ppo", given)
    with pytest.raises(TriglotError, match=r"cannot be copied.*give its class"):
        env = line.Line()
        env.file = (each for each in ())  # a generator
        triglot.make_env(env)


@dataclass(frozen=True)
class Local:
    """Not an environment."""


def test_what_is_no_environment_is_refused() -> None:
    for given in (3, None, Local, lambda: 3):
        with pytest.raises(TriglotError):
            triglot.make_env(given)


def test_agents_know_their_names(line: Any) -> None:
    env = triglot.make_env("probe:two-step")
    origin = origin_of_agent(triglot.make_agent(triglot.PPO, env, backend="nnx"))
    assert (origin.algorithm, origin.backend, origin.unnamed) == ("ppo", "nnx", ())
    agent = triglot.make_agent("dqn", env, optimizer="lion")
    assert origin_of_agent(agent).optimizer == "lion"


def test_the_name_of_a_file_is_answered_with_the_object_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_agent.py").write_text(
        "raise SystemExit\nclass Helper: ...\nclass MyAgent:\n    def update(self): ...\n"
    )
    env = triglot.make_env("probe:two-step")
    for name in ("my_agent", "my_agent.py"):
        with pytest.raises(TriglotError, match=r"the file my_agent.py.*my_agent:MyAgent"):
            triglot.make_agent(name, env)
    with pytest.raises(TriglotError, match="my_agent:Helper or my_agent:MyAgent"):
        triglot.make_env("my_agent")
