"""`triglot check my_file:net --algorithm NAME`: the network must have the algorithm's heads."""

import pytest

from triglot import checks
from triglot.checks.report import Report, Result
from triglot.cli import main as cli

OWN = """
import flax.linen as nn
import jax.numpy as jnp
from triglot import Discrete, from_linen
from triglot.algorithms.q_learning import QLearning
from triglot.backends import build

class Heads(nn.Module):
    heads: tuple

    @nn.compact
    def __call__(self, *inputs):
        x = jnp.concatenate(inputs, axis=-1)
        made = {name: nn.Dense(size or 1, name=name)(x) for name, size in self.heads}
        return {name: made[name] if size else made[name][:, 0] for name, size in self.heads}

def make(*heads):
    return lambda obs_spec, action_spec: from_linen(Heads(heads), obs_spec)

def critic(obs_spec, action_spec):
    return from_linen(Heads((("q", 0),)), (obs_spec, action_spec))

def value(obs_spec, action_spec):
    return from_linen(Heads((("v", 0),)), (obs_spec, action_spec))

actor_critic = make(("logits", 2), ("value", 0))
no_value = make(("logits", 2))
three_logits = make(("logits", 3), ("value", 0))
q = make(("q", 2))
wide_q = make(("q", 5))
actor = make(("mean", 1), ("log_std", 1))
no_log_std = make(("mean", 1))

def table(obs_spec, action_spec):
    return build("table", QLearning.networks(obs_spec, action_spec))

def wide_table(obs_spec, action_spec):
    return table(obs_spec, Discrete(5))
"""


@pytest.fixture
def apply_outcome(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace `check_network` by one with the result of one check, given in the list."""
    outcome = ["passed"]

    def check_network(network: object, obs_spec: object) -> Report:
        result = Result(name="apply", question="?", why=".", outcome=outcome[0])  # type: ignore[arg-type]
        return Report("network 'mine'", (result,))

    monkeypatch.setattr(checks, "check_network", check_network)
    return outcome


DISCRETE, CONTINUOUS, GRID = "probe:two-step", "gymnax:Pendulum-v1", "gridworld:2x2"


@pytest.mark.parametrize(
    ("part", "algorithm", "env"),
    [
        ("{m}:actor_critic", "ppo", DISCRETE),
        ("{m}:q", "dqn", DISCRETE),
        ("{m}:table", "q_learning", GRID),
        ("actor={m}:actor", "sac", CONTINUOUS),
        ("critic={m}:critic", "sac", CONTINUOUS),
    ],
)
def test_a_network_with_the_heads_passes(
    part: str,
    algorithm: str,
    env: str,
    own: str,
    apply_outcome: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["check", part.format(m=own), "--algorithm", algorithm, "--env", env]
    code = cli.main(command)
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert f"passed   heads: Does it return the heads that {algorithm} needs?" in printed


@pytest.mark.parametrize(
    ("part", "algorithm", "env", "found"),
    [
        ("{m}:no_value", "ppo", DISCRETE, "no value (it has logits)"),
        ("{m}:three_logits", "ppo", DISCRETE, "logits [B, 3]"),
        ("{m}:actor_critic", "dqn", DISCRETE, "no q (it has logits, value)"),
        ("{m}:wide_q", "dqn", DISCRETE, "q [B, 5]"),
        ("{m}:wide_table", "q_learning", GRID, "q [B, 5]"),
        ("actor={m}:no_log_std", "sac", CONTINUOUS, "no log_std (it has mean)"),
        ("critic={m}:value", "sac", CONTINUOUS, "no q (it has v)"),
        ("{m}:actor", "sac", CONTINUOUS, "sac"),
    ],
)
def test_a_missing_or_misshapen_head_fails_with_advice(
    part: str,
    algorithm: str,
    env: str,
    found: str,
    own: str,
    apply_outcome: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["check", part.format(m=own), "--algorithm", algorithm, "--env", env]
    assert cli.main(command) == 1
    printed = capsys.readouterr().out
    assert "1 failed (heads)" in printed.splitlines()[0]
    assert found.lower() in printed.lower()
    assert "Return a dictionary of heads" in printed
    assert "actor, critic" in printed or algorithm != "sac"


def test_heads_are_not_checked_if_apply_fails(
    own: str, apply_outcome: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    apply_outcome[0] = "failed"
    assert cli.main(["check", f"{own}:q", "--algorithm", "dqn", "--env", DISCRETE]) == 1
    assert "skipped  heads: it needs apply" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("{m}:q --algorithm dqnn", "unknown algorithm 'dqnn'; did you mean 'dqn'"),
        ("actr={m}:actor --algorithm sac", "unknown network 'actr' of sac; did you mean 'actor'"),
        ("actor={m}:actr --algorithm sac", "did you mean 'actor'"),
        ("ppo --algorithm dqn", "--algorithm is an option for networks"),
        ("{m}:q --algorithm td3 --env probe:two-step", "td3"),
        ("{m}:q --env probe:two-step --algorithm", "--algorithm"),
    ],
)
def test_wrong_names_get_one_sentence(
    command: str,
    says: str,
    own: str,
    apply_outcome: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = command.format(m=own).split()
    assert cli.main(["check", *words, *([] if "--env" in words else ["--env", CONTINUOUS])]) == 2
    printed = capsys.readouterr()
    (error,) = (line for line in printed.err.splitlines() if not line.startswith("checking "))
    assert error.startswith("triglot: error: ") and says in error.lower()
    assert printed.out == ""


@pytest.mark.slow
def test_the_real_checker_runs_too(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", f"{own}:q", "--algorithm", "dqn", "--env", DISCRETE]) == 0
    assert "failed" not in capsys.readouterr().out.splitlines()[0]
