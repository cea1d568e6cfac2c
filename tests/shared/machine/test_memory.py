"""The estimate of a run's memory equals what is allocated, and is made without allocating it."""

from pathlib import Path
from typing import Any

import jax
import pytest

import triglot
from triglot.core.errors import TriglotError
from triglot.runs.registry.agents import make_agent
from triglot.runs.registry.environments import make_env
from triglot.shared.machine import memory

GB = 10**9


def experiment_of(
    algorithm: str, env_name: str, num_seeds: int, **options: Any
) -> triglot.Experiment:
    env = make_env(env_name)
    agent, key = make_agent(algorithm, env, **options), jax.random.key(0)
    return triglot.Experiment(agent, env, key=key, total_steps=1000, num_seeds=num_seeds)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm, env, options",
    [
        ("ppo", "probe:two-step", {}),
        ("ppo", "probe:two-step", {"config": {"cell": "lstm"}}),
        ("ppo", "jumanji:Maze-v0,num_rows=4,num_cols=4", {"config": {"num_envs": 4}}),
        ("dqn", "probe:two-step", {"config": {"prioritized": True}}),
        ("sac", "probe:reach", {"optimizer": "lion"}),
        ("q_learning", "gridworld:3x3", {"backend": "table"}),
    ],
)
def test_the_state_is_as_large_as_estimated(
    algorithm: str, env: str, options: dict[str, Any]
) -> None:
    experiment = experiment_of(algorithm, env, 3, **options)
    parts, state = memory.of_state(experiment), experiment.start()
    # Keys, counters, hyperparameters and running statistics are not listed.
    rest = memory.nbytes(state) - sum(parts.values())
    assert 0 <= rest < 3 * 600
    assert parts["environments"] == memory.nbytes((state.env, state.carry))


def test_a_rollout_is_as_large_as_its_arrays() -> None:
    config = {"num_envs": 5, "rollout_length": 7, "num_minibatches": 1}
    experiment = experiment_of("ppo", "probe:two-step", 2, config=config)
    parts = memory.of_training(experiment, num_lines=11, eval_episodes=0)
    # Two observations [1], the reward, the action, `raw` and `logits` [2]; and three flags.
    assert parts["rollout"] == 2 * 5 * 7 * (4 * (2 + 1 + 1 + 1 + 2) + 3)
    assert parts["metrics"] == 2 * 11 * memory.METRIC_BYTES
    parts = memory.of_training(experiment, num_lines=11, eval_episodes=10**6)
    assert parts["evaluation"] > 10**7


def test_python_environments_are_counted() -> None:
    experiment = experiment_of("ppo", "gymnasium:CartPole-v1", 2, config={"num_envs": 1000})
    parts = memory.of_training(experiment, num_lines=1, eval_episodes=0)
    assert parts["Python environments"] == 2 * 1000 * memory.PYTHON_BYTES
    assert parts["rollout"] > 2 * 1000 * 128 * 2 * 16


def test_what_no_machine_holds_is_estimated() -> None:
    config = {"buffer_size": 2 * 10**9, "hidden_sizes": (10**9, 10**9)}
    parts = memory.of_state(experiment_of("dqn", "probe:two-step", 10**6, config=config))
    assert parts["parameters"] > 8 * 10**24 and parts["replay"] > 3 * 10**16


def test_too_much_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "device_free", lambda: None)
    monkeypatch.setattr(memory, "free", lambda: 21 * GB)
    parts = {"replay": 76 * GB, "parameters": 3 * GB, "optimizer": 1 * GB}
    with pytest.raises(TriglotError) as error:
        memory.check(parts)
    assert str(error.value) == (
        "this needs at least 80 GB of memory (replay 76), and 21 are free: lower --buffer-size."
    )
    with pytest.raises(TriglotError, match="lower --buffer-size or --num-seeds"):
        memory.check(parts, num_seeds=2)
    few = {"replay": 6 * GB}
    memory.check(few, copies=3)
    with pytest.raises(TriglotError, match=r"24 GB of memory \(replay 24, 4 processes together\)"):
        memory.check(few, copies=4)


def test_an_accelerator_has_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "device_free", lambda: 40 * GB)
    monkeypatch.setattr(memory, "free", lambda: 8 * GB)
    memory.check({"replay": 30 * GB, "metrics": 7 * GB})
    with pytest.raises(TriglotError, match=r"41 GB of memory on .* \(replay 41\)"):
        memory.check({"replay": 41 * GB})
    with pytest.raises(TriglotError, match=r"9 GB of memory \(metrics 9\).* lower --total-steps"):
        memory.check({"replay": 1 * GB, "metrics": 9 * GB})


@pytest.mark.parametrize(
    "folder, own, limit, used",
    [
        ("", "0::/\n", "memory.max", "anon"),
        ("jobs/mine", "0::/jobs/mine\n", "memory.max", "anon"),
        ("jobs", "0::/jobs/mine\n", "memory.max", "anon"),
        ("memory/mine", "4:memory:/mine\n", "memory.limit_in_bytes", "total_rss"),
    ],
)
def test_a_control_group_limits_what_is_free(
    folder: str, own: str, limit: str, used: str, tmp_path: Path
) -> None:
    groups = tmp_path / "groups"
    (groups / folder).mkdir(parents=True)
    (tmp_path / "own").write_text(own)
    whole = memory.free(groups, tmp_path / "own")
    assert whole > 100_000
    (groups / folder / limit).write_text("max\n")
    (groups / folder / "memory.stat").write_text(f"file 500000\n{used} 30000\n")
    assert memory.free(groups, tmp_path / "own") > 100_000
    (groups / folder / limit).write_text("100000\n")
    assert memory.free(groups, tmp_path / "own") == 70_000
    assert memory.free(groups, tmp_path / "nowhere") > 100_000
