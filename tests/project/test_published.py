"""Published figures: what a run reached is read, and stands beside its source."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triglot

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # benchmarks are not installed

from benchmarks import published  # noqa: E402


def write_run(folder: Path, evaluation: Any) -> Path:
    """Write what a run of 40 updates with 2 seeds leaves."""
    folder.mkdir(parents=True)
    rows = [{"episode_return": [1.0, 1.0], "num_episodes": [1.0, 1.0]}] * 38
    rows += [{"episode_return": [4.0, None], "num_episodes": [1.0, 0.0]}]
    rows += [{"episode_return": [7.0, 5.0], "num_episodes": [2.0, 3.0]}]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    summary = {"num_steps": 40, "evaluation": evaluation, "seconds": {"train": 1.2}}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "config.json").write_text(json.dumps({"versions": {"jax": "1"}}))
    return folder


def test_the_last_episodes_count_by_their_number(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"return_per_seed": [8.0, 6.0]})
    found = published.returns_of(run)
    np.testing.assert_allclose(found["training"], [(4 + 2 * 7) / 3, 5.0])
    assert found["greedy"] == [8.0, 6.0] and published.finished(run)
    assert not published.finished(write_run(tmp_path / "stopped", None))


def test_finished_runs_become_rows(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "ppo-hopper", {"return_per_seed": [8.0, 6.0]})
    out, page = tmp_path / "out.json", tmp_path / "page.md"
    published.main(only=("ppo-hopper",), runs=tmp_path / "runs", out=out, page_path=page)
    text = page.read_text()
    assert "2,382.86 ± 271.74" in text and "Walker2d" not in text
    assert "| **5.5 [" in text and "documentation](https" in text


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(SystemExit, match="no task ppo-ant; choose from ppo-hopper"):
        published.main(only=("ppo-ant",))


@pytest.mark.parametrize("name", published.TASKS)
def test_each_task_has_a_preset(name: str) -> None:
    task = published.TASKS[name]
    assert triglot.preset(task.algorithm, task.env).train["total_steps"] >= 100_000


def test_the_page_is_that_of_what_was_measured() -> None:
    measured = json.loads((ROOT / "docs" / "published.json").read_text())
    assert (ROOT / "docs" / "published.md").read_text() == published.page(measured)
