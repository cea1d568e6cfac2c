"""Train for an hour and watch the memory: does a long run grow?

    python -m benchmarks.soak --minutes 60 --out soak.json

It runs `triglot train` with DQN on CartPole in a process of its own, reads its resident memory
every few seconds and fits a line over the second half. SIGTERM ends it at the time limit.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tyro
from tqdm import tqdm

COMMAND = (
    "train dqn gymnax:CartPole-v1 --num-envs 4 --hidden-sizes 64 64 --total-steps 4_000_000_000 "
    "--eval-episodes 0 --checkpoint-seconds 60 --no-preset"
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure.

    Attributes:
      minutes: how long to train.
      every: seconds between two readings.
      more: further options of `triglot train`, as one text.
      out: a JSON file for the readings.
    """

    minutes: float = 60.0
    every: float = 5.0
    more: str = ""
    out: Path | None = None


def main(options: Options) -> None:
    """Train, read the memory and print what it did."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = [*COMMAND.split(), *options.more.split(), "--out", str(run)]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([sys.executable, "-m", "triglot", *words], **quiet)
        readings = read(process, run / "metrics.jsonl", options)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=600)
        summary = json.loads((run / "summary.json").read_text())
        size = (run / "metrics.jsonl").stat().st_size
    report = {
        "command": " ".join(["triglot", *words[:-2]]),
        "exit_code": process.returncode,
        "num_updates": summary["num_updates"],
        "metrics_mb": size / 1e6,
        **trend(readings, summary["num_updates"]),
    }
    print(json.dumps(report, indent=1))
    if options.out is not None:
        options.out.write_text(json.dumps({**report, "readings": readings}) + "\n")


def read(
    process: "subprocess.Popen[Any]", metrics: Path, options: Options
) -> list[tuple[float, float]]:
    """Read the process's memory from its first update on: seconds, and resident megabytes."""
    while not metrics.exists():
        time.sleep(0.5)
        if process.poll() is not None:
            raise SystemExit(f"the training ended with exit code {process.returncode}")
    watched, begin, readings = psutil.Process(process.pid), time.monotonic(), []
    with tqdm(total=round(options.minutes * 60), unit="s") as bar:
        while (seconds := time.monotonic() - begin) < options.minutes * 60:
            readings.append((round(seconds, 1), watched.memory_info().rss / 1e6))
            bar.update(round(seconds) - bar.n)
            time.sleep(options.every)
    return readings


def trend(readings: list[tuple[float, float]], num_updates: int) -> dict[str, float]:
    """Fit a line to the second half of the readings."""
    seconds, megabytes = np.array(readings[len(readings) // 2 :]).T
    slope = np.polyfit(seconds, megabytes, 1)[0]
    per_second = num_updates / readings[-1][0]
    return {
        "first_mb": readings[0][1],
        "middle_mb": float(megabytes[0]),
        "last_mb": float(megabytes[-1]),
        "most_mb": max(value for _, value in readings),
        "mb_per_hour": float(slope * 3600),
        "bytes_per_update": float(slope * 1e6 / per_second),
    }


if __name__ == "__main__":
    main(tyro.cli(Options))
