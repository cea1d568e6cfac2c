"""PPO and DQN on one GPU beside PureJaxRL and rejax, within 8 minutes.

From 4 to 4,096 environments and from 1 to 256 seeds: steps/s with learning, compile times, and
whether the four network libraries give the same training, bit for bit, with
XLA_FLAGS=--xla_gpu_deterministic_ops=true. Run it from the repository's root:

    pip install "jax[cuda12]" -c constraints.txt
    pip install --no-deps --target peers rejax flashbax
    git clone https://github.com/luchris429/purejaxrl
    python -m benchmarks.gpu --packages peers --purejaxrl purejaxrl

Without a network, copy those folders to the machine; a peer that is absent is left out. Without a
GPU it goes on on the CPU, with small sizes. The table is written after each case, so that Ctrl-C
keeps what was measured. Cases for which no time is left are dropped, and named.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import tyro

from . import harness
from .child import Child, Ended, serve
from .peers.row import Row
from .peers.rows import ROWS

DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
START_SECONDS = 180.0  # to wait for a process to start
FRAMEWORKS = ("triglot", "PureJaxRL", "rejax")
HEADER = ["training", "envs", "seeds", "framework", "steps/s in all", "triglot / its [95%]",
          "compile s"]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the plan: a training of all frameworks, or of all libraries (`identity`)."""

    algorithm: Literal["ppo", "dqn"]
    num_envs: int
    num_seeds: int = 1
    num_updates: int
    identity: bool = False

    def __str__(self) -> str:
        if self.identity:
            return f"{self.algorithm.upper()}, four libraries"
        seeds = f"{self.num_seeds} seed{'s' if self.num_seeds > 1 else ''}"
        return f"{self.algorithm.upper()}, {self.num_envs} environments, {seeds}"


def plan(small: bool) -> list[Case]:
    """Order the cases, the most telling first; each run takes about a second on a GPU."""
    ppo = functools.partial(Case, algorithm="ppo", num_updates=16 if small else 64)
    dqn = functools.partial(Case, algorithm="dqn", num_updates=1_000 if small else 2_000)
    if small:
        return [
            ppo(num_envs=4), dqn(num_envs=4), ppo(num_envs=4, identity=True), ppo(num_envs=64),
            ppo(num_envs=4, num_seeds=4), dqn(num_envs=4, num_seeds=4),
            dqn(num_envs=4, identity=True),
        ]  # fmt: skip
    return [
        ppo(num_envs=4), ppo(num_envs=4096), ppo(num_envs=4, num_seeds=256),
        ppo(num_envs=4, identity=True), dqn(num_envs=4), dqn(num_envs=4096),
        ppo(num_envs=64), dqn(num_envs=4, num_seeds=256), dqn(num_envs=4, identity=True),
        ppo(num_envs=512), ppo(num_envs=4, num_seeds=16), dqn(num_envs=4, num_seeds=16),
        dqn(num_envs=512),
    ]  # fmt: skip


def row_of(case: Case) -> tuple[Row, int]:
    """Give the setting of `benchmarks.peers` with another size, and its steps per seed."""
    row, size = ROWS[case.algorithm], case.num_envs
    config = {**row.config, "num_envs": size}
    steps = case.num_updates * size * row.config.get("rollout_length", 1)
    hyper = dict(row.hyper)
    if case.algorithm == "dqn":
        config |= {"learning_starts": 32 * size, "buffer_size": max(10_000, 64 * size)}
        hyper["epsilon"] = f"linear(1, 0.05, {steps / 2})"
    peers = ("PureJaxRL", "rejax")
    return replace(row, config=config, hyper=hyper, num_seeds=case.num_seeds, peers=peers), steps


def measure_cases(backend: str, purejaxrl: str) -> None:
    """Answer cases with their measurements; the first reply describes the machine."""

    def hello() -> dict[str, Any]:
        import jax

        jax.config.update("jax_enable_compilation_cache", False)
        return {**harness.environment(), "platform": jax.devices()[0].platform}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        from .peers.measure import contenders, measure

        case = Case(**request["case"])
        row, steps = row_of(case)
        return measure(
            row,
            contenders(row, steps, backend, {"PureJaxRL": Path(purejaxrl)}),
            total_steps=steps,
            rounds=request["rounds"],
            episodes=0,
            max_seconds=request["seconds"],
            say=lambda text: print(f"  {case}: {text}", file=sys.stderr),
        )

    serve(answer, hello=hello, default=harness.plain)


@dataclass
class Result:
    """What was measured so far; written after each case."""

    machine: dict[str, Any]
    rows: list[list[str]] = field(default_factory=list)
    identity: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    cases: dict[str, Any] = field(default_factory=dict)

    def add(self, case: Case, measured: dict[str, Any]) -> None:
        """Add the rows of a case."""
        self.cases[str(case)] = measured
        for name, one in measured["programs"].items():
            ratio = "{median:.2f} [{low:.2f}, {high:.2f}]".format(**one["triglot_times_as_fast"])
            self.rows.append([
                case.algorithm.upper(), f"{case.num_envs:,}", str(case.num_seeds),
                f"{name} {one['version']}", harness.rounded(one["steps_per_second"]["median"]),
                "" if name == "triglot" else ratio, f"{one['compile_seconds']:.1f}",
            ])  # fmt: skip

    def text(self) -> str:
        """Format everything in Markdown."""
        versions = self.machine["versions"]
        lines = [
            f"{self.machine['device']} ({self.machine['platform']}), {self.machine['cpu']}, "
            f"JAX {versions['jax']}, triglot {versions['triglot']}; networks of triglot in Linen; "
            "medians of interleaved rounds, whole trainings on CartPole-v1 without compilation.",
            "",
            harness.table(HEADER, self.rows),
            "",
            *(f"- {text}" for text in self.identity),
            *(f"- Left out: {text}" for text in self.dropped),
        ]
        return "\n".join(lines) + "\n"

    def write(self, out: Path) -> None:
        """Write the JSON file, and the Markdown file beside it."""
        kept = ("machine", "cases", "identity", "dropped")
        harness.write_json(out, {name: getattr(self, name) for name in kept})
        out.with_suffix(".md").write_text(self.text())


def compare_libraries(case: Case, seconds: float) -> str:
    """Train on the four libraries from the same weights and keys by `triglot compare`.

    Raises:
      subprocess.TimeoutExpired: if it takes longer than `seconds`.
    """
    row, steps = row_of(case)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "compared"
        words = (
            f"compare {case.algorithm} gymnax:{row.env_id} --num-seeds 1 --no-preset "
            f"--total-steps {steps} --num-envs {case.num_envs} --repetitions 0 --eval-episodes 1"
        ).split()
        if case.algorithm == "dqn":
            for name in ("learning_starts", "buffer_size"):
                words += [f"--{name.replace('_', '-')}", str(row.config[name])]
        done = subprocess.run(
            [sys.executable, "-m", "triglot", *words, "--out", str(out)],
            env=environment(deterministic=True),
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        if not (out / "comparison.json").exists():
            return f"{case}: `triglot compare` failed: {done.stderr.strip().splitlines()[-1:]}"
        found = json.loads((out / "comparison.json").read_text())
    return f"{case}, {steps:,} steps, {DETERMINISTIC}: {found['verdict']['sentence']}"


def environment(*, deterministic: bool = False, packages: Path | None = None) -> dict[str, str]:
    """Give the environment of a child, which shares the GPU's memory with others."""
    given = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if deterministic:
        given["XLA_FLAGS"] = f"{given.get('XLA_FLAGS', '')} {DETERMINISTIC}".strip()
    if packages is not None:
        paths = [str(packages.resolve()), given.get("PYTHONPATH", "")]
        given["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return given


def main(
    purejaxrl: Path | None = None,
    packages: Path | None = None,
    backend: str = "linen",
    max_seconds: float = 480.0,
    rounds: int = 10,
    small: bool = False,
    out: Path = Path("benchmarks/results/gpu.json"),
) -> None:
    """Measure what fits into the time; print and write a table.

    Args:
      purejaxrl: folder of a clone of PureJaxRL's repository.
      packages: folder with rejax and flashbax, from `pip install --no-deps --target`.
      backend: library of triglot's networks.
      max_seconds: of the whole command.
      rounds: trainings of each framework in a case, fewer where time is short.
      small: sizes for a CPU, which are always chosen where there is no GPU.
      out: the JSON file, overwritten; the table is beside it, ending in .md.
    """
    began = time.monotonic()
    longest = 60.0  # of a case so far; the first guess

    def left() -> float:
        return max_seconds - (time.monotonic() - began)

    def start() -> tuple[Child, dict[str, Any]]:
        command = [sys.executable, "-m", "benchmarks.gpu", "serve", backend, str(purejaxrl or "-")]
        made = Child("The measuring process", command, env=environment(packages=packages))
        return made, made.reply(START_SECONDS)

    try:
        worker, machine = start()
    except (KeyboardInterrupt, TimeoutError):
        sys.exit(f"nothing was measured: its process did not start within {START_SECONDS:.0f} s")
    if machine["platform"] == "cpu":
        print(
            "No GPU: JAX sees only the CPU (on a machine with one, pip install "
            '"jax[cuda12]"). Going on on the CPU with small sizes; the figures say nothing '
            "about a GPU."
        )
    result = Result(machine)
    cases = plan(small or machine["platform"] == "cpu")
    try:
        for number, case in enumerate(cases, 1):
            if left() < longest:
                seconds = max(left(), 0.0)
                result.dropped.append(f"{case}: {seconds:.0f} s were left of {max_seconds:.0f}.")
                continue
            print(f"[{max_seconds - left():3.0f} s] {number}/{len(cases)} {case}", flush=True)
            began_case = time.monotonic()
            try:
                if case.identity:
                    worker.close()  # frees the GPU's memory
                    result.identity.append(compare_libraries(case, left()))
                else:
                    if worker.closed:
                        worker, _ = start()
                    share = left() / (len(cases) - number + 1)
                    request = {"case": vars(case), "rounds": rounds, "seconds": share / 2}
                    result.add(case, worker.ask(request, left()))
            except (TimeoutError, subprocess.TimeoutExpired, Ended) as error:
                why = "its process ended" if isinstance(error, Ended) else "it took too long"
                result.dropped.append(f"{case}: {why}.")
                worker.close()
            longest = max(longest if number > 1 else 0.0, time.monotonic() - began_case)
            result.write(out)
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept")
    finally:
        worker.close()
    result.write(out)
    print(result.text(), end="")
    print(f"written to {out} and {out.with_suffix('.md')}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        with suppress(KeyboardInterrupt):
            measure_cases(*sys.argv[2:])
    else:
        tyro.cli(main)
