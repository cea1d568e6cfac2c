"""`triglot check` without `--env` chooses an environment that fits, and says which."""

from typing import Any

import pytest

from triglot import checks
from triglot.checks.report import Report
from triglot.cli import fitting
from triglot.cli import main as cli
from triglot.core.errors import MissingExtra

OWN = """
from dataclasses import dataclass

import jax.numpy as jnp

from triglot import PPO, rl
from triglot.algorithms.td3 import TD3
from triglot.backends import build


class Continuous(TD3):
    pass

@dataclass(frozen=True)
class Unguarded(PPO):
    '''Takes a box of actions, and finds out in `act`.'''

    def act(self, state, carry, inputs, key, *, explore):
        output = super().act(state, carry, inputs, key, explore=explore)
        low = jnp.asarray(self.action_spec.low)
        return output

@dataclass(frozen=True)
class Mistaken(PPO):
    def act(self, state, carry, inputs, key, *, explore):
        raise KeyError("logit")

@dataclass(frozen=True)
class Masked(PPO):
    def act(self, state, carry, inputs, key, *, explore):
        if inputs.action_mask is None:
            raise rl.TriglotError("Masked needs an action mask.")
        return super().act(state, carry, inputs, key, explore=explore)

@dataclass(frozen=True)
class Picky(PPO):
    def __post_init__(self):
        raise rl.TriglotError(f"Picky dislikes {self.action_spec}: choose another.")

@dataclass(frozen=True)
class Broken(PPO):
    @staticmethod
    def networks(obs_spec, action_spec, config=None):
        raise RuntimeError("no networks today")

def images(obs_spec, action_spec):
    if len(obs_spec.shape) != 3:
        raise ValueError("images only")
    return build("linen", PPO.networks(obs_spec, action_spec))

def mean(obs_spec, action_spec):
    return build("linen", {"actor": TD3.networks(obs_spec, action_spec)["actor"]}).parts["actor"]
"""


@pytest.fixture
def env_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the checkers by ones that record the environment; the choice is the real one."""
    names: list[str] = []

    def check_agent(agent: Any, env: Any) -> Report:
        names.append(env.name)
        return Report(f"agent on {env.name}", ())

    def check_network(network: Any, obs_spec: Any) -> Report:
        names.append(str(obs_spec.shape))
        return Report("network", ())

    monkeypatch.setattr(checks, "check_agent", check_agent)
    monkeypatch.setattr(checks, "check_network", check_network)
    return names


@pytest.mark.covering(2)
@pytest.mark.parametrize(
    "command, env",
    [
        ("ppo", "gymnax:CartPole-v1"),
        ("td3", "gymnax:Pendulum-v1"),
        ("q_learning", "gridworld:4x4"),
        ("{own}:Continuous", "gymnax:Pendulum-v1"),
        ("{own}:Unguarded", "gymnax:Pendulum-v1"),
        ("{own}:Masked", "jumanji:Maze-v0"),
        ("{own}:Mistaken", "gymnax:CartPole-v1"),  # fits nowhere: the checker explains
        ("{own}:images", "jumanji:Maze-v0"),
        ("actor={own}:mean --algorithm td3", "gymnax:Pendulum-v1"),
        ("sac --env probe:reach", "probe:reach"),
    ],
)
def test_the_first_environment_that_fits_is_chosen(
    own: str, command: str, env: str, env_names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", *command.format(own=own).split()]) in (0, 1)
    assert len(env_names) == 1
    printed = capsys.readouterr()
    (label,) = (line for line in printed.err.splitlines() if line.startswith("checking "))
    assert f" on {env}" in label
    if "--env" in command or env == "gymnax:CartPole-v1":
        assert "chose" not in printed.err
    else:
        assert f"chose {env}, the first that fits. gymnax:CartPole-v1" in printed.err


@pytest.mark.covering(2)
@pytest.mark.parametrize(
    "command, says",
    [
        (
            "{own}:Picky",
            "none of the usual environments fits: give one with --env. gymnax:CartPole",
        ),
        ("{own}:Picky", "gymnax:Pendulum-v1: Picky dislikes Box"),
        ("{own}:Broken", "failed: RuntimeError: no networks today (own_"),  # once, not per env
        ("td3 --env gymnax:CartPole-v1", "TD3 needs a bounded Box"),  # an explicit one is obeyed
        ("ppo --num-minibatches 7", "num_minibatches must divide"),
    ],
)
def test_a_component_that_refuses_all_says_why(
    own: str, command: str, says: str, env_names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", *command.format(own=own).split()]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert says in error and error.count("no networks today") <= 1 and not env_names


def test_without_their_libraries_probes_are_chosen(
    own: str, env_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fitting.make_env

    def make_env(name: str) -> Any:
        if not name.startswith(("probe:", "gridworld:")):
            raise MissingExtra(f"{name} needs a library.")
        return real(name)

    monkeypatch.setattr(fitting, "make_env", make_env)
    for algorithm in ("td3", "q_learning"):
        assert cli.main(["check", algorithm]) == 0
    assert env_names == ["probe:reach", "gridworld:4x4"]
