"""A run that was killed and resumed is equal, bit for bit, to one that was not."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.faults.attacked import COMMON, RUNS, SMALL, fingerprint, finish, start

pytestmark = pytest.mark.slow
NUM_KILLS = int(os.environ.get("TRIGLOT_KILLS", "20"))  # of each run


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"--compilation-cache {tmp_path_factory.mktemp('cache')}"


@pytest.mark.parametrize("name", RUNS)
def test_killed_at_random_moments(name: str, cache: str, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "run"
    train = f"train {RUNS[name]} {COMMON} {cache}"
    finish(f"{train} --out {tmp_path / 'warm'}")
    begin = time.monotonic()
    finish(f"{train} --out {whole}")
    seconds = time.monotonic() - begin
    rng = np.random.default_rng(0)
    kills = rounds = 0
    while kills < NUM_KILLS:
        shutil.rmtree(out, ignore_errors=True)
        command = f"{train} --out {out}"
        done = False
        while not done:
            process = start(command)
            last = kills >= NUM_KILLS
            try:
                text, _ = process.communicate(None if last else rng.uniform(0.3, 1.05) * seconds)
                assert process.returncode == 0, text
                done = True
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
            begun = (out / "config.json").exists()
            command = f"resume {out} {cache}" if begun else f"{train} --out {out}"
        rounds += 1
        assert_equal(name, out, whole)
    print(f"{name}: {kills} kills in {rounds} runs of {seconds:.1f} s")


def assert_equal(name: str, out: Path, whole: Path) -> None:
    mine, sound = fingerprint(out), fingerprint(whole)
    if name == "host":  # its environments begin new episodes, as `resume` says
        assert mine["update"] == sound["update"]
        lines = [(run / "metrics.jsonl").read_text().splitlines() for run in (out, whole)]
        assert len(lines[0]) == len(lines[1])
    else:
        assert mine == sound


def at_write(folder: Path, number: int, command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tests.faults.killed_at_write", str(folder), str(number)]
    return subprocess.run([*words, *command.split()], capture_output=True, text=True)


def test_killed_at_each_write(cache: str, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "run"
    counted = at_write(whole, 0, f"{SMALL} {cache} --out {whole}")
    assert counted.returncode == 0, counted.stderr
    num_writes = int(counted.stdout.rpartition("writes: ")[2])
    assert num_writes > 30
    for number in range(1, num_writes + 1):
        shutil.rmtree(out, ignore_errors=True)
        killed = at_write(out, number, f"{SMALL} {cache} --out {out}")
        if killed.returncode == 0:  # orbax's threads do not write in a fixed order
            continue
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        if (out / "config.json").exists():
            finish(f"resume {out} {cache}")
        else:
            finish(f"{SMALL} {cache} --out {out}")
        assert fingerprint(out) == fingerprint(whole), f"killed at write {number}"
        left = [path.name for path in out.rglob(".unfinished-*")]
        assert not left, f"killed at write {number}"
    print(f"killed at each of {num_writes} writes")


def test_a_killed_comparison_leaves_no_process(tmp_path: Path) -> None:
    """Its workers end with it, and the same command then gives the same parameters."""
    options = "--backends linen equinox --num-envs 2 --rollout-length 8 --num-minibatches 2"
    command = f"compare ppo probe:two-step {options} --hidden-sizes 8 --total-steps 64_000"
    finish(f"{command} --out {tmp_path / 'whole'}")
    for seconds in np.random.default_rng(0).uniform(1, 15, size=5):
        out = tmp_path / f"killed-{seconds:.3f}"
        process = start(f"{command} --out {out}")
        time.sleep(seconds)
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive
    finish(f"{command} --out {tmp_path / 'again'}")
    whole, again = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.safetensors")}
        for name in ("whole", "again")
    )
    assert whole and whole == again
