"""Time to a greedy return: imports, tracing, compilation and training, with and without a cache.

Each run is a separate process, which finds compiled bytecode, as in an installed package. It trains
PPO on CartPole-v1 with the schedule of the whole budget and stops at the first evaluation with a
greedy return of at least 475. The first run starts with an empty compilation cache, the second with
the cache of the first. `cpu` is the seconds on all cores. Run it from the repository's root:

    python -m benchmarks.time_to_return

Each round has another seed, since some need ten times the steps of others. The medians of the
rounds are shown.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOAL = 475.0
LAPS = ("start", "import", "build", "init", "trace", "compile", "train", "evaluate")
STEPS = "env_steps"
COLUMNS = (*LAPS, "total", "cpu", "return", STEPS)


def run(started: float, backend: str, cache: str, seed: int) -> dict[str, Any]:
    """Train until the goal; `started` is the time of the command, from `time.time`.

    The programs are compiled as by `triglot train`: `init` is the time of tracing it, `compile` of
    waiting for all of them, `evaluate` of the episodes and of what is left to compile for them.
    """
    laps: dict[str, float] = dict.fromkeys(LAPS, 0.0)
    last = started

    def lap(name: str) -> None:
        nonlocal last
        now = time.time()
        laps[name] += now - last
        last = now

    lap("start")
    from triglot.core.garbage import collect_rarely

    collect_rarely()
    import jax

    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    from triglot import Experiment, make_agent, make_env

    env = make_env("gymnax:CartPole-v1")
    lap("import")
    agent = make_agent("ppo", env, backend=backend)
    key, eval_key = jax.random.split(jax.random.key(seed))
    experiment = Experiment(agent, env, key=key[None], total_steps=500_000, chunk_size=20)
    lap("build")
    with closing(experiment.program()) as program, ThreadPoolExecutor(2) as background:

        def on_stage(name: str) -> None:
            lap(name)
            if name == "trace":
                compile_evaluation = experiment.compile_evaluation
                background.submit(compile_evaluation, experiment.shapes, num_episodes=64)

        state = experiment.start_and_compile(program, background, on_stage)
        done, best = 0, 0.0
        while best < GOAL and done < experiment.num_updates:
            state, _ = jax.block_until_ready(program(state, 20))
            done += 20
            lap("train")
            look = jax.random.fold_in(eval_key, done)
            episodes = experiment.evaluate(state, num_episodes=64, keys=look[None])
            best = float(episodes.returns.mean())
            lap("evaluate")
    return {"laps": laps, "return": best, "env_steps": done * experiment.steps_per_update}


def child(backend: str, cache: str, seed: int) -> dict[str, float]:
    """Call `run` in a new process; `cpu` is added, its seconds on all cores."""
    command = [sys.executable, "-m", "benchmarks.time_to_return"]
    before = os.times()
    done = subprocess.run(
        [*command, str(time.time()), backend, cache, str(seed)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    after = os.times()
    used = after.children_user + after.children_system
    cpu = used - before.children_user - before.children_system
    found = json.loads(done.stdout.splitlines()[-1])
    laps = found.pop("laps")
    return {**laps, "total": sum(laps.values()), "cpu": cpu, **found}


def compile_bytecode() -> None:
    """Compile the package's modules, some of which are behind symbolic links in a checkout."""
    package = ROOT / "src" / "triglot"
    folders = [str(path.resolve()) for path in package.iterdir() if path.is_dir()]
    command = [sys.executable, "-m", "compileall", "-q", "benchmarks", str(package), *folders]
    subprocess.run(command, cwd=ROOT, check=True)


def main(
    backends: tuple[str, ...] = ("haiku", "linen", "nnx", "equinox"),
    seed: int = 0,
    rounds: int = 1,
) -> None:
    """Run every backend in new processes, and print a table of seconds.

    Args:
      backends: libraries to run.
      seed: random seed of the first round; the next round has the next one.
      rounds: times that all are run; more than one give medians.
    """
    # Here, since the processes that are timed import this module too.
    from . import harness

    compile_bytecode()
    rows = []
    for backend in backends:
        results: dict[str, list[dict[str, float]]] = {"first": [], "second": []}
        for number in range(rounds):
            with tempfile.TemporaryDirectory() as cache:
                for which, of_rounds in results.items():
                    print(f"{backend}, {which}, round {number}", file=sys.stderr)
                    of_rounds.append(child(backend, cache, seed + number))
        for which, of_rounds in results.items():
            medians = {name: median(one[name] for one in of_rounds) for name in COLUMNS}
            shown = [f"{value:,.{0 if name == STEPS else 2}f}" for name, value in medians.items()]
            rows.append([f"{backend}, {which}", *shown])
    print(harness.table(["seconds", *COLUMNS], rows))


if __name__ == "__main__":
    if len(sys.argv) == 5 and not sys.argv[1].startswith("-"):
        text, backend, cache, seed = sys.argv[1:]
        print(json.dumps(run(float(text), backend, cache, int(seed))))
    else:
        import tyro

        tyro.cli(main)
