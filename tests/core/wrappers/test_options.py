"""Wrappers as options of an environment's name, in one order, behind the environment's own."""

from pathlib import Path
from typing import Any

import pytest

import triglot
from triglot.core.errors import TriglotError
from triglot.core.wrappers.actions import ActionRepeat, StickyActions
from triglot.core.wrappers.ends import AbsorbingStates, TimeLimit
from triglot.core.wrappers.levels import Levels
from triglot.core.wrappers.observations import FlattenObservation, FrameStack, SelectEntries
from triglot.core.wrappers.options import WRAPPERS, wrapper_options
from triglot.core.wrappers.rewards import ClipReward, ScaleReward
from triglot.envs import gridworld, gymnax, probes

OWN = """
from triglot.envs.gridworld import GridWorld

env = GridWorld(3, 3)

def make(height=3, time_limit=None):
    return GridWorld(height, 3 if time_limit is None else time_limit)
"""


def test_options_wrap_in_the_documented_order_whatever_theirs() -> None:
    inside = ActionRepeat(StickyActions(Levels(gridworld.make("3x3"), 4, 1), 0.5), 2)
    rewards = ClipReward(ScaleReward(TimeLimit(inside, 9), 3), -1, 1)
    seen = SelectEntries(FlattenObservation(rewards), (8, 0))
    env = FrameStack(TimeLimit(AbsorbingStates(seen), 8), 2)
    words = (
        "frame_stack=2,absorbing_states=8,observed_entries=8+0,flatten_observation=True,"
        "reward_clip=1,reward_scale=3,"
        "time_limit=9,action_repeat=2,sticky_actions=0.5,first_level=1,levels=4"
    )
    assert triglot.make_env(f"gridworld:3x3,{words}") == env
    flat = FlattenObservation(gridworld.make("3x3"))
    made = triglot.make_env("gridworld:3x3", frame_stack=2, flatten_observation=True)
    assert made == FrameStack(flat, 2)


def test_all_options_are_described() -> None:
    assert len(wrapper_options()) == 12
    assert all(option.about and option.value for option in WRAPPERS.values())


def test_options_of_the_environment_stay_its_own() -> None:
    maze: Any = triglot.make_env("jumanji:Maze-v0,time_limit=7,frame_stack=2")
    assert maze.env.options == (("time_limit", 7),)
    assert maze == FrameStack(maze.env, 2)
    cartpole: Any = triglot.make_env("gymnax:CartPole-v1,max_steps_in_episode=9,time_limit=7")
    assert cartpole == TimeLimit(gymnax.make("CartPole-v1", max_steps_in_episode=9), 7)
    assert cartpole.env.options == (("max_steps_in_episode", 9),)
    assert triglot.make_env("probe:two-step,reward_scale=2") == ScaleReward(
        probes.make("two-step"), 2
    )


def test_a_pair_of_bounds_in_python() -> None:
    env = triglot.make_env("gridworld:3x3", reward_clip=(0.0, 0.5))
    assert env == ClipReward(gridworld.make("3x3"), 0.0, 0.5)
    assert triglot.make_env("gridworld:3x3,flatten_observation=False") == gridworld.make("3x3")


def test_environments_of_the_persons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"own_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    grid = gridworld.make("3x3")
    assert triglot.make_env(f"{module}:env,action_repeat=2") == ActionRepeat(grid, 2)
    # The function has a parameter of this name.
    made = triglot.make_env(f"{module}:make,time_limit=5,reward_scale=2")
    assert made == ScaleReward(gridworld.make("3x5"), 2)
    with pytest.raises(TriglotError, match=r"unknown option 'height' of environment '.*:env'"):
        triglot.make_env(f"{module}:env,height=3")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gridworld:3x3,frame_stak=2", "unknown option 'frame_stak'.*; did you mean 'frame_stack'"),
        ("probe:two-step,x=1", "unknown option 'x' of probe:two-step. Choices: absorbing_states"),
        ("gridworld:3x3,levels=x", "levels=x of gridworld:3x3: .* must be an integer, got 'x'"),
        ("gridworld:3x3,time_limit=0", "time_limit=0 of gridworld:3x3: .* at least 1, got 0"),
        ("gridworld:3x3,sticky_actions=2", "probability must be within \\[0, 1\\], got 2"),
        ("gridworld:3x3,action_repeat=1.5", "must be an integer, got 1.5"),
        ("gridworld:3x3,reward_scale=nan", "scale must be finite, got 'nan'"),
        ("gridworld:3x3,reward_clip=0", "the limit must be a number above 0, got 0"),
        ("gridworld:3x3,reward_clip=True", "the limit must be a number above 0, got True"),
        ("gridworld:3x3,flatten_observation=1", "must be True or False, got 1"),
        ("gymnax:CartPole-v1,observed_entries=4", "different integers from 0 to 3, got 4"),
        (
            "gymnax:CartPole-v1,observed_entries=1+1",
            "different integers from 0 to 3, got \\(1, 1\\)",
        ),
        (
            "gymnax:CartPole-v1,observed_entries=0-1",
            "numbers joined by \\+, such as 0\\+2; got '0-1'",
        ),
        ("gymnax:CartPole-v1,observed_entries=True", "from 0 to 3, got True"),
        ("gridworld:3x3,observed_entries=0", "one vector; .*flatten_observation=True"),
        ("gridworld:3x3,first_level=2", "first_level of gridworld:3x3 goes with levels=N"),
        ("gridworld:3x3,frame_stack=2", "has a Discrete: .*flatten_observation=True"),
        ("gridworld:3x3,absorbing_states=9", "a float32 vector.*flatten_observation=True"),
        ("gymnasium:CartPole-v1,frame_stack=2", "stepped in Python, where frame_stack cannot wrap"),
        ("gymnasium:CartPole-v1,frame_stak=2", "CartPole-v1 cannot be built with.*'frame_stak'"),
    ],
)
def test_a_wrong_option_is_explained(name: str, says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        triglot.make_env(name)
