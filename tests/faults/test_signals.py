"""Ctrl-C, SIGTERM and SIGHUP: saved, quiet, and with the exit code that clusters expect."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.faults.attacked import COMMON, NETWORK, SMALL, fingerprint, start
from triglot.cli.main import main
from triglot.runs.storage.journal import Journal
from triglot.shared.machine.interrupt import SIGNALS, Interrupt, Signalled, raising

pytestmark = pytest.mark.packaging


@pytest.mark.covering(4)
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_saves_and_names_itself_in_the_exit_code(
    number: signal.Signals,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    add_chunk, out = Journal.add_chunk, tmp_path / "run"

    def add_and_signal(journal: Journal, metrics: dict[str, np.ndarray]) -> None:
        os.kill(os.getpid(), number)
        add_chunk(journal, metrics)

    monkeypatch.setattr(Journal, "add_chunk", add_and_signal)
    before = [signal.getsignal(each) for each in SIGNALS]
    command = [*SMALL.split(), "--out", str(out)]
    assert main(command) == 128 + number
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert "stopping after this chunk" in capsys.readouterr().err
    assert json.loads((out / "summary.json").read_text())["interrupted"]
    monkeypatch.setattr(Journal, "add_chunk", add_chunk)
    assert main(["resume", str(out)]) == 0
    assert fingerprint(out) == fingerprint(finished)


def test_a_second_signal_ends_the_program_at_once() -> None:
    code = (
        "import signal, time\n"
        "from triglot.shared.machine.interrupt import Interrupt\n"
        "with Interrupt() as interrupt:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    assert interrupt.number == signal.SIGTERM\n"
        "    print('first', flush=True)\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    print('not reached')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "first\n")
    assert "Traceback" not in done.stderr


def test_an_ignored_signal_stays_ignored() -> None:
    """`nohup` starts a program that way."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGHUP)
            assert not interrupt.pressed
            signal.raise_signal(signal.SIGTERM)
            assert interrupt.number == signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_commands_that_must_clean_up_see_an_exception(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cleaned = []

    def command(arguments: list[str], started: float) -> int:
        with raising():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                cleaned.append(True)
        return 0

    monkeypatch.setitem(sys.modules["triglot.cli.main"].COMMANDS, "list", command)
    assert main(["list"]) == 143 and cleaned
    assert capsys.readouterr().err == "triglot: interrupted\n"
    with pytest.raises(Signalled), raising():
        signal.raise_signal(signal.SIGHUP)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_comes_in_a_destructor_is_raised_again() -> None:
    class Signalling:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with raising() as check:
        check()
        Signalling()  # freed at once; Python ignores the exception
        with pytest.raises(Signalled):
            check()


MOMENTS = [0.15, 0.4, 0.8, 1.3, 2.0]  # after Python itself has started
STARTED = (
    "import runpy; print('started', flush=True); runpy.run_module('triglot', None, '__main__')"
)


@pytest.mark.covering(3)
@pytest.mark.parametrize("seconds", MOMENTS)
def test_ctrl_c_during_the_imports_is_quiet(seconds: float, tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTED, "train", "ppo", "gymnax:CartPole-v1"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 130)
    assert "Traceback" not in text and "Exception" not in text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
@pytest.mark.parametrize("moment", range(10))
def test_signals_at_any_moment(
    number: signal.Signals, moment: int, tmp_path: Path, long_run: Path
) -> None:
    """A run that a cluster ends is as if it had never been ended."""
    out = tmp_path / "run"
    process = start(f"{LONG} --out {out}")
    while not (out / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(np.random.default_rng(moment).uniform(0, 4))
    process.send_signal(number)
    text, _ = process.communicate(timeout=120)
    assert process.returncode in (0, 128 + number), text
    assert "Traceback" not in text
    resumed = start(f"resume {out}")
    text, _ = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, text
    assert fingerprint(out) == fingerprint(long_run)


LONG = (
    "train ppo probe:two-step --num-seeds 2 --num-envs 2 --rollout-length 8 --num-minibatches 2 "
    f"--num-epochs 1 {NETWORK} --total-steps 160_000 {COMMON}"
)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("long") / "run"
    process = start(f"{LONG} --out {out}")
    text, _ = process.communicate()
    assert process.returncode == 0, text
    return out
