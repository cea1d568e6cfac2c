"""Batches of a sweep on a Ray cluster of two nodes on this machine, of which one may die."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.printed import unwrapped
from tests.sweep.small import arrays, options
from tests.sweep.test_jobs import LONG, assert_equal, long, when_saved
from tests.sweep.test_search import proposals
from triglot.cli import main as cli
from triglot.core.errors import TriglotError
from triglot.runs.jobs.local import WORKER
from triglot.sweep.options import SweepCommandOptions
from triglot.sweep.run import sweep

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.usefixtures("no_pages"),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install triglot[ray]",
    ),
]
__all__ = ["long"]
RAY = Path(sys.executable).with_name("ray")


@dataclass
class Cluster:
    """A Ray cluster of two nodes with one core each; the second runs until `kill_second`."""

    address: str
    first: subprocess.Popen[bytes]
    second: subprocess.Popen[bytes]

    def kill_second(self) -> None:
        """Kill the second node at once, as a machine that fails does."""
        for process in below(self.second):
            process.kill()

    def kill_job(self) -> None:
        """Kill the process of a job on the second node."""
        jobs = [one for one in below(self.second) if WORKER in one.cmdline()]
        jobs[0].kill()


def below(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    top = psutil.Process(process.pid)
    return [*top.children(recursive=True), top]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # its sockets need a short path
    shared = ["--num-cpus=1", "--object-store-memory=100000000", "--block"]
    alone = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
    address = f"127.0.0.1:{port}"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_initial_delay_ms": "500",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(words: list[str]) -> subprocess.Popen[bytes]:
        words = [str(RAY), "start", *words, *shared]
        with (folder / f"{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        started.append(process)
        return process

    try:
        first = start(alone)
        wait_for(lambda: answers(port))
        second = start([f"--address={address}"])
        wait_for(lambda: num_nodes(address) == 2)
        yield Cluster(address, first, second)
    finally:
        for process in started:
            for one in below(process) if process.poll() is None else []:
                one.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def num_nodes(address: str) -> int:
    """Count the nodes, in a process of its own: this one connects later."""
    code = f"import ray; ray.init('{address}', logging_level=50); print(len(ray.nodes()))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return int(found.stdout or 0)


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def on_ray(cluster: Cluster, out: Path, **changes: Any) -> SweepCommandOptions:
    given = {"batch": 4, "executor": "ray", "address": cluster.address}
    return options(out, **{**given, **changes})


def test_two_nodes_give_the_bits_of_this_process(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(on_ray(cluster, tmp_path / "ray"))[0] == 0
    assert "Ray, 2 nodes with 2 cores" in unwrapped(capsys)
    sweep(options(tmp_path / "here", batch=4))
    assert_equal(arrays(tmp_path / "ray"), arrays(tmp_path / "here"))


def test_a_search_proposes_on_a_cluster_what_it_proposes_here(
    cluster: Cluster, tmp_path: Path
) -> None:
    given = {
        "over": ("learning_rate=log:1e-3..1", "epsilon=0.1..0.9"),
        "search": "tpe",
        "num_settings": 6,
        "search_batch": 2,
        "confirm": 1,
    }
    assert sweep(on_ray(cluster, tmp_path / "ray", **given))[0] == 0
    sweep(options(tmp_path / "here", **given))
    found, here = arrays(tmp_path / "ray"), arrays(tmp_path / "here")
    assert "confirm-0-0-0/final" in here
    assert_equal(found, here)
    assert len(proposals(tmp_path / "ray")) == 2
    assert proposals(tmp_path / "ray") == proposals(tmp_path / "here")


@pytest.mark.parametrize("kill", [Cluster.kill_job, Cluster.kill_second])
def test_a_killed_batch_continues_from_its_checkpoint(
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    long: dict[str, np.ndarray],
    kill: Any,
) -> None:
    out = tmp_path / "ray"
    with when_saved(out, lambda: kill(cluster), count=2):
        assert sweep(on_ray(cluster, out, **LONG))[0] == 0
    assert "continues from its checkpoint" in unwrapped(capsys)
    assert_equal(arrays(out), long)


def test_a_signal_saves_a_checkpoint_of_each_batch(cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "ray"
    chosen = on_ray(cluster, out, **LONG)
    with when_saved(out, lambda: os.kill(os.getpid(), signal.SIGINT), count=2):
        assert sweep(chosen) == (130, None)
    assert len(list(out.glob("jobs/.unfinished-*/checkpoints"))) == 2
    assert sweep(chosen)[0] == 0


def test_custom_code_travels(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_rates.py").write_text("FACTOR = 0.5\n")
    (tmp_path / "own_optimizer.py").write_text(
        "import optax\nfrom own_rates import FACTOR\n"
        "def make(hyper):\n    return optax.sgd(FACTOR * hyper.learning_rate)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = {
        "algorithm": "ppo",
        "config": {"num_envs": 2, "rollout_length": 4, "num_epochs": 1, "num_minibatches": 1},
        "optimizer": "own_optimizer:make",
        "over": ("learning_rate=0.1,0.5",),
        "batch": 2,
    }
    # The cluster was started without this folder on its path.
    assert sweep(on_ray(cluster, tmp_path / "ray", **given))[0] == 0
    sweep(options(tmp_path / "here", **given))
    assert_equal(arrays(tmp_path / "ray"), arrays(tmp_path / "here"))


def test_a_folder_that_a_node_does_not_see_is_refused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triglot.runs.jobs import cluster as module

    class Elsewhere(type(tmp_path)):
        """Writes nothing, as if nodes saw another folder."""

        def write_text(self, *given: Any, **more: Any) -> int:
            return 0

    monkeypatch.setattr(module, "Path", Elsewhere)
    with pytest.raises(TriglotError, match=r"node .* does not see .*: choose an --out on storage"):
        sweep(on_ray(cluster, Elsewhere(tmp_path / "ray")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", [None, "127.0.0.1:1"])
def test_a_cluster_that_is_not_there_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    address: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "sweep",
        "q_learning",
        "gridworld:3x3",
        "--over",
        "learning_rate=0.1,0.2",
        "--executor",
        "ray",
    ]
    words += ["--no-compilation-cache", *(["--address", address] if address else [])]
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("triglot: error: no Ray cluster that can be used answers at")
    assert error.count("\n") == 1 and "Traceback" not in error
    assert not list(tmp_path.iterdir())
