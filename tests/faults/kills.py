"""Kill and signal runs hundreds of times, resume them, and compare them bit for bit.

    python -m tests.faults.kills --kills 20 --signals 20 --out kills.json

Random moments are uniform over the time of a whole run. A run that is killed is resumed and killed
again, until it ends; then the next one begins.
"""

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from tqdm import tqdm

from tests.faults import forking
from tests.faults.attacked import COMMON, RUNS, SMALL, fingerprint


@dataclass(frozen=True, kw_only=True)
class Options:
    """How often to attack.

    Attributes:
      kills: SIGKILLs at random moments, of each of `RUNS`.
      signals: SIGTERMs at random moments, of the first of `RUNS`.
      every_write: SIGKILL at every k-th write of a small run; 0 for none.
      runs: the names of `RUNS` to attack.
      out: a JSON file for the counts.
    """

    kills: int = 20
    signals: int = 20
    every_write: int = 1
    runs: tuple[str, ...] = tuple(RUNS)
    out: Path | None = None


class Arena:
    """A temporary folder, with one compilation cache for all runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.cache = f"--compilation-cache {folder / 'cache'}"

    def whole(self, name: str, train: str) -> tuple[Path, float]:
        """Train without an interruption; return the run, and its seconds with a warm cache."""
        for run in (self.folder / f"{name}-warm", self.folder / f"{name}-whole"):
            shutil.rmtree(run, ignore_errors=True)
            begin = time.monotonic()
            ended = forking.run(f"{train} --out {run}", self.log)
            check(ended.code == 0, ended.text)
        return run, time.monotonic() - begin

    def next_command(self, train: str, out: Path) -> str:
        """Return the command that a user would give after an interruption."""
        begun = (out / "config.json").exists()
        return f"resume {out} {self.cache}" if begun else f"{train} --out {out}"

    def compare(self, name: str, out: Path, whole: Path) -> None:
        """Compare two finished runs: arrays, metrics and evaluation."""
        mine, sound = (
            forking.compute(lambda run=run: fingerprint(run), self.log) for run in (out, whole)
        )
        if name == "host":  # its environments begin new episodes, as `resume` says
            lines = [len((run / "metrics.jsonl").read_text().splitlines()) for run in (out, whole)]
            check(mine["update"] == sound["update"] and lines[0] == lines[1], f"{mine} {lines}")
        else:
            check(mine == sound, f"{name}: {mine} is not {sound}")
        left = [path.name for path in out.rglob(".unfinished-*")]
        check(not left, f"{name} left {left}")


def check(condition: bool, text: str) -> None:
    """Stop with a text unless the condition holds."""
    if not condition:
        raise SystemExit(text)


def at_random_moments(
    arena: Arena, name: str, count: int, number: signal.Signals
) -> dict[str, float]:
    """Send a signal at random moments, `count` times in all; every run must end equal."""
    train = f"train {RUNS[name]} {COMMON} {arena.cache}"
    whole, seconds = arena.whole(name, train)
    out, rng = arena.folder / f"{name}-attacked", np.random.default_rng(number)
    sent = runs = 0
    with tqdm(total=count, desc=f"{name} {number.name}") as bar:
        while sent < count:
            shutil.rmtree(out, ignore_errors=True)
            done = False
            while not done:
                command = arena.next_command(train, out)
                limit = rng.uniform(0.05, 1.1) * seconds if sent < count else None
                ended = forking.run(command, arena.log, seconds=limit, number=number)
                done = ended.code == 0
                stopped = ended.code in (-number, 128 + number)
                check(done or (limit is not None and stopped), f"{ended.code}: {ended.text}")
                check("Traceback" not in ended.text, ended.text)
                sent += stopped
                bar.update(stopped)
            runs += 1
            arena.compare(name, out, whole)
    return {"sent": sent, "runs": runs, "seconds_of_a_run": round(seconds, 1)}


def at_each_write(arena: Arena, every: int) -> dict[str, int]:
    """Kill a small run at its writes, one after the other; every run must end equal."""
    train = f"{SMALL} {arena.cache}"
    whole, _ = arena.whole("small", train)
    out = arena.folder / "small-attacked"

    def attack(number: int) -> forking.Ended:
        shutil.rmtree(out, ignore_errors=True)
        return forking.run(f"{train} --out {out}", arena.log, watched=out, kill_at=number)

    num_writes, kills = attack(0).writes, 0
    for number in tqdm(range(1, num_writes + 1, every), desc="at each write"):
        killed = attack(number)
        check(killed.code in (0, -signal.SIGKILL), killed.text)
        kills += killed.code != 0
        if killed.code:
            ended = forking.run(arena.next_command(train, out), arena.log)
            check(ended.code == 0, f"killed at write {number}: {ended.text}")
        arena.compare("small", out, whole)
    return {"writes": num_writes, "kills": kills}


def attacks(arena: Arena, options: Options) -> Iterator[tuple[str, Callable[[], object]]]:
    for name in options.runs:
        yield (
            f"SIGKILL {name}",
            lambda name=name: at_random_moments(arena, name, options.kills, signal.SIGKILL),
        )
    if options.signals:
        yield (
            "SIGTERM",
            lambda: at_random_moments(arena, options.runs[0], options.signals, signal.SIGTERM),
        )
    if options.every_write:
        yield "at each write", lambda: at_each_write(arena, options.every_write)


def main(options: Options) -> None:
    """Run all attacks; the first difference ends it with exit code 1."""
    # What every fork would import. Nothing here may start JAX's backend.
    import flax.nnx  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import orbax.checkpoint  # noqa: F401

    import triglot.algorithms.dqn
    import triglot.algorithms.ppo
    import triglot.algorithms.sac
    import triglot.backends.linen
    import triglot.cli.main
    import triglot.cli.parsing
    import triglot.runs.train  # noqa: F401

    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, attack in attacks(Arena(Path(folder)), options):
            results[name] = attack()
            print(f"{name}: {results[name]}, all equal", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options))
