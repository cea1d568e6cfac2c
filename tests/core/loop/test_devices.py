"""Several devices give the numbers of one, up to rounding; several processes those of one."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.packaging

# Relative to the largest number of an array, after 10 updates; 3e-7 was measured.
TOLERANCE = 1e-5
CASES = {"ppo": ("ppo-envs", "ppo-seeds"), "dqn": ("dqn-envs",), "sac": ("sac-envs",)}
SLOW = {name: [] if name == "ppo" else [pytest.mark.slow] for name in CASES}


def started(folder: Path, devices: int, cases: Sequence[str], *more: str) -> subprocess.Popen:
    words = [word for case in cases for word in ("--case", case)]
    command = [sys.executable, "-m", "tests.core.loop.on_devices", str(folder), *words]
    return subprocess.Popen([*command, "--devices", str(devices), *more], env=os.environ.copy())


def numbers(folder: Path, case: str) -> dict[str, np.ndarray]:
    with np.load(folder / f"{case.replace('/', '-')}.npz") as file:
        return dict(file)


# One test for all cases: they come from one process, which compiles for half a minute.
@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW[name]) for name in CASES])
def test_eight_devices_agree_with_one(name: str, tmp_path: Path) -> None:
    cases = CASES[name]
    assert started(tmp_path, 8, [*cases, *(f"{case}/one" for case in cases)]).wait() == 0
    for case in cases:
        one, eight = (numbers(tmp_path, own) for own in (f"{case}/one", case))
        assert one.keys() == eight.keys() and any("params" in path for path in one)
        for path, array in one.items():
            limit = TOLERANCE * float(np.abs(array).max(initial=1e-3))
            place = f"{case}: {path}"
            np.testing.assert_allclose(eight[path], array, rtol=0, atol=limit, err_msg=place)


@pytest.mark.parametrize("name", ["q_learning", pytest.param("ppo", marks=pytest.mark.slow)])
def test_two_processes_equal_one_with_two_devices(name: str, tmp_path: Path) -> None:
    cases = (f"{name}-envs", f"{name}-seeds")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    for count in ("one", "two"):
        (tmp_path / count).mkdir()
    assert started(tmp_path / "one", 2, cases).wait() == 0
    both = [
        started(tmp_path / "two", 2, cases, "--process", own, "--port", port) for own in ("0", "1")
    ]
    assert [process.wait() for process in both] == [0, 0]
    for case in cases:
        one, two = (numbers(tmp_path / count, case) for count in ("one", "two"))
        for path, array in one.items():
            np.testing.assert_array_equal(two[path], array, err_msg=path)
