"""The harness of the benchmarks, and its scripts where they run in seconds."""

import json
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # benchmarks are not installed

from benchmarks import account, gpu, growth, harness, versions  # noqa: E402
from benchmarks.__main__ import NAMES, main  # noqa: E402
from benchmarks.child import Child, Ended  # noqa: E402
from triglot.core.types import is_key  # noqa: E402

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


@pytest.mark.parametrize(
    ("values", "first", "second", "size"),
    [
        pytest.param([3, 3, 3, 6, 12, 24], 0.0, 1.0, 4.0, id="bends"),
        pytest.param([1, 2, 4, 8, 16, 32], 1.0, 1.0, None, id="straight"),
        pytest.param([7, 7, 7, 7, 7, 7], 0.0, 0.0, None, id="flat"),
        pytest.param([1, 2, 4, 4, 4, 4], 1.0, 0.0, 4.0, id="saturates"),
    ],
)
def test_a_curve_has_the_exponents_that_it_was_made_of(
    values: list[float], first: float, second: float, size: float | None
) -> None:
    found = growth.bend([1, 2, 4, 8, 16, 32], values)
    assert (found.first, found.second) == pytest.approx((first, second), abs=1e-5)
    assert found.size == (None if size is None else pytest.approx(size))


def test_each_axis_changes_one_number_of_its_row() -> None:
    for axis in growth.AXES.values():
        one, other = (
            {"seeds": row.num_seeds, **row.config} for row in map(axis.at, axis.sizes[:2])
        )
        changed = {name: other[name] for name in other if other[name] != one[name]}
        assert len(changed) == 1
        assert next(iter(changed.values())) in (axis.sizes[1], (axis.sizes[1],) * 2)


def test_an_axis_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SystemExit, match="no axis layers; there are seeds, environments"):
        growth.main(axes=("layers",))


def test_the_parts_of_an_update_repeat_what_the_whole_does() -> None:
    config = account.plain_ppo.Config(num_envs=2, rollout_length=8, num_minibatches=2, num_epochs=1)
    parts = account.parts_of(config)
    # The plain program is written as people write JAX.
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        state = account.whole_state(config, parts)
        repeated = {name: account.repeated(part, 2)(state) for name, part in parts.items()}
    for name, after in repeated.items():
        changed = {
            key for key in state
            if any(
                not np.array_equal(a, b)
                for a, b in zip(leaves(state[key]), leaves(after[key]), strict=True)
            )
        }  # fmt: skip
        assert changed, name


def leaves(tree: object) -> list[np.ndarray]:
    return [
        np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        for leaf in jax.tree.leaves(tree)
    ]
