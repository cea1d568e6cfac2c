"""The trainings of a comparison as jobs, one after the other or at the same time."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare.in_process import OPTIONS, train
from triglot.compare import jobs
from triglot.compare.check import check
from triglot.compare.compare import compare
from triglot.compare.jobs import WHAT, Job, computing, job_list, run_jobs
from triglot.compare.options import CompareOptions
from triglot.compare.results import Record
from triglot.core.errors import TriglotError
from triglot.runs.jobs.choose import Executor
from triglot.runs.jobs.job import Outcome, Task
from triglot.runs.jobs.ledger import Ledger
from triglot.runs.jobs.local import LocalExecutor
from triglot.shared.machine import memory


def opened(options: CompareOptions) -> Ledger:
    assert options.out is not None
    facts = {"cores_per_job": "all", "devices": 1}
    return Ledger.open(options.out, what=WHAT, options=computing(options), facts=facts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "executor",
    [
        pytest.param(None, id="in order", marks=pytest.mark.slow),
        pytest.param(LocalExecutor(2), id="at once"),
    ],
)
def test_processes_change_no_bit(executor: Executor | None, tmp_path: Path) -> None:
    names = ("haiku", "linen")
    here = [train(tmp_path / "here", backend=name, total_steps=190) for name in names]
    chosen = replace(OPTIONS, out=tmp_path / "out", total_steps=190, repetitions=1)
    ledger = opened(chosen)
    listed = [Job(OPTIONS.env, "weights", name) for name in names]
    assert run_jobs(executor, chosen, ledger, listed) == []
    for name, record in zip(names, here, strict=True):
        found = Record.load(ledger.folder(f"0-weights-{name}"))
        assert found.params.keys() == record.params.keys()
        for each, array in record.params.items():
            np.testing.assert_array_equal(found.params[each], array)
        assert found.facts["import_seconds"] > found.facts["import_library_seconds"] > 0
    weights = [tmp_path / name / "initial_params.safetensors" for name in ("here", "out")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_the_reference_leads_and_the_next_one_begins_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[LocalExecutor, list[Task]]] = []

    def run(executor: LocalExecutor, tasks: list[Task], *rest: object) -> dict[str, Outcome]:
        given.append((executor, tasks))
        return {one.name: Outcome("done") for one in tasks}

    monkeypatch.setattr(jobs, "run_tasks", run)
    monkeypatch.setattr(jobs, "free_cores", lambda: [0, 1])
    envs = ("probe:reach",)
    for repetitions, executor in ((1, None), (0, None), (1, LocalExecutor(2))):
        options = replace(OPTIONS, out=tmp_path, repetitions=repetitions, envs=envs)
        run_jobs(executor, options, Ledger(tmp_path), job_list(options))
    in_order, alone, at_once = given[1], given[3], given[4:]
    assert [task.arguments["leads"] for task in in_order[1]] == [True, False, True, False]
    assert (in_order[0].at_once, in_order[0].ahead, in_order[0].one_core) == (1, 1, False)
    assert alone[0].ahead == 0, "the report shows how long each library compiles"
    assert [[task.name for task in tasks] for _, tasks in at_once] == [
        ["weights-0", "weights-1"],
        ["0-weights-haiku", "0-weights-linen", "1-weights-haiku", "1-weights-linen"],
    ]
    json.dumps([task.arguments for _, tasks in given for task in tasks])


def test_a_library_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = replace(OPTIONS, out=tmp_path / "out")
    listed = [Job("probe:two-step", "weights", name) for name in ("haiku", "linen")]
    ends = {"haiku": Outcome("died", "its process died.", "compile"), "linen": Outcome("done")}

    def run(executor: object, given: list[Task], *rest: object) -> dict[str, Outcome]:
        return {one.name: ends.get(one.name.rpartition("-")[2], Outcome("done")) for one in given}

    monkeypatch.setattr(jobs, "run_tasks", run)
    (failure,) = run_jobs(LocalExecutor(2), chosen, opened(chosen), listed)
    assert failure.as_json() == {
        "backend": "haiku",
        "rung": "weights",
        "env": "probe:two-step",
        "stage": "compile",
        "message": "its process died.",
    }
    ends["linen"] = ends["haiku"]
    message = r"fewer than two .* haiku: its process died\.; linen: its"
    with pytest.raises(TriglotError, match=message):
        compare(replace(chosen, jobs=2, out=tmp_path / "another"))


def test_memory_counts_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    monkeypatch.setattr(memory, "check", lambda parts, num_seeds, copies: found.append(copies))
    cases: tuple[dict[str, Any], ...] = ({}, {"jobs": 5}, {"repetitions": 1})
    for given in cases:
        check(replace(OPTIONS, **given))
    assert found == [1, 5, 2]


OLD = {"schema": 2, "options": {"algorithm": "ppo", "cores_per_training": "all", "devices": 1}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(OLD), "was written by another version of triglot: choose another --out"),
        (
            '{"schema": 4, "what": "sweep", "options": {}, "facts": {}}',
            "does not belong to a comparison: choose another",
        ),
        ('{"schema": 3, "opt', "is damaged: .* Choose another --out, or delete the folder"),
    ],
)
def test_another_folder_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text(content)
    with pytest.raises(TriglotError, match=rf"jobs\.json {message}"):
        opened(replace(OPTIONS, out=tmp_path))


def test_the_ladder_adds_to_a_finished_comparison(tmp_path: Path) -> None:
    options = replace(OPTIONS, out=tmp_path)
    opened(options)
    with_ladder = replace(options, ladder=True)
    opened(with_ladder)
    assert job_list(with_ladder)[:2] == job_list(options) and len(job_list(with_ladder)) == 10
