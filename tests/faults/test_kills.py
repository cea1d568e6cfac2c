"""A run that was killed and resumed is equal, bit for bit, to one that was not."""

import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.faults.attacked import RUNS, finish, start

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.slow,
]


@pytest.mark.parametrize("name", RUNS)
def test_killed_at_random_moments(name: str) -> None:
    attack("--runs", name, "--kills", "10", "--signals", "4", "--every-write", "0")


def test_killed_at_each_write() -> None:
    attack("--runs", "ppo", "--kills", "1", "--signals", "0", "--every-write", "1")


def attack(*options: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.kills", *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_killed_comparison_is_continued(tmp_path: Path) -> None:
    """Its workers end with it, and the same command then gives the same results."""
    options = "--backends linen equinox --num-envs 2 --rollout-length 8 --num-minibatches 2"
    command = f"compare ppo probe:two-step {options} --hidden-sizes 8 --total-steps 64_000"
    command += " --num-seeds 1 --repetitions 0"
    finish(f"{command} --out {tmp_path / 'whole'}")
    moments = np.random.default_rng(0).uniform(1, 15, size=6)
    for seconds, number in zip(moments, itertools.cycle([signal.SIGKILL, signal.SIGTERM])):
        out = tmp_path / f"killed-{seconds:.3f}"
        process = start(f"{command} --out {out}")
        time.sleep(seconds)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        process.communicate()
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive
        finish(f"{command} --out {out}")
        assert results(out) and results(out) == results(tmp_path / "whole")


SWEEPS = {
    "halving": ("--over learning_rate=1e-3,1e-2,0.1,1 --batch 6 --halving --num-seeds 3", 5),
    "tpe": (
        "--over learning_rate=log:1e-4..1 --over clip_epsilon=0.05..0.5 --num-settings 24 "
        "--search tpe --search-batch 6 --num-seeds 1 --confirm 2 --executor sequential",
        10,
    ),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_a_killed_sweep_is_continued(name: str, tmp_path: Path) -> None:
    """One folder, killed again and again, ends with the results of an undisturbed sweep."""
    given, kills = SWEEPS[name]
    shapes = "--num-envs 2 --rollout-length 8 --num-minibatches 2 --hidden-sizes 8"
    command = f"sweep ppo gymnax:CartPole-v1 {given} {shapes}"
    command += " --total-steps 32_000 --eval-episodes 4 --checkpoint-seconds 0.5"
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(f"{command} --out {whole}")
    for seconds in np.random.default_rng(0).uniform(4, 15, size=kills):
        process = start(f"{command} --out {killed}")
        time.sleep(seconds)
        process.kill()
        process.communicate()
    finish(f"{command} --out {killed}")
    assert results(killed) and results(killed) == results(whole)
    assert (killed / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()


def results(out: Path) -> dict[str, bytes]:
    """Read all arrays of a comparison or a sweep."""
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*.safetensors")}
