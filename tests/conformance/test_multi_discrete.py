"""Actions of several integers: every policy-gradient method takes them, the others refuse them."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.checks.sound_environments import Parts
from tests.conformance.test_identity import FOUR, compare
from triglot.cli import main as cli
from triglot.core.agent import PolicyInput
from triglot.core.errors import TriglotError
from triglot.core.specs import Discrete
from triglot.envs import probes

slow = pytest.mark.slow
TWO_DIALS = "probe:two-dials"
HOST_DIALS = "gymnasium:tests.core.host.host_environments:triglot/Dials-v0"
PARTS = "tests.checks.sound_environments:Parts"
TINY = {"num_envs": 4, "rollout_length": 8, "hidden_sizes": (8,)}
MINIBATCHES = {**TINY, "num_epochs": 1, "num_minibatches": 2}
LEARNS = {"learning_rate": "linear(1e-2, 0)", "discount": 0.5}
# Small settings of each algorithm, and those with which it solves the probe.
POLICIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ppo": (MINIBATCHES, {**LEARNS, "entropy_coef": 0.0}),
    "a2c": (TINY, {**LEARNS, "entropy_coef": 0.01}),
    "reinforce": (TINY, {**LEARNS, "learning_rate": 1e-2}),
    "impala": (TINY, {**LEARNS, "entropy_coef": 0.01}),
    "vmpo": (MINIBATCHES, LEARNS),
}
ALGORITHMS = [pytest.param(name, marks=() if name == "ppo" else slow) for name in POLICIES]


def assert_solves(algorithm: str, env_name: str, num_updates: int, hyper: dict[str, Any]) -> None:
    env, probe = triglot.make_env(env_name), probes.make("two-dials")
    config = {**POLICIES[algorithm][0], "num_envs": 8, "rollout_length": 16, "hidden_sizes": (16,)}
    if algorithm == "ppo":
        config = {**config, "num_epochs": 4}
    agent = triglot.make_agent(algorithm, env, config=config, hyper=hyper)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=128 * num_updates)
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)
    expected = probe.expected(0.5)
    obs = jnp.asarray([case.obs for case in expected], jnp.float32)
    inputs = PolicyInput(obs=obs, first=jnp.ones(len(expected), bool))
    output = agent.act(state, (), inputs, jax.random.key(1), explore=False)
    np.testing.assert_array_equal(output.action, [case.action for case in expected])


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a.values[0] != "ppo"])
def test_it_learns_each_part(algorithm: str) -> None:
    """PPO is among the probes of `tests/learning`."""
    assert_solves(algorithm, TWO_DIALS, 400, POLICIES[algorithm][1])


@pytest.mark.slow
def test_it_learns_on_the_host() -> None:
    assert_solves("ppo", HOST_DIALS, 40, POLICIES["ppo"][1])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("env", [TWO_DIALS, PARTS])
@slow
def test_the_agent_passes(algorithm: str, env: str) -> None:
    made = triglot.make_env(env)
    agent = triglot.make_agent(algorithm, made, config=POLICIES[algorithm][0])
    report = triglot.check_agent(agent, made)
    assert report.passed, str(report)
    outcomes = {result.name: result.outcome for result in report.results}
    assert outcomes["action mask"] == ("passed" if env == PARTS else "skipped")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "backends", "num_updates"),
    [
        pytest.param("ppo", ("haiku", "equinox"), 10, id="ppo"),
        *(
            pytest.param(name, FOUR, 100, id=f"{name}-four", marks=slow)
            for name in POLICIES
            if name != "vmpo"  # a state of two learners cannot be compared
        ),
    ],
)
def test_libraries_are_equal_bit_for_bit(
    algorithm: str, backends: tuple[str, ...], num_updates: int, tmp_path: Path
) -> None:
    config = {**POLICIES[algorithm][0], "hidden_sizes": [8]}
    task: dict[str, Any] = {"algorithm": algorithm, "env": PARTS, "config": config}
    task |= {"arithmetic": "canonical", "num_seeds": 1, "steps_per_update": 32}
    result = compare(backends, tmp_path, **task, num_updates=num_updates)
    assert result["identical"], result


def run(words: str, *more: object) -> int:
    return cli.main([*words.split(), *map(str, more)])


@pytest.mark.slow
def test_a_run_is_resumed_evaluated_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"train ppo {TWO_DIALS} --num-envs 2 --rollout-length 4 --num-minibatches 2"
    words += " --hidden-sizes 5 --eval-episodes 0 --learning-rate 1e-3 --checkpoint-seconds 0"
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    assert run(words, "--total-steps", 16, "--out", parts) == 0
    assert run(f"resume {parts} --total-steps 32") == 0
    assert run(words, "--total-steps", 32, "--out", whole) == 0
    states = [triglot.load_run(folder).agent_states for folder in (parts, whole)]
    for one, other in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(one, other)
    assert run(f"evaluate {whole} --episodes 8") == 0
    policy = triglot.load_policy(whole)
    assert policy(np.zeros((3, 1), np.float32)).shape == (3, 2)
    assert run(f"export {whole} --format stablehlo --out {tmp_path / 'out'}") == 0
    assert "int32 [B, 2]" in (tmp_path / "out" / "load.py").read_text()


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("dqn", "DQN supports discrete actions, .* or PPO"),
        ("c51", "C51 supports discrete actions, .* or PPO"),
        ("qr_dqn", "QR-DQN supports discrete actions, .* or PPO"),
        ("iqn", "IQN supports discrete actions, .* or PPO"),
        ("r2d2", "R2D2 supports discrete actions, .* or PPO"),
        ("alphazero", "AlphaZero supports discrete actions, .* or PPO"),
        ("muzero", "MuZero supports discrete actions, .* or PPO"),
        ("sac", "SAC needs a bounded Box .* or PPO"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(algorithm: str, words: str) -> None:
    with pytest.raises(TriglotError, match=words) as error:
        env: Any = Parts()
        triglot.make_agent(algorithm, env)
    assert "\n" not in str(error.value)


def test_a_tabular_method_refuses_several_integers() -> None:
    with pytest.raises(TriglotError, match="Q-learning needs Discrete actions"):
        triglot.QLearning.networks(Discrete(4), Parts.action_spec)
