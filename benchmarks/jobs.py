"""What executors gain and cost.

The first measurement is a sweep of four settings, each a job of its own, as a whole command: on one
pinned core (`--jobs 1`), and on several at the same time. The second is what one job costs besides
its work: jobs that do nothing, one after the other, in local processes and through Ray, if it is
installed, on a cluster of one node that is started here. Run it from the repository's root, on a
quiet machine:

    python -m benchmarks.jobs
"""

import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro

from triglot.jobs.executor import Executor, Task
from triglot.jobs.local import LocalExecutor
from triglot.jobs.run import run_tasks
from triglot.jobs.running import RunningJob
from triglot.machine.interrupt import Interrupt

RATES = ("1e-4", "3e-4", "1e-3", "3e-3")


def seconds_of_sweep(total_steps: int, jobs: int, out: Path) -> float:
    """Time a sweep of four jobs, whose programs an earlier one has compiled."""
    words = ["sweep", "ppo", "gymnax:CartPole-v1", "--over", f"learning_rate={','.join(RATES)}"]
    words += ["--num-seeds", "1", "--batch", "1", "--total-steps", str(total_steps)]
    start = time.perf_counter()
    command = [sys.executable, "-m", "triglot", *words, "--jobs", str(jobs), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def nothing(arguments: Mapping[str, Any], job: RunningJob) -> None:
    """Do nothing; a job's function."""


def seconds_per_job(executor: Executor, num_jobs: int, folder: Path) -> float:
    """Time empty jobs, one after the other, and return the mean."""
    tasks = [
        Task(
            name=str(number),
            label=str(number),
            function="benchmarks.jobs:nothing",
            arguments={},
            folder=str(folder),
        )
        for number in range(num_jobs)
    ]
    start = time.perf_counter()
    outcomes = run_tasks(executor, tasks, Interrupt())
    assert all(one.end == "done" for one in outcomes.values()), outcomes
    return (time.perf_counter() - start) / num_jobs


def measure_overhead(num_jobs: int, folder: Path) -> None:
    """Print what an empty job costs with each executor."""
    local = seconds_per_job(LocalExecutor(1), num_jobs, folder / "local")
    print(f"an empty job: {local:.2f} s in a local process")
    if importlib.util.find_spec("ray") is None:
        print("Ray is not installed: its overhead is not measured")
        return
    from triglot.jobs.cluster import connect

    os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    args = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 10**8}
    cluster = importlib.import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args=args
    )
    try:
        start = time.perf_counter()
        executor = connect(cluster.address, 1, {})
        executor.prepare(folder)
        print(f"connecting to Ray, and checking its node: {time.perf_counter() - start:.1f} s")
        seconds_per_job(executor, 1, folder / "first")  # starts Ray's process
        ray = seconds_per_job(executor, num_jobs, folder / "ray")
        print(f"an empty job: {ray:.2f} s through Ray, {ray - local:+.2f} s")
        executor.close()
    finally:
        cluster.shutdown()


def main(
    total_steps: int = 20_000_000,
    jobs: Sequence[int] = (1, 2),
    num_empty: int = 10,
    sweep: bool = True,
) -> None:
    """Measure and print.

    Args:
      total_steps: of each of the four jobs; choose it so that one takes two minutes.
      jobs: how many run at the same time; the first is the baseline.
      num_empty: empty jobs for the overhead.
      sweep: whether to time the sweeps.
    """
    with tempfile.TemporaryDirectory() as folder:
        if sweep:
            seconds_of_sweep(1000, jobs[0], Path(folder) / "compile")
            seconds = {n: seconds_of_sweep(total_steps, n, Path(folder) / str(n)) for n in jobs}
            for number, taken in seconds.items():
                gain = seconds[jobs[0]] / taken
                print(f"four jobs, {number} at the same time: {taken:.1f} s, {gain:.2f} times")
        measure_overhead(num_empty, Path(folder))


if __name__ == "__main__":
    tyro.cli(main)
