"""Devices: chosen by the command, divided runs, other numbers of devices, and reading on one."""

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
from triglot.cli import main as cli
from triglot.core.types import by_path
from triglot.runs import devices
from triglot.runs.storage.config import read_config
from triglot.shared.machine import cores

pytestmark = pytest.mark.packaging

TABLE = "q_learning gridworld:3x3,max_steps=8 --backend table --rollout-length 4"
TRAIN = f"train {TABLE} --num-envs 8 --eval-episodes 0 --checkpoint-seconds 0"
STEPS_PER_UPDATE = 32
QUICK = f"{TABLE} --num-envs 2 --total-steps 128 --eval-episodes 2"
SWEPT = f"sweep {QUICK} --over learning_rate=0.1,0.2,0.5 --num-seeds 3"
# One process, since JAX counts its devices once; the first command decides.
SCRIPT = """
import json, sys
from triglot.core.garbage import collect_rarely
from triglot.cli import main as cli
collect_rarely()
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
        f"train {QUICK} --devices 2 --num-seeds 3 --out {runs / 'three'}",
        f"train {QUICK} --devices 2 --num-seeds 4 --out {runs / 'four'}",
        f"train {QUICK} --num-seeds 13 --out {runs / 'default'}",
        f"evaluate {runs / 'default'} --episodes 3",
        f"{SWEPT} --out {runs / 'swept'}",
    )
    return runs


@pytest.mark.slow
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


@pytest.mark.slow
def test_eight_devices_begin_one_continues_and_eight_finish(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(f"{TRAIN} {steps(6)} --out {runs / 'one'}".split()) == 0
    assert cli.main(f"resume {runs / 'moved'} --devices 1 {steps(4)}".split()) == 0
    printed = unwrapped(capsys)
    assert "continues on 1 device (before: 8)" in printed and "up to rounding" in printed
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


def test_seeds_that_devices_do_not_divide_are_those_of_full_devices(runs: Path) -> None:
    """Two devices train 2 + 1 seeds as 2 + 2: what fills the second one leaves no trace."""
    three, four = numbers(runs / "three"), numbers(runs / "four")
    for path, array in four.items():
        np.testing.assert_array_equal(three[path], array[:3], err_msg=path)
    lines = [(runs / name / "metrics.jsonl").read_text() for name in ("three", "four")]
    for line, full in zip(*(map(json.loads, text.splitlines()) for text in lines), strict=True):
        assert line["td_error"] == full["td_error"][:3] and len(line["td_error"]) == 3
    summary = json.loads((runs / "three" / "summary.json").read_text())
    assert len(summary["evaluation"]["return_per_seed"]) == 3


def test_commands_divide_seeds_among_the_devices_of_a_cpu(runs: Path) -> None:
    assert read_config(runs / "default")["devices"] == 7, "2 seeds on each, as on 8 devices"
    evaluated = json.loads((runs / "default" / "evaluation.json").read_text())
    assert evaluated["devices"] == 7 and np.shape(evaluated["returns"]) == (13, 3)
    facts = json.loads((runs / "swept" / "jobs.json").read_text())["facts"]
    assert facts["devices"] == 8 and facts["cores_per_job"] == "all"


@pytest.mark.slow
def test_a_divided_sweep_is_that_of_one_device(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(f"{SWEPT} --out {runs / 'alone'}".split()) == 0
    alone, divided = (runs / name / "results.csv" for name in ("alone", "swept"))
    assert alone.read_text() == divided.read_text()
    assert cli.main(f"{SWEPT} --out {runs / 'swept'} --devices 2".split()) == 2
    assert "a sweep with devices 8, and this command has 2" in capsys.readouterr().err
    assert cli.main(f"{SWEPT} --out {runs / 'pinned'} --devices 2 --jobs 1".split()) == 2
    assert "--devices 2 divides a job among devices" in capsys.readouterr().err
    assert not (runs / "pinned").exists()


@pytest.mark.parametrize(
    "given, num_seeds, made",
    [(None, 5, 3), (None, 64, 4), (None, 1, None), (None, None, 4), (1, 5, None), (8, 8, 8)],
)
@pytest.mark.parametrize("limited", [False, True])
def test_devices_are_made_for_the_cores(
    given: int | None,
    num_seeds: int | None,
    made: int | None,
    limited: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`JAX_NUM_CPU_DEVICES` limits what is made without `--devices`."""
    found: list[Any] = []
    monkeypatch.setattr(cores, "free_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr("jax.config.update", lambda *words: found.append(words))
    monkeypatch.setenv(devices.COUNT, "1")
    if not limited:
        monkeypatch.delenv(devices.COUNT)
    devices.start_for(given, num_seeds)
    expected = made if given is not None or not limited else None
    assert found == ([] if expected is None else [("jax_num_cpu_devices", expected)])
