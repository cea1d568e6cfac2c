"""A comparison whose trainings run at the same time gives the bits of one after the other."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.comparison.in_process import OPTIONS
from triglot.core.errors import TriglotError
from triglot.experiments.comparison.check import check
from triglot.experiments.comparison.compare import compare
from triglot.experiments.comparison.jobs import Job, Ledger
from triglot.experiments.comparison.training import tasks
from triglot.experiments.jobs.executor import Outcome, Task
from triglot.experiments.jobs.local import LocalExecutor
from triglot.experiments.runs import memory


def test_trainings_at_the_same_time_change_no_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = replace(OPTIONS, arithmetic="canonical", total_steps=190)
    one = compare(replace(chosen, out=tmp_path / "one", executor="sequential"))
    two = compare(replace(chosen, out=tmp_path / "two", jobs=2))
    assert two["executor"] == "2 local processes" and one["executor"] is None
    hashes = [
        [facts["params_sha256"] for facts in result["backends"].values()] for result in (one, two)
    ]
    assert hashes[0] == hashes[1] and len(hashes[0]) == 2
    assert one["verdict"] == two["verdict"]
    assert one["command"].replace("/one", "") == two["command"].replace("/two", "")
    weights = [tmp_path / name / "initial_params.safetensors" for name in ("one", "two")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert "one core each" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(TriglotError, match='cores_per_training "one", and this command has "all"'):
        compare(replace(chosen, out=tmp_path / "two"))


def test_a_library_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = replace(OPTIONS, out=tmp_path / "out")
    ledger = Ledger.open(chosen.out, chosen, one_core=True)
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
    with pytest.raises(TriglotError, match="no library could be trained. haiku: its process died"):
        tasks.run_at_once(LocalExecutor(2), chosen, ledger, listed)


def test_memory_counts_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    monkeypatch.setattr(memory, "check", lambda parts, num_seeds, copies: found.append(copies))
    for given in ({}, {"jobs": 5}, {"repetitions": 1}):
        check(replace(OPTIONS, **given))
    assert found == [1, 5, 2]
