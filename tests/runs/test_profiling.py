"""`--profile`: a trace that Perfetto and TensorBoard open, and training stays the same."""

import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triglot.cli import main as cli
from triglot.core.loop.chunks import run_chunks
from triglot.runs import profiling
from triglot.runs.profiling import TRACE, Profiler
from triglot.runs.storage.journal import Journal

pytestmark = pytest.mark.packaging

TRAIN = "train ppo gridworld:2x2 --backend table --num-envs 1 --rollout-length 2 --num-minibatches"
TRAIN += " 1 --num-epochs 1 --eval-episodes 0 --total-steps"


def train(out: Path, steps: int, *words: str) -> int:
    return cli.main([*TRAIN.split(), str(steps), "--out", str(out), *words])


def traces(run: Path) -> list[Path]:
    return sorted((run / "profile").glob(TRACE), key=lambda path: path.stat().st_mtime)


def operations(trace: Path) -> set[str]:
    """List the modules whose XLA operations a trace names."""
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    named = [event.get("args", {}) for event in events]
    return {str(one["hlo_module"]) for one in named if one.get("hlo_op")}


def metrics(run: Path) -> list[Any]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "profiled"
    assert train(out, 40, "--profile") == 0
    return out


def test_the_trace_names_xla_operations(run: Path) -> None:
    (trace,) = traces(run)
    assert "jit_train_seeds" in operations(trace)
    assert list(trace.parent.glob("*.xplane.pb")), "which TensorBoard reads"


def test_it_changes_no_number_and_is_not_recorded(run: Path, tmp_path: Path) -> None:
    assert train(tmp_path / "plain", 40) == 0
    assert metrics(run) == metrics(tmp_path / "plain")
    assert not (tmp_path / "plain" / "profile").exists()
    assert "profile" not in json.loads((run / "config.json").read_text())


def test_a_resumed_run_is_traced_when_asked(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["resume", str(run), "--total-steps", "48", "--learning-rate", "1e-3"]) == 0
    assert len(traces(run)) == 1
    capsys.readouterr()
    words = ["--total-steps", "60", "--profile"]
    assert cli.main(["resume", str(run), *words]) == 0
    assert len(traces(run)) == 2
    printed = "".join(capsys.readouterr().out.split())
    assert f"profileof5updates:{traces(run)[-1]}" in printed
    assert f"tensorboard--logdir{run / 'profile'}" in printed


def test_ctrl_c_ends_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_chunk = Journal.add_chunk

    def interrupt(journal: Journal, *args: Any) -> None:
        add_chunk(journal, *args)
        if journal.num_updates > 1:  # the first update is not traced
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Journal, "add_chunk", interrupt)
    assert train(tmp_path / "run", 4000, "--profile") == 130
    (trace,) = traces(tmp_path / "run")
    assert "jit_train_seeds" in operations(trace)


class Calls:
    """Counts updates instead of training."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def __call__(self, states: Any, count: Any) -> Any:
        self.counts.append(int(count))
        return states + count, {"loss": np.zeros((1, int(count)))}


@pytest.mark.covering(7)
@pytest.mark.parametrize(
    "num_updates, learns_after, done, traced",
    [
        (100, 0, 0, range(1, 11)),  # the first update is not traced
        (100, 0, 50, range(51, 61)),
        (100, 30, 0, range(30, 40)),
        (100, 98, 0, range(98, 100)),
        (100, 500, 0, range(99, 100)),  # nothing is learned
        (1, 0, 0, range(0, 1)),
        (4, 0, 3, range(3, 4)),
    ],
)
def test_updates_that_learn_are_traced(
    num_updates: int,
    learns_after: int,
    done: int,
    traced: range,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[tuple[str, int]] = []

    class Trace:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def __enter__(self) -> None:
            found.append(("start", sum(calls.counts)))

        def __exit__(self, *_: Any) -> None:
            found.append(("stop", sum(calls.counts)))

    calls = Calls()
    monkeypatch.setattr(profiling.jax.profiler, "trace", Trace)
    monkeypatch.setattr(profiling, "SECONDS", 1e6)
    left = num_updates - done
    with Profiler(tmp_path, learns_after) as profiler:
        monkeypatch.setattr(profiling, "updates_of", int)  # the states are the number of updates

        def run(states: Any, *, until: int, target_seconds: float | None = None) -> Any:
            how: Any = {"done": int(states), "target_seconds": target_seconds}
            return run_chunks(calls, states, until, 7, **how)  # pyright: ignore

        states: Any = np.int32(done)
        chunks = profiler.chunks(run, states, num_updates, target_seconds=1e6)
        last = [chunk.num_updates for chunk in chunks][-1]
    assert (last, sum(calls.counts)) == (num_updates, left)
    assert found == [("start", traced.start - done), ("stop", traced.stop - done)]
    plain = Calls()
    list(run_chunks(plain, np.int32(done), num_updates, 7, done=done))  # pyright: ignore
    assert sum(plain.counts) == left


def test_it_needs_compiled_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", 4, "--profile", "--debug", "no-jit") == 2
    assert "--profile" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
