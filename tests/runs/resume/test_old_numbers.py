"""Runs of triglot 0.2, whose schedules were numbers: continued bit for bit, or refused."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triglot
from tests.printed import unwrapped
from triglot.cli import main as cli
from triglot.core.loop import checkpoint
from triglot.core.loop.checkpoint import Checkpoints
from triglot.core.manifest import check_manifest
from triglot.core.types import by_path
from triglot.runs.plan import prepare
from triglot.runs.resume.restoring import restore
from triglot.runs.storage.config import options_of_run, read_config
from triglot.runs.storage.old_numbers import with_schedules

SMALL = "--num-envs 2 --rollout-length 4 --hidden-sizes 5 --num-seeds 2 --eval-episodes 0 "
SMALL += "--checkpoint-seconds 0 --no-preset"
REPLAY = "--buffer-size 64 --learning-starts 8 --batch-size 4"
EPSILON = {"epsilon_start": 0.9, "epsilon_end": 0.3, "epsilon_decay_steps": 33.0}
# Each command, with the numbers that triglot 0.2 wrote in place of its schedules.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": (
        f"ppo probe:two-step {SMALL} --num-minibatches 2 "
        "--learning-rate 'linear(1e-3, 0, 6 updates)'",
        {"learning_rate": 1e-3, "decay_updates": 6.0},
    ),
    "constant": (
        f"ppo probe:two-step {SMALL} --num-minibatches 2 --learning-rate 1e-3",
        {"learning_rate": 1e-3, "decay_updates": "inf"},
    ),
    "dqn": (
        f"dqn probe:two-step {SMALL} {REPLAY} --epsilon=linear(0.9,0.3,33)",
        {"epsilon": None, **EPSILON},
    ),
    "r2d2": (
        f"r2d2 probe:two-step {SMALL} {REPLAY} --burn-in-length 1 --unroll-length 3 --n-step 2 "
        "--cell-size 3",
        {"epsilon": None, "epsilon_start": 0.4, "epsilon_end": 0.4, "epsilon_decay_steps": 9.0},
    ),
}


def train(words: str, out: Path, updates: int) -> Path:
    command = ["train", *shlex.split(words), "--total-steps", str(8 * updates), "--out", str(out)]
    assert cli.main(command) == 0
    return out


def numbers(folder: Path) -> dict[str, np.ndarray]:
    states: Any = triglot.load_run(folder).agent_states
    return {path: np.asarray(leaf) for path, leaf in by_path(states).items()}


def as_version_0_2(folder: Path, old: dict[str, Any]) -> None:
    """Rewrite a run as triglot 0.2 wrote it: `config.json`, the manifest and the states."""
    config = json.loads((folder / "config.json").read_text())
    progress = restore(prepare(options_of_run(folder), folder=folder, training=False))
    state: Any = progress.state
    path = Checkpoints(folder / "checkpoints").path(progress.num_updates)
    of = json.loads(json.dumps(check_manifest(path)))
    config["hyper"] |= old
    of["options"]["hyper"] |= old
    (folder / "config.json").write_text(json.dumps(config))
    hyper = vars(state.agent.hyper) | {
        name: np.full(2, float(value), np.float32) for name, value in old.items() if value
    }
    if old.get("epsilon", 0) is None:
        del hyper["epsilon"]
    agent = {**vars(state.agent), "hyper": hyper}
    for file in sorted(path.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    path.rmdir()
    checkpoint.save(path, vars(replace(state, agent=agent, schedules={})), of)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_continued_bit_for_bit(name: str, tmp_path: Path) -> None:
    words, old = RUNS[name]
    whole, part = train(words, tmp_path / "whole", 6), train(words, tmp_path / "part", 3)
    as_version_0_2(part, old)
    assert read_config(part)["hyper"] == read_config(whole)["hyper"]
    assert cli.main(["evaluate", str(part), "--episodes", "2", "--sampled"]) == 0
    assert cli.main(["resume", str(part), "--total-steps", "48"]) == 0
    found = numbers(part)
    for path, array in numbers(whole).items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)
    assert cli.main(["resume", str(part)]) == 0  # its checkpoint is one of this version now


def test_a_changed_schedule_is_a_changed_learning_rate() -> None:
    changes = [
        {"num_updates": 3, "option": "total_steps", "from": 1, "to": 2},
        {"num_updates": 3, "option": "decay_updates", "from": 3.0, "to": "inf"},
    ]
    hyper = {"learning_rate": 1e-3, "decay_updates": "inf"}
    config = with_schedules({"algorithm": "ppo", "hyper": hyper, "changes": changes})
    assert config["hyper"] == {"learning_rate": 1e-3}
    assert config["changes"][0] == changes[0]
    assert config["changes"][1] == {
        "num_updates": 3,
        "option": "learning_rate",
        "from": "linear(0.001, 0, 3 updates)",
        "to": 1e-3,
    }


def test_what_a_custom_algorithm_calls_so_is_its_own() -> None:
    config = {"algorithm": "my_file:Agent", "hyper": {"decay_updates": 3.0}}
    assert with_schedules(config) == config


@pytest.mark.slow
def test_a_population_that_perturbed_a_decaying_rate_needs_the_version_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, old = RUNS["ppo"]
    words = words.replace("--num-seeds 2", "--population 2 --exploit-every 2")
    out = train(f"{words} --perturb learning_rate", tmp_path / "run", 3)
    as_version_0_2(out, old)
    assert cli.main(["resume", str(out), "--total-steps", "48"]) == 2
    assert "continue it with triglot 0.2" in unwrapped(capsys, "err")
