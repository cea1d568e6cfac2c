"""A small comparison from end to end."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from safetensors.numpy import load_file

from triglot.compare import jobs
from triglot.compare.compare import compare, exit_code
from triglot.compare.options import CompareOptions
from triglot.compare.pages import comparison
from triglot.core.errors import TriglotError
from triglot.runs.jobs import local
from triglot.runs.jobs.job import Outcome, Task
from triglot.runs.jobs.run import run_tasks
from triglot.shared.pages.page import PAGE

from .in_process import SMALL, no_process

pytestmark = pytest.mark.optimized

OPTIONS = CompareOptions(
    algorithm="ppo",
    env="probe:two-step",
    backends=("haiku", "equinox"),
    num_seeds=2,
    seed=0,
    total_steps=190,
    repetitions=0,
    out=Path("unused"),
    config=SMALL,
    hyper={"learning_rate": 1e-3},
    eval_episodes=4,
    preset="ppo on probe:two-step",  # as the command line states it
)
# One device trains two seeds, the other one and a repetition of it, which is dropped.
DIVIDED = replace(OPTIONS, num_seeds=3, devices=2)
POSITIVE = (
    "steps_per_second", "compile_seconds", "compile_cpu_seconds", "trace_seconds", "lower_seconds",
    "init_seconds", "construct_seconds", "import_seconds", "import_library_seconds",
    "first_chunk_seconds", "peak_memory_bytes", "num_params",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Run a comparison of two libraries, once for all test processes; each gets a copy."""
    base = tmp_path_factory.getbasetemp()
    first = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "new" / "comparison"
    with FileLock(f"{first.parent}.lock"):
        if not (first / "comparison.json").exists():
            compare(replace(DIVIDED, out=first))
    out = shutil.copytree(first, tmp_path_factory.mktemp("copy") / "comparison")
    return compare(replace(OPTIONS, num_seeds=3, out=out)), out  # on as many devices


def test_the_libraries_are_equal(run: tuple[dict[str, Any], Path]) -> None:
    result, _ = run
    assert result["identity"]["identical"] is True
    assert result["identity"]["first_difference"] is None
    assert result["identity"]["groups"] == [["haiku", "equinox"]]
    hashes = {facts["params_sha256"] for facts in result["backends"].values()}
    assert len(hashes) == 1
    assert result["verdict"]["level"] == "identical"
    sentence = "Both learning curves and final parameters are bitwise identical over 6 updates."
    assert result["verdict"]["sentence"] == sentence
    (pair,) = result["pairs"]
    assert (pair["identical"], pair["level"], pair["causes"]) == (True, "identical", [])
    assert pair["max_abs_param_difference"] == 0 == pair["return_difference"]["mean"]
    assert exit_code(replace(OPTIONS, fail_on="inconclusive"), result) == 0


def test_the_file_holds_what_was_promised(run: tuple[dict[str, Any], Path]) -> None:
    result, out = run
    read = json.loads((out / "comparison.json").read_text())
    assert read["arithmetic"] == "canonical" and read["schema"] == 2
    assert read["num_updates"] == 6 and read["steps_per_update"] == 32
    assert read["command"].startswith("triglot compare ppo probe:two-step --num-seeds 3 --seed 0")
    assert read["devices"] == 2 and "--devices 2 " in read["command"]
    assert "--hidden-sizes 8 " in read["command"]
    assert read["preset"] == OPTIONS.preset and "no_preset" not in read
    assert f"<dd>{OPTIONS.preset}</dd>" in (out / "report.html").read_text()
    assert "--no-preset" in read["command"] and "--no-preset" in read["full_command"]
    assert "--discount" not in read["command"] and "--discount 0.99 " in read["full_command"]
    assert list(read["backends"]) == ["haiku", "equinox"]
    for facts in read["backends"].values():
        assert all(facts[name] > 0 for name in POSITIVE)
        assert re.fullmatch("[0-9a-f]{64}", facts["params_sha256"])
        assert np.isfinite(facts["final_return_mean"])
        assert facts["final_return_interval"] is None  # of 3 seeds
        assert facts["program"]["flops"] > 0 and facts["program"]["instructions"] > 100
        assert facts["causes"] == []
    assert read["cost"] is None
    (programs,) = read["programs"]["pairs"]
    assert programs["backends"] == ["haiku", "equinox"]
    hashes = {facts["sha256"] for facts in read["programs"]["backends"].values()}
    assert programs["identical"] == (len(hashes) == 1)
    assert programs["identical"] or programs["one"]["name"] in programs["sentence"]
    assert all("TorsoAndHeads" in read["code"][name]["source"] for name in ("equinox",))
    assert read["failures"] == [] and read["ladder"] is None and read["against"] is None
    statistics = result["statistics"]["backends"]["haiku"]
    assert statistics["mean"]["low"] is None, "three seeds give no interval"


def test_no_metric_is_lost(run: tuple[dict[str, Any], Path]) -> None:
    _, out = run
    for backend in OPTIONS.libraries:
        folder = out / "jobs" / f"0-canonical-{backend}"
        metrics = load_file(folder / "metrics.safetensors")
        assert {"loss", "episode_return", "fingerprint/actor/torso/0/kernel"} <= metrics.keys()
        assert {values.shape for values in metrics.values()} == {(3, 6)}
        final = load_file(folder / "params.safetensors")
        initial = load_file(out / "initial_params.safetensors")
        assert final.keys() == initial.keys()
        assert any((final[name] != initial[name]).any() for name in final)


def test_a_finished_comparison_is_not_run_again(
    run: tuple[dict[str, Any], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command only reports again, here against the stored result."""
    result, _ = run
    out = shutil.copytree(run[1], tmp_path / "comparison")
    stored = tmp_path / "stored.json"
    stored.write_bytes((out / "comparison.json").read_bytes())
    monkeypatch.setattr(local, "JobProcess", no_process)
    again = compare(replace(DIVIDED, out=out, against=stored))
    assert again["backends"] == result["backends"]
    assert again["against"]["level"] == "unchanged"
    assert again["against"]["sentence"] == "Nothing changed since stored.json."


def test_a_folder_holds_one_comparison(run: tuple[dict[str, Any], Path]) -> None:
    with pytest.raises(TriglotError, match="a comparison with seed 0, and this command has 1"):
        compare(replace(DIVIDED, out=run[1], seed=1))
    with pytest.raises(TriglotError, match="a comparison with devices 2, and this command has 3"):
        compare(replace(DIVIDED, out=run[1], devices=3))


@pytest.mark.slow
def test_a_library_that_crashes_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_linen(executor: Any, tasks: list[Task], interrupt: Any) -> dict[str, Outcome]:
        lost = {task.name: Outcome("died", "its process died", "train") for task in tasks}
        left = [task for task in tasks if task.arguments["backend"] != "linen"]
        return lost | run_tasks(executor, left, interrupt)

    monkeypatch.setattr(jobs, "run_tasks", without_linen)
    backends = ("haiku", "linen", "equinox")
    result = compare(replace(OPTIONS, out=tmp_path / "out", repetitions=0, backends=backends))
    assert list(result["backends"]) == ["haiku", "equinox"]
    (failure,) = result["failures"]
    assert (failure["backend"], failure["stage"]) == ("linen", "train")
    assert "linen (canonical): its process died" in capsys.readouterr().out
    assert "its process died" in (tmp_path / "out" / PAGE).read_text()


def test_the_table_fits_a_terminal(run: tuple[dict[str, Any], Path]) -> None:
    lines = comparison.as_text(run[0]).splitlines()
    assert max(map(len, lines)) <= 80


def test_final_returns_are_those_of_the_seeds(run: tuple[dict[str, Any], Path]) -> None:
    returns = run[0]["statistics"]["backends"]["haiku"]["final_returns"]
    assert np.shape(returns) == (3,)
