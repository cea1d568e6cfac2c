"""Every algorithm continues bit for bit where it was stopped, on the same library and on another.

All pairs of libraries: tests/runs/resume/test_libraries.py.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.random import key_data

import triglot
from benchmarks.cases import CASES, LIBRARIES
from triglot.cli import main as cli
from triglot.core.types import by_path, is_key
from triglot.runs.registry.algorithms import find_algorithm

pytestmark = pytest.mark.packaging

FIRST, WHOLE = 4, 6  # updates; the replays hold enough after 2


def words(options: Mapping[str, Any]) -> list[str]:
    """Write options as on the command line."""
    found: list[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            found += [f"--{flag}", *map(str, value if isinstance(value, tuple) else (value,))]
    return found


def numbers(folder: Path) -> dict[str, np.ndarray]:
    states: Any = triglot.load_run(folder).agent_states
    data = {
        path: key_data(leaf) if is_key(leaf) else leaf for path, leaf in by_path(states).items()
    }
    return {path: np.asarray(leaf) for path, leaf in data.items()}


def pairs() -> list[Any]:
    found = []
    for index, name in enumerate(CASES):
        source, target = LIBRARIES[index % 4], LIBRARIES[(index + 1 + index // 4) % 4]
        found += [
            pytest.param(name, source, target, id=f"{name}-{source}-{target}"),
            pytest.param(name, source, source, id=f"{name}-{source}", marks=pytest.mark.slow),
        ]
    return found


@pytest.mark.covering(15)
@pytest.mark.parametrize(("algorithm", "source", "target"), pairs())
def test_a_resumed_run_is_the_undisturbed_run(
    algorithm: str, source: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triglot.runs.train._draw", lambda *given: None)  # no plots
    case = CASES[algorithm]
    size = find_algorithm(algorithm).Config(**case.config).steps_per_update
    # The schedule of the first part is that of the whole.
    hyper = {"learning_rate": f"linear(1e-3, 0, {WHOLE} updates)", **case.hyper}
    options = [*words(case.config), *words(hyper), "--eval-episodes", "0", "--no-preset"]
    command = ["train", algorithm, case.envs[0], *options, "--checkpoint-seconds", "0"]

    def train(out: Path, updates: int) -> None:
        steps = ["--total-steps", str(updates * size), "--out", str(out), "--backend", source]
        assert cli.main([*command, *steps]) == 0

    whole, part = tmp_path / "whole", tmp_path / "part"
    train(whole, WHOLE)
    train(part, FIRST)
    steps = ["--total-steps", str(WHOLE * size)]
    moved = shutil.copytree(part, tmp_path / "moved")
    assert cli.main(["resume", str(moved), "--backend", target, *steps]) == 0
    expected, found = numbers(whole), numbers(moved)
    assert expected.keys() == found.keys() and triglot.load_run(moved).num_updates == WHOLE
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)
    assert (whole / "metrics.jsonl").read_text() == (moved / "metrics.jsonl").read_text()
