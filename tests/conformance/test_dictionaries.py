"""Observations in nested dictionaries: the default networks of every family read them."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import triglot
from tests.conformance.test_identity import compare
from tests.extras import BACKENDS
from triglot.cli import main as cli
from triglot.core.errors import TriglotError

slow = pytest.mark.slow
SIGHTS = "tests.checks.sound_environments:Sights"
FORCE = "tests.checks.sound_environments:SightsAndForce"
SMALL: dict[str, Any] = {"num_envs": 4, "hidden_sizes": [8]}
ROLLOUT = {**SMALL, "rollout_length": 8}
PPO = {**ROLLOUT, "num_epochs": 1, "num_minibatches": 2}
REPLAY = {**SMALL, "learning_starts": 16, "buffer_size": 64, "batch_size": 8}
# The algorithm, the environment and the configuration, one of each family at least.
TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", SIGHTS, PPO),
    "ppo-lstm": ("ppo", SIGHTS, {**PPO, "cell": "lstm", "cell_size": 4}),
    "ppo-continuous": ("ppo", FORCE, PPO),
    "dqn": ("dqn", SIGHTS, REPLAY),
    "sac": ("sac", FORCE, REPLAY),
    "sac-discrete": ("sac", SIGHTS, REPLAY),
    "td3": ("td3", FORCE, REPLAY),
    "rainbow": ("rainbow", SIGHTS, REPLAY),
    "iqn": ("iqn", SIGHTS, REPLAY),
    "r2d2": (
        "r2d2",
        SIGHTS,
        {
            **REPLAY,
            "learning_starts": 32,
            "cell_size": 4,
            "rollout_length": 4,
            "burn_in_length": 4,
            "unroll_length": 4,
        },
    ),
    "pqn": ("pqn", SIGHTS, ROLLOUT),
    "impala": ("impala", SIGHTS, ROLLOUT),
    "openai_es": ("openai_es", SIGHTS, {"hidden_sizes": [8]}),
}
QUICK = ("ppo", "dqn", "sac")


@pytest.mark.covering(3)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else slow) for name in TASKS]
)
def test_it_trains(name: str) -> None:
    algorithm, env_name, config = TASKS[name]
    env = triglot.make_env(env_name)
    agent = triglot.make_agent(algorithm, env, config=config)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=128)
    losses = [values[:, -1] for name, values in result.metrics.items() if "loss" in name]
    assert np.isfinite(losses).all(), result.metrics.keys()


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "ppo-lstm", "dqn", "sac", "sac-discrete"])
def test_libraries_are_equal_bit_for_bit(name: str, tmp_path: Path) -> None:
    algorithm, env, config = TASKS[name]
    steps = triglot.make_agent(algorithm, triglot.make_env(env), config=config).config
    task = {"algorithm": algorithm, "env": env, "config": config, "num_seeds": 1}
    task |= {"arithmetic": "canonical", "steps_per_update": steps.steps_per_update}
    result = compare(BACKENDS, tmp_path, **task, num_updates=10)
    assert result["identical"], result


@pytest.mark.slow
def test_the_environment_passes() -> None:
    report = triglot.check_environment(triglot.make_env(SIGHTS))
    assert report.passed, str(report)


@slow
def test_the_agent_passes() -> None:
    env = triglot.make_env(SIGHTS)
    report = triglot.check_agent(triglot.make_agent("ppo", env, config=PPO), env)
    assert report.passed, str(report)


@pytest.mark.slow
def test_a_run_is_evaluated_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = "--num-envs 2 --rollout-length 4 --num-minibatches 2 --hidden-sizes 5 --total-steps 16"
    assert cli.main(["train", "ppo", SIGHTS, *words.split(), "--out", str(out)]) == 0
    policy, env = triglot.load_policy(out), triglot.make_env(SIGHTS)
    assert policy(env.reset(jax.random.key(0)).obs).shape == ()
    for style, code in (("stablehlo", 0), ("flax", 2)):
        there = str(tmp_path / style)
        assert cli.main(["export", str(out), "--out", there, "--format", style]) == code
    assert "a plain model reads arrays, and this network reads {body: {place" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("algorithm", "env", "config", "says"),
    [
        ("q_learning", SIGHTS, {}, "observations"),
        ("crossq", FORCE, {}, "inputs are normalized where they are one array"),
        ("ppo", SIGHTS, {"normalize_obs": True}, "normalize_obs needs one float array"),
        ("ppo", SIGHTS, {"kernel_size": 5}, r"larger than 4x4, got \(4, 7\) of 'eye'"),
    ],
)
def test_what_cannot_read_them_says_so(
    algorithm: str, env: str, config: dict[str, Any], says: str
) -> None:
    with pytest.raises(TriglotError, match=says):
        triglot.make_agent(algorithm, triglot.make_env(env), config=config)
