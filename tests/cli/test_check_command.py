"""`triglot check`: the component, its inferred kind, the printed report and the exit code."""

from typing import Any

import pytest

from triglot import checks
from triglot.algorithms.ppo import PPO, PPOConfig
from triglot.checks.report import Report, Result
from triglot.cli import fitting
from triglot.cli import main as cli
from triglot.core.network import Network
from triglot.envs.gridworld import GridWorld
from triglot.runs.registry import components

OWN = """
from dataclasses import dataclass

import flax.linen
from triglot import PPO
from triglot.backends import build
from triglot.envs.gridworld import GridWorld

class Agent(PPO):
    pass

class Half:
    def reset(self, key):
        pass

class Failing(GridWorld):
    def __init__(self):
        raise RuntimeError("no grid today")

class Bare(flax.linen.Module):
    pass

def network(obs_spec, action_spec):
    return build("table", PPO.networks(obs_spec, action_spec))

def raising(obs_spec, action_spec):
    return {}["missing"]

def unclear(x):
    return x

room = GridWorld(2, 2)
made = network(room.obs_spec, room.action_spec)
agent = PPO(made, room.obs_spec, room.action_spec)
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Replace the checkers by ones that record their arguments and fail on the name 4x4."""
    given: list[tuple[str, Any]] = []

    def checker(kind: str) -> Any:
        def run(part: Any, *more: Any) -> Report:
            given.append((kind, (part, *more)))
            called = str(getattr(part, "name", type(part).__name__))
            outcome = "failed" if "4x4" in called else "passed"
            result = Result(name="shape", question="?", why=".", outcome=outcome, found="no")
            return Report(f"{kind} {called!r}", (result,))

        return run

    for kind in ("agent", "environment", "network"):
        monkeypatch.setattr(checks, f"check_{kind}", checker(kind))
    return given


@pytest.mark.parametrize(
    "text, kind",
    [
        ("ppo", "algorithm"),
        ("gridworld", "environment"),
        ("gymnax:CartPole-v1", "environment"),
        ("{own}:Agent", "algorithm"),
        ("{own}:agent", "algorithm"),
        ("{own}:Failing", "environment"),
        ("{own}:room", "environment"),
        ("{own}:network", "network"),
        ("{own}:made", "network"),
        ("{own}:Bare", "network"),
    ],
)
def test_the_kind_is_found_out(own: str, text: str, kind: str) -> None:
    assert components.find_component(text.format(own=own)).kind == kind


@pytest.mark.parametrize(
    "command, says",
    [
        ("", "give the component to check first"),
        ("--env probe:two-step", "give the component to check first"),
        ("poo", "unknown component 'poo'; did you mean 'ppo'"),
        ("gymnx:CartPole-v1", "unknown environment suite 'gymnx'; did you mean 'gymnax'"),
        ("nowhere:Agent", "no module 'nowhere'"),
        ("{own}:Agnt", "did you mean 'agent'"),
        ("{own}:Half", "Give --kind algorithm, environment or network"),
        ("{own}:unclear", "cannot infer the kind of"),
        ("{own}:unclear --kind thing", "unknown component kind 'thing'"),
        ("{own}:Half --kind algorithm", "lacks Config, Hyperparams, networks"),
        ("{own}:Failing", "RuntimeError: no grid today (own_"),
        (
            "{own}:raising --env gridworld:2x2",
            "when it was called: KeyError: 'missing' (own_",
        ),
        ("{own}:Bare", "wraps it in triglot.from_linen"),
        ("{own}:network --env nosuch:env", "unknown environment suite 'nosuch'"),
        ("ppo --backends linnen --env probe:two-step", "did you mean 'linen'"),
        ("ppo --cell-size none", "expected an integer"),
        ("ppo --bakends haiku", "did you mean --backends"),
        ("gridworld --num-envs 3", "unknown option --num-envs"),
    ],
)
def test_what_cannot_be_checked_is_told_in_one_sentence(
    own: str, command: str, says: str, asked: list, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", *command.format(own=own).split()]) == 2
    printed = capsys.readouterr()
    (told,) = (line for line in printed.err.splitlines() if not line.startswith("checking "))
    assert told.startswith("triglot: error: ") and says in told
    assert printed.out == "" and not asked


def test_one_part_prints_its_report(
    own: str, asked: list, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", f"{own}:room"]) == 0
    assert cli.main(["check", f"{own}:network", "--env", "gridworld:3x3"]) == 0
    assert cli.main(["check", f"{own}:agent", "--env", "gridworld:2x2"]) == 0
    assert cli.main(["check", "gridworld:4x4"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "environment 'gridworld:2x2': 1 passed"
    assert "environment 'gridworld:4x4': 1 failed (shape)" in lines
    (_, network, agent, _) = asked
    assert isinstance(network[1][0], Network) and network[1][1] == GridWorld(3, 3).obs_spec
    assert isinstance(agent[1][0], PPO) and agent[1][1] == GridWorld(2, 2)


def test_a_suite_prints_a_line_for_each(
    asked: list, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from triglot.envs import gridworld

    monkeypatch.setattr(gridworld, "names", lambda: ["4x4", "8x8", "1x1"])
    assert cli.main(["check", "gridworld"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gridworld: 1 passed, 1 failed, 1 could not be checked"
    assert lines[1] == "  gridworld:4x4  1 failed (shape)"
    assert lines[2] == "  gridworld:8x8  1 passed"
    assert lines[3].startswith("  gridworld:1x1  could not be checked: a grid world needs")
    assert "gridworld:4x4: environment 'gridworld:4x4': 1 failed (shape)" in lines
    monkeypatch.setattr(gridworld, "names", lambda: ["8x8", "1x1"])
    assert cli.main(["check", "gridworld"]) == 2
    monkeypatch.setattr(gridworld, "names", lambda: ["8x8", "10x10"])
    assert cli.main(["check", "gridworld"]) == 0


def test_an_interruption_keeps_what_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: list
) -> None:
    passing = checks.check_environment

    def second_is_interrupted(env: Any) -> Report:
        if env.name == "gridworld:8x8":
            raise KeyboardInterrupt
        return passing(env)

    monkeypatch.setattr(checks, "check_environment", second_is_interrupted)
    assert cli.main(["check", "gridworld"]) == 130
    assert capsys.readouterr().out.startswith("gridworld: 1 failed, 2 not reached\n")


def test_an_algorithm_is_checked_small_on_each_library(
    asked: list, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "check ppo --env probe:two-step --backends haiku equinox --num-envs 6 --discount 0.5"
    assert cli.main(command.split()) == 0
    agents = [given[0] for _, given in asked]
    assert [agent.network.backend for agent in agents] == ["haiku", "equinox"]
    assert {agent.config.num_envs for agent in agents} == {6}
    assert {agent.config.rollout_length for agent in agents} == {fitting.SMALL["rollout_length"]}
    assert {agent.hyper.discount for agent in agents} == {0.5}
    assert capsys.readouterr().out.startswith("ppo: 2 passed\n")


def test_what_was_given_goes_before_what_is_small() -> None:
    small = fitting.small_config(PPOConfig, {})
    assert (small.rollout_length, small.num_envs, small.hidden_sizes) == (8, 4, (16,))
    given = {"rollout_length": 3, "num_envs": 1, "num_minibatches": 3}
    assert fitting.small_config(PPOConfig, given).rollout_length == 3
    assert fitting.small_config(PPOConfig, given).num_minibatches == 3


def test_small_values_that_conflict_with_given_ones_are_dropped(
    asked: list, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "check ppo --env probe:two-step --num-minibatches"
    assert cli.main([*command.split(), "4"]) == 0
    assert cli.main([*command.split(), "64"]) == 0
    assert [agent.config.rollout_length for _, (agent, _) in asked] == [8, 128]
    assert cli.main([*command.split(), "7"]) == 2
    assert "num_minibatches must divide" in capsys.readouterr().err


def test_help_shows_an_algorithms_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "ppo", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--rollout-length" in shown and "--backends" in shown
    assert cli.main(["check", "--help"]) == 0
    assert "--rollout-length" not in capsys.readouterr().out


def test_a_real_check_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "gridworld:4x4"]) == 0
    assert "failed" not in capsys.readouterr().out.splitlines()[0]
