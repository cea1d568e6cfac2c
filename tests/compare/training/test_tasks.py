"""A comparison whose trainings run at the same time gives the bits of one after the other."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.compare.in_process import OPTIONS, train
from tests.printed import unwrapped
from triglot.compare.check import check
from triglot.compare.jobs import Job, Ledger
from triglot.compare.results import Record
from triglot.compare.training import tasks
from triglot.core.errors import TriglotError
from triglot.jobs.executor import Outcome, Task
from triglot.jobs.local import LocalExecutor
from triglot.machine import memory


def test_trainings_at_the_same_time_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("haiku", "linen")
    here = [train(tmp_path / "here", monkeypatch, backend=name, total_steps=190) for name in names]
    monkeypatch.undo()
    chosen = replace(OPTIONS, out=tmp_path / "out", total_steps=190)
    ledger = Ledger.open(tmp_path / "out", chosen, one_core=True)
    listed = [Job(OPTIONS.env, "weights", name) for name in names]
    assert tasks.run_at_once(LocalExecutor(2), chosen, ledger, listed) == []
    for name, record in zip(names, here, strict=True):
        found = Record.load(ledger.results(f"0-weights-{name}"))
        assert found.params.keys() == record.params.keys()
        for each, array in record.params.items():
            np.testing.assert_array_equal(found.params[each], array)
    weights = [tmp_path / name / "initial_params.safetensors" for name in ("here", "out")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert "ppo on probe:two-step, haiku linen" in unwrapped(capsys)


def test_a_comparison_keeps_the_number_of_cores(tmp_path: Path) -> None:
    Ledger.open(tmp_path, OPTIONS, one_core=True)
    with pytest.raises(TriglotError, match='cores_per_training "one", and this command has "all"'):
        Ledger.open(tmp_path, OPTIONS)
    Ledger.open(tmp_path, replace(OPTIONS, executor="local", jobs=5), one_core=True)


def test_a_library_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = replace(OPTIONS, out=tmp_path / "out")
    ledger = Ledger.open(tmp_path / "out", chosen, one_core=True)
    listed = [Job("probe:two-step", "weights", name) for name in ("haiku", "linen")]
    ends = {"haiku": Outcome("died", "its process died.", "compile"), "linen": Outcome("done")}

    def run(executor: object, given: list[Task], *rest: object) -> dict[str, Outcome]:
        return {one.name: ends.get(one.name.rpartition("-")[2], Outcome("done")) for one in given}

    monkeypatch.setattr(tasks, "run_tasks", run)
    (failure,) = tasks.run_at_once(LocalExecutor(2), chosen, ledger, listed)
    assert failure.as_json() == {
        "backend": "haiku",
        "rung": "weights",
        "env": "probe:two-step",
        "stage": "compile",
        "message": "its process died.",
    }
    ends["linen"] = ends["haiku"]
    with pytest.raises(TriglotError, match=r"no library could be trained\. haiku: its"):
        tasks.run_at_once(LocalExecutor(2), chosen, ledger, listed)


def test_memory_counts_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    monkeypatch.setattr(memory, "check", lambda parts, num_seeds, copies: found.append(copies))
    for given in ({}, {"jobs": 5}, {"repetitions": 1}):
        check(replace(OPTIONS, **given))
    assert found == [1, 5, 2]
