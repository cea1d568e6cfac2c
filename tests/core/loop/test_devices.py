"""Several devices give the numbers of one, up to rounding; several processes those of one."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.core.loop.on_devices import NUM_UPDATES

# Relative to the largest number of an array; 3e-7 was measured after 1 and after 10 updates.
TOLERANCE = {1: 2e-6, 10: 1e-5}
CASES = {"ppo": ("ppo-envs", "ppo-seeds"), "dqn": ("dqn-envs",), "sac": ("sac-envs",)}
CACHE_ALL = {  # 1 and 10 updates are one program
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
SLOW = {name: [] if name == "ppo" else [pytest.mark.slow] for name in CASES}


def started(folder: Path, devices: int, cases: Sequence[str], *more: str) -> subprocess.Popen:
    words = [word for case in cases for word in ("--case", case)]
    command = [sys.executable, "-m", "tests.core.loop.on_devices", str(folder), *words]
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache")} | CACHE_ALL
    env = {**os.environ, **cache}
    return subprocess.Popen([*command, "--devices", str(devices), *more], env=env)


def numbers(folder: Path, case: str, num_updates: int) -> dict[str, np.ndarray]:
    with np.load(folder / f"{case.replace('/', '-')}-{num_updates}.npz") as file:
        return dict(file)


# One test for all cases and updates: they come from one process, which compiles for a minute.
@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW[name]) for name in CASES])
def test_eight_devices_agree_with_one(name: str, tmp_path: Path) -> None:
    cases = CASES[name]
    assert started(tmp_path, 8, [*cases, *(f"{case}/one" for case in cases)]).wait() == 0
    for case, num_updates in [(case, own) for case in cases for own in NUM_UPDATES]:
        one, eight = (numbers(tmp_path, own, num_updates) for own in (f"{case}/one", case))
        assert one.keys() == eight.keys() and any("params" in path for path in one)
        for path, array in one.items():
            limit = TOLERANCE[num_updates] * float(np.abs(array).max(initial=1e-3))
            place = f"{case}, {num_updates} updates: {path}"
            np.testing.assert_allclose(eight[path], array, rtol=0, atol=limit, err_msg=place)


def test_two_processes_equal_one_with_two_devices(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert started(tmp_path / "one", 2, ["ppo-envs", "ppo-seeds"]).wait() == 0
    both = [
        started(tmp_path / "two", 2, ["ppo-envs", "ppo-seeds"], "--process", own, "--port", port)
        for own in ("0", "1")
    ]
    assert [process.wait() for process in both] == [0, 0]
    for case in ("ppo-envs", "ppo-seeds"):
        for num_updates in NUM_UPDATES:
            one, two = (numbers(tmp_path / name, case, num_updates) for name in ("one", "two"))
            for path, array in one.items():
                np.testing.assert_array_equal(two[path], array, err_msg=path)
