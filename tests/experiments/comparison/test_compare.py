"""A small comparison from end to end, what is refused, and what an interruption leaves."""

import json
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from safetensors.numpy import load_file

from triglot.core.errors import MissingExtra, TriglotError
from triglot.experiments.comparison import report, tables, turns
from triglot.experiments.comparison.compare import compare
from triglot.experiments.comparison.worker import Worker, WorkerDied
from triglot.experiments.options import CompareOptions

SMALL = {"hidden_sizes": [8], "rollout_length": 8, "num_epochs": 1, "num_minibatches": 1}
OPTIONS = CompareOptions(
    algorithm="ppo",
    env="probe:two-step",
    backends=("haiku", "equinox"),
    num_seeds=2,
    seed=0,
    total_steps=190,
    out=Path("unused"),
    config=SMALL,
    hyper={"learning_rate": 1e-3},
    eval_episodes=4,
)
POSITIVE = (
    "steps_per_second", "compile_seconds", "compile_cpu_seconds", "trace_seconds", "lower_seconds",
    "init_seconds", "construct_seconds", "import_seconds", "import_library_seconds",
    "first_chunk_seconds", "dispatch_microseconds", "peak_memory_bytes", "num_params",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Run a comparison of two libraries."""
    out = tmp_path_factory.mktemp("runs") / "new" / "comparison"
    return compare(replace(OPTIONS, out=out)), out


def test_the_libraries_are_equal(run: tuple[dict[str, Any], Path]) -> None:
    result, _ = run
    assert result["identity"]["identical"] is True
    assert result["identity"]["first_difference"] is None
    assert result["identity"]["groups"] == [["haiku", "equinox"]]
    hashes = {facts["params_sha256"] for facts in result["backends"].values()}
    assert len(hashes) == 1
    assert result["verdict"].startswith("Both learning curves and final parameters are equal")


def test_the_file_holds_what_was_promised(run: tuple[dict[str, Any], Path]) -> None:
    result, out = run
    read = json.loads((out / "comparison.json").read_text())
    assert read["arithmetic"] == "canonical"
    assert read["num_updates"] == 6 and read["steps_per_update"] == 32
    assert read["command"].startswith("triglot compare ppo probe:two-step --backends haiku equinox")
    assert "--hidden-sizes 8 " in read["command"]
    assert list(read["backends"]) == ["haiku", "equinox"]
    for facts in read["backends"].values():
        assert all(facts[name] > 0 for name in POSITIVE)
        assert re.fullmatch("[0-9a-f]{64}", facts["params_sha256"])
        low, high = facts["final_return_interval"]
        assert low <= facts["final_return_mean"] <= high
        assert facts["program"]["flops"] > 0 and facts["program"]["instructions"] > 100
    assert read["backends"] == json.loads(json.dumps(result["backends"]))


def test_no_metric_is_lost(run: tuple[dict[str, Any], Path]) -> None:
    _, out = run
    for backend in OPTIONS.backends:
        metrics = load_file(out / "metrics" / f"{backend}.safetensors")
        assert {"loss", "episode_return", "fingerprint/actor/torso/0/kernel"} <= metrics.keys()
        assert {values.shape for values in metrics.values()} == {(2, 6)}
        final = load_file(out / "params" / f"{backend}.safetensors")
        initial = load_file(out / "initial_params.safetensors")
        assert final.keys() == initial.keys()
        assert any((final[name] != initial[name]).any() for name in final)


class _References(HTMLParser):
    """Collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]


def test_the_report_loads_nothing(run: tuple[dict[str, Any], Path]) -> None:
    result, out = run
    text = (out / "report.html").read_text()
    references = _References()
    references.feed(text)
    assert [found[:22] for found in references.found] == ["data:image/png;base64,"]
    assert "url(" not in text and "@import" not in text
    assert result["verdict"] in text and "Student&#x27;s" not in result["verdict"]
    assert (out / "curves.png").stat().st_size > 1000


def test_the_table_fits_a_terminal(run: tuple[dict[str, Any], Path]) -> None:
    lines = tables.as_text(tables.MAIN, run[0]).splitlines()
    assert len(lines) == 4 and max(map(len, lines)) <= 120


def parted(arithmetic: str, **first: Any) -> dict[str, Any]:
    """Make as much of a result as a verdict reads."""
    place = {"update": 5, "step": 2560, "num_differing": 1, "seed": 0, **first}
    return {
        "arithmetic": arithmetic,
        "num_updates": 500,
        "backends": dict.fromkeys(("haiku", "linen", "nnx", "equinox")),
        "identity": {
            "identical": False,
            "first_difference": place if "leaf" in first else None,
            "first_metric_difference": place if "metric" in first else None,
        },
    }


def test_the_verdict_says_where_they_part() -> None:
    assert report.verdict(parted("native", leaf="critic/bias", backends=["equinox"])) == (
        "Equinox diverges from the others at update 5 (2,560 environment steps), in critic/bias; "
        "rerun with --arithmetic canonical for one order of summation."
    )
    assert report.verdict(
        parted("canonical", metric="loss", num_differing=3, backends=["linen", "nnx", "equinox"])
    ) == (
        "Flax Linen, Flax NNX and Equinox diverge from Haiku at update 5 (2,560 environment "
        "steps), in loss and 2 more metrics, although the arithmetic is canonical."
    )


def test_one_folder_is_one_run(run: tuple[dict[str, Any], Path]) -> None:
    with pytest.raises(TriglotError, match="is not empty"):
        compare(replace(OPTIONS, out=run[1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backends": ("haiku", "linnen")}, "did you mean 'linen'"),
        ({"backends": ("haiku",)}, "at least two backends"),
        ({"backends": ("haiku", "haiku")}, "each named once; got haiku haiku"),
        ({"algorithm": "pppo"}, "did you mean 'ppo'"),
        ({"arithmetic": "canonicle"}, "did you mean 'canonical'"),
        ({"num_seeds": 0}, "num_seeds must be at least 1, got 0"),
        ({"total_steps": 0}, "total_steps must be at least 1"),
        ({"eval_episodes": 0}, "eval_episodes must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"config": {"num_env": 4}}, "did you mean 'num_envs'"),
        ({"hyper": {"learn_rate": 1.0}}, "did you mean 'learning_rate'"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_starts(
    change: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "Worker", lambda backend: pytest.fail("a process was started"))
    with pytest.raises(TriglotError, match=message):
        compare(replace(OPTIONS, out=tmp_path / "out", **change))
    assert not (tmp_path / "out").exists()


def test_a_missing_library_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs flax, .*'triglot\[flax\]'"):
        compare(replace(OPTIONS, out=tmp_path / "out", backends=("linen", "nnx")))


def test_what_a_worker_refuses_is_said_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(TriglotError, match="did you mean 'two-step'"):
        compare(replace(OPTIONS, out=tmp_path / "out", env="probe:two-stop"))
    assert not (tmp_path / "out").exists()


class FakeWorker:
    """Answers at once, and is interrupted in its third chunk."""

    ended: ClassVar[list[str]] = []

    def __init__(self, backend: str) -> None:
        self.backend, self.chunks = backend, 0

    def __enter__(self) -> "FakeWorker":
        return self

    def __exit__(self, *exception: object) -> None:
        self.ended.append(self.backend)

    def ask(self, stage: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if stage == "start":
            return {"num_updates": 8, "chunk_size": 2, "steps_per_update": 32}, {}
        if stage == "train":
            self.chunks += 1
            if self.chunks == 3:
                raise KeyboardInterrupt
            return {"seconds": 1.0}, {"loss": np.full((2, 2), self.chunks, np.float32)}
        return {}, {"kernel": np.ones((2, 3), np.float32)}


def test_an_interruption_keeps_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(turns, "Worker", FakeWorker)
    with pytest.raises(KeyboardInterrupt):
        compare(replace(OPTIONS, out=tmp_path, total_steps=256))
    assert sorted(FakeWorker.ended) == ["equinox", "haiku"]
    assert "Updates done: haiku 4, equinox 4." in capsys.readouterr().err
    loss = load_file(tmp_path / "metrics" / "haiku.safetensors")["loss"]
    assert loss.tolist() == [[1, 1, 2, 2]] * 2
    assert not (tmp_path / "comparison.json").exists()


def test_a_worker_that_dies_leaves_its_last_words() -> None:
    with Worker("haiku") as worker, pytest.raises(WorkerDied) as error:
        worker.ask("start", backend="haiku")
    message = str(error.value)
    assert "the haiku worker died during 'start' (exit code 1)" in message
    assert "KeyError: 'options'" in message


def test_a_killed_worker_is_noticed() -> None:
    with Worker("haiku") as worker:
        worker.process.kill()
        with pytest.raises(WorkerDied, match=r"signal SIGKILL.*It printed no error"):
            worker.ask("start")


def test_a_worker_ends_with_its_parent() -> None:
    with Worker("haiku") as worker:
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        worker.process.stdin = None
        try:
            assert worker.process.wait(timeout=30) == 0
        except subprocess.TimeoutExpired:
            pytest.fail("the worker outlived its input")
