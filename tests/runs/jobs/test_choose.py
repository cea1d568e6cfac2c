"""Which executor the options name, and what they may not say."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from triglot.core.errors import MissingExtra, TriglotError
from triglot.runs.jobs import choose
from triglot.runs.jobs.choose import choose_executor, chosen, num_local
from triglot.runs.jobs.cluster import custom_files
from triglot.runs.jobs.local import LocalExecutor
from triglot.runs.jobs.options import JobOptions
from triglot.shared.machine.cores import free_cores

CORES = len(free_cores())


@pytest.mark.parametrize(
    ("given", "name", "at_once"),
    [
        ({}, None, 1),
        ({"executor": "sequential"}, "sequential", 1),
        ({"executor": "local"}, "local", CORES),
        ({"jobs": 3}, "local", 3),
        ({"executor": "local", "jobs": 1}, "local", 1),
        ({"executor": "ray", "jobs": 3}, "ray", 1),
    ],
)
def test_options_name_an_executor(given: Any, name: str | None, at_once: int) -> None:
    assert chosen(JobOptions(**given)) == name
    assert num_local(JobOptions(**given)) == at_once


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"executor": "rey"}, "unknown executor 'rey'; did you mean 'ray'?"),
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"address": "auto"}, "--address auto needs --executor ray"),
        ({"executor": "sequential", "jobs": 2}, "--jobs 2 has no effect with --executor seq"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: Any, says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        chosen(JobOptions(**given))


def test_jobs_on_a_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    local = JobOptions(executor="local")
    assert choose_executor(local, "sweep", None, dict) == LocalExecutor(CORES)
    monkeypatch.setattr(choose, "on_cpu", lambda: False)
    with pytest.raises(TriglotError, match="each job on one CPU core, and JAX uses"):
        choose_executor(local, "sweep", None, dict)


def test_a_folder_keeps_the_cores_of_its_jobs() -> None:
    one, every = {"cores_per_job": "one"}, {"cores_per_job": "all"}
    assert choose_executor(JobOptions(), "sweep", one, dict) == LocalExecutor(CORES)
    assert choose_executor(JobOptions(), "sweep", every, dict, default="local") is None
    assert choose_executor(JobOptions(jobs=5), "sweep", one, dict) == LocalExecutor(5)
    for options, begun, message in (
        (JobOptions(executor="sequential"), one, "one core .*: continue it with --executor local"),
        (JobOptions(jobs=2), every, "all cores .*: continue it with --executor sequential"),
    ):
        with pytest.raises(TriglotError, match=f"holds a sweep with {message}"):
            choose_executor(options, "sweep", begun, dict)


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match="'triglot\\[ray\\]'"):
        choose_executor(JobOptions(executor="ray"), "sweep", None, dict)


FILES = {
    "mine_a.py": "import mine_b\nthing = mine_b.number\n",
    "mine_b.py": "number = 3\n",
    "mine_unused.py": "",
    "mine_package/__init__.py": "",
    "mine_package/part.py": "thing = 1\n",
    "mine_package/data/table.csv": "1,2\n",
    "mine_package/.hidden": "",
}


@pytest.mark.covering(6)
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["mine_a:thing"], ["mine_a.py", "mine_b.py"]),
        (["actor=mine_a:thing", "mine_b:number,size=3"], ["mine_a.py", "mine_b.py"]),
        (["gymnasium:mine_b:Env-v0"], ["mine_b.py"]),
        (
            ["mine_package.part:thing"],
            ["mine_package/__init__.py", "mine_package/data/table.csv", "mine_package/part.py"],
        ),
        (["numpy:dot", "json:loads"], []),
    ],
)
def test_custom_code_is_found_with_what_it_imports(
    tmp_path: Path, parts: list[str], expected: list[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    code = (
        f"from {custom_files.__module__} import custom_files; print(*sorted(custom_files({parts})))"
    )
    path = os.pathsep.join([str(tmp_path), *(each for each in sys.path if each)])
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == expected
