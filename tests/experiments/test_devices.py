"""`--devices`: a run that is divided, continued on another number of devices, and read on one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triglot
from tests.printed import unwrapped
from triglot.core.types import by_path
from triglot.experiments import cli
from triglot.experiments.storage.config import read_config

SMALL = "--num-envs 8 --rollout-length 4 --num-minibatches 2 --hidden-sizes 5 --eval-episodes 0"
TRAIN = f"train ppo probe:two-step {SMALL} --checkpoint-seconds 0 --decay-updates 6"
STEPS_PER_UPDATE = 32
# One process, since JAX counts its devices once; the first command decides.
SCRIPT = """
import json, sys
from triglot.experiments import cli
sys.exit(max(cli.main(words) for words in json.loads(sys.argv[1])))
"""


def on_eight(*commands: str) -> None:
    words = json.dumps([command.split() for command in commands])
    subprocess.run([sys.executable, "-c", SCRIPT, words], check=True, env=os.environ.copy())


def steps(updates: int) -> str:
    return f"--total-steps {updates * STEPS_PER_UPDATE}"


def numbers(folder: Path) -> dict[str, np.ndarray]:
    states: Any = triglot.load_run(folder).agent_states
    return {path: np.asarray(leaf) for path, leaf in by_path(states).items()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on 8 devices: whole runs, and the first part of others."""
    runs = tmp_path_factory.mktemp("runs")
    on_eight(
        f"{TRAIN} --devices 8 {steps(6)} --out {runs / 'whole'}",
        f"{TRAIN} --devices 8 {steps(3)} --out {runs / 'half'}",
        f"resume {runs / 'half'} {steps(6)}",
        f"{TRAIN} --devices 8 {steps(2)} --out {runs / 'moved'}",
        f"{TRAIN} --devices 8 --num-seeds 8 {steps(2)} --out {runs / 'seeds'}",
    )
    return runs


def test_a_run_records_how_it_is_divided(runs: Path) -> None:
    found = {name: read_config(runs / name) for name in ("whole", "seeds")}
    assert {name: one["devices"] for name, one in found.items()} == {"whole": 8, "seeds": 8}
    assert {name: one["shard"] for name, one in found.items()} == {
        "whole": "envs",
        "seeds": "seeds",
    }


def test_a_run_resumed_on_as_many_devices_is_the_undisturbed_run(runs: Path) -> None:
    expected, found = numbers(runs / "whole"), numbers(runs / "half")
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)


def test_eight_devices_begin_one_continues_and_eight_finish(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(f"{TRAIN} {steps(6)} --out {runs / 'one'}".split()) == 0
    assert cli.main(f"resume {runs / 'moved'} --devices 1 {steps(4)}".split()) == 0
    printed = unwrapped(capsys)
    assert "continues on 1 device, before on 8" in printed and "up to rounding" in printed
    assert "the device was" not in printed
    config = read_config(runs / "moved")
    assert (config["devices"], config["shard"]) == (1, None)
    on_eight(f"resume {runs / 'moved'} --devices 8 {steps(6)}")
    config = read_config(runs / "moved")
    assert [(one["num_updates"], one["option"]) for one in config["changes"]] == [
        *[(2, "total_steps"), (2, "devices"), (2, "shard")],
        *[(4, "total_steps"), (4, "devices"), (4, "shard")],
    ]
    one, moved = numbers(runs / "one"), numbers(runs / "moved")
    assert triglot.load_run(runs / "moved").num_updates == 6
    for path, array in one.items():
        limit = 2e-4 * float(np.abs(array).max(initial=1e-3))
        np.testing.assert_allclose(moved[path], array, rtol=0, atol=limit, err_msg=path)


def test_seeds_trained_apart_are_those_trained_together(runs: Path) -> None:
    assert cli.main(f"{TRAIN} --num-seeds 8 {steps(2)} --out {runs / 'together'}".split()) == 0
    together, apart = numbers(runs / "together"), numbers(runs / "seeds")
    for path, array in together.items():
        limit = 2e-5 * float(np.abs(array).max(initial=1e-3))
        np.testing.assert_allclose(apart[path], array, rtol=0, atol=limit, err_msg=path)
