"""Ctrl-C says how to continue, at any moment; the printed command does, with the same numbers."""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging

WORDS = shlex.split(
    "compare ppo probe:two-step --backends haiku linen --num-seeds 2 --total-steps 200000 "
    "--hidden-sizes 8 --rollout-length 8 --eval-episodes 4 --devices 1"
)


def run(words: list[str], log: Path, until: Callable[[str], bool] | None) -> tuple[int, str]:
    """Run a command; send SIGINT once what it printed fits. Return its exit code and its errors."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "triglot", *words], stdout=subprocess.DEVNULL, stderr=errors
        )
        try:
            while until is not None and not until(log.read_text()):
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            if until is not None:
                process.send_signal(signal.SIGINT)
            return process.wait(300), log.read_text()
        finally:
            process.kill()


def continued(words: list[str], folder: Path, moment: Callable[[str], bool]) -> tuple[str, str]:
    """Interrupt a command at a moment; return what it says, and the command that it prints."""
    code, errors = run(words, folder / "log", moment)
    assert code == 128 + signal.SIGINT, errors
    said, _, command = errors.rstrip().rpartition("\n  triglot ")
    return " ".join(said[said.rindex("Stopped") :].split()), command.splitlines()[0]


@pytest.mark.slow
def test_an_interrupted_comparison_is_continued_by_what_it_prints(tmp_path: Path) -> None:
    out, words = tmp_path / "out", [*WORDS, "--out", str(tmp_path / "out")]
    said, command = continued(words, tmp_path, lambda text: "import and build" in text)
    assert said == "Stopped before any of 2 trainings was saved. Begin again by:"
    assert not out.exists()

    said, command = continued(shlex.split(command), tmp_path, lambda text: "haiku: train" in text)
    assert said == (
        "Stopped: 0 of 2 trainings are done and kept, and 1 more has a checkpoint. Continue by:"
    )
    for moment in (
        lambda text: "measure speed" in text,
        lambda text: (out / "jobs/costs/costs.json").exists(),  # the report follows
    ):
        said, command = continued(shlex.split(command), tmp_path, moment)
        assert said == "Stopped: 2 of 2 trainings are done and kept. Continue by:"
        assert not (out / "comparison.json").exists()

    code, errors = run(shlex.split(command), tmp_path / "log", None)
    assert code == 0, errors
    result = json.loads((out / "comparison.json").read_text())
    assert result["verdict"]["level"] == "identical" and result["cost"] is not None
    assert not list(out.glob("jobs/.*"))
