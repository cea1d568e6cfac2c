"""The harness of the benchmarks, and its scripts where they run in seconds."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # benchmarks are not installed

from benchmarks import gpu, harness, versions  # noqa: E402
from benchmarks.__main__ import NAMES, main  # noqa: E402
from benchmarks.child import Child, Ended  # noqa: E402

ECHO = "import json, sys\nfor line in sys.stdin: print(json.dumps(json.loads(line)), flush=True)"


def test_each_benchmark_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert all(line.endswith((".", "?")) for line in lines)


def test_a_ratio_is_that_of_paired_rounds() -> None:
    drift = np.array([1.0, 2.0, 4.0, 8.0])
    found = harness.time_ratio({"slow": 3.0 * drift, "fast": drift}, "slow", "fast")
    assert (found.low, found.median, found.high) == (3.0, 3.0, 3.0)


def test_every_program_runs_once_in_a_round_until_the_time_is_over() -> None:
    calls: list[str] = []
    thunks = {name: lambda name=name: calls.append(name) for name in "ab"}
    seconds = harness.measure(thunks, rounds=5, warmups=1)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 5, "b": 5}
    assert all(sorted(calls[i : i + 2]) == ["a", "b"] for i in range(0, len(calls), 2))
    seconds = harness.measure({"a": lambda: time.sleep(0.01)}, rounds=50, max_seconds=0.0)
    assert len(seconds["a"]) == 3


def test_a_table_is_markdown() -> None:
    lines = harness.table(["name", "steps/s"], [["a", harness.rounded(182_234.0)]]).splitlines()
    assert lines == ["| name | steps/s |", "| ---- | ------: |", "| a    | 182,200 |"]
    text = harness.table(["name", "cause", "s"], [["a", "axis", 1]], left=["cause"]).splitlines()
    assert text == ["| name | cause |   s |", "| ---- | ----- | --: |", "| a    | axis  |   1 |"]


def test_a_child_answers_and_its_end_and_its_silence_are_said() -> None:
    with Child("The echo", [sys.executable, "-c", ECHO]) as child:
        assert child.ask({"a": [1]}) == {"a": [1]}
    with Child("The mute", [sys.executable, "-c", "input(); input()"]) as child:
        with pytest.raises(TimeoutError):
            child.ask(1, timeout=0.1)
        with pytest.raises(Ended, match="The mute ended early"):
            child.ask(2)


def test_the_folder_of_another_version_must_hold_it(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="holds no triglot: give --before"):
        versions.start(tmp_path)
    with pytest.raises(SystemExit, match="no row nosuch; choose from ppo"):
        versions.main(tmp_path, only=("nosuch",))
    with versions.start(ROOT):
        pass


@pytest.mark.parametrize("small", [False, True])
def test_the_settings_of_a_gpu_scale_with_the_environments(small: bool) -> None:
    cases = gpu.plan(small)
    assert len(set(map(str, cases))) == len(cases)
    if not small:
        sizes = [case for case in cases if not case.identity]
        assert {4, 4096} <= {case.num_envs for case in sizes}
        assert {1, 256} <= {case.num_seeds for case in sizes}
    for case in cases:
        row, steps = gpu.row_of(case)
        updates = steps / case.num_envs / row.config.get("rollout_length", 1)
        assert row.config["num_envs"] == case.num_envs and updates == case.num_updates
        if case.algorithm == "dqn":
            assert row.config["learning_starts"] < steps
            assert row.config["learning_starts"] <= row.config["buffer_size"]


@pytest.mark.slow
def test_without_time_every_row_is_dropped_and_said(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--max-seconds", "1", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    dropped = json.loads(out.read_text())["dropped"]
    assert len(dropped) == len(gpu.plan(small="No GPU" in done.stdout))
    text = out.with_suffix(".md").read_text()
    assert all(f"Left out: {one}" in text for one in dropped)
    assert text in done.stdout
