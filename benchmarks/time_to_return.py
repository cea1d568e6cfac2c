"""Time to a greedy return: imports, tracing, compilation and training, with and without a cache.

Each run is a separate process. It trains PPO on CartPole-v1 with the schedule of the whole budget
and stops at the first evaluation with a greedy return of at least 475. The first run starts with an
empty compilation cache, the second with the cache of the first. Run it from the repository's root:

    python -m benchmarks.time_to_return
"""

import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

GOAL = 475.0
LAPS = ("start", "import", "build", "init", "trace", "compile", "train", "evaluate")


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
    from triglot.experiments.deferred import DRAWING, defer

    defer(DRAWING)
    import jax

    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    from triglot import make_agent, make_env
    from triglot.core.hyper import fill_schedule_horizon
    from triglot.core.loop.prepare import compile_evaluation, initialize_and_compile
    from triglot.core.loop.trainer import Trainer, updates_for
    from triglot.core.loop.vectorize import VectorEnvironment

    env = make_env("gymnax:CartPole-v1")
    lap("import")
    agent = make_agent("ppo", env, backend=backend)
    trainer = Trainer(agent, VectorEnvironment(env, agent.num_envs), chunk_size=20)
    num_updates = updates_for(trainer, 500_000)
    hyper = fill_schedule_horizon(agent.hyper, num_updates)
    lap("build")
    key, eval_key = jax.random.split(jax.random.key(seed))
    how = {"num_episodes": 64, "max_steps": 1000, "explore": False}
    with closing(trainer.program()) as program, ThreadPoolExecutor(1) as background:
        state = initialize_and_compile(trainer, program, key[None], hyper, background, lap)
        shapes = jax.eval_shape(lambda: (state, eval_key[None]))
        background.submit(compile_evaluation, trainer, *shapes, **how)
        done, best = 0, 0.0
        while best < GOAL and done < num_updates:
            state, _ = jax.block_until_ready(program(state, 20))
            done += 20
            lap("train")
            look = jax.random.fold_in(eval_key, done)
            episodes = trainer.evaluate_seeds(state.agent, look[None], **how)
            best = float(episodes.returns.mean())
            lap("evaluate")
    return {"laps": laps, "return": best, "env_steps": done * trainer.steps_per_update}


def main(backends: tuple[str, ...] = ("haiku", "linen", "nnx", "equinox"), seed: int = 0) -> None:
    """Run every backend twice, each time in a new process, and print a table of seconds.

    Args:
      backends: libraries to run.
      seed: random seed of every run.
    """
    columns = [*LAPS, "total", "return", "env steps"]
    print(f"{'seconds':<18}" + "".join(f"{column:>10}" for column in columns))
    for backend in backends:
        with tempfile.TemporaryDirectory() as cache:
            for which in ("first", "second"):
                command = [sys.executable, "-m", "benchmarks.time_to_return"]
                child = [str(time.time()), backend, cache, str(seed)]
                done = subprocess.run(
                    [*command, *child], capture_output=True, text=True, check=True
                )
                found = json.loads(done.stdout.splitlines()[-1])
                seconds = [*found["laps"].values(), sum(found["laps"].values())]
                print(
                    f"{backend + ', ' + which:<18}"
                    + "".join(f"{value:>10.2f}" for value in seconds)
                    + f"{found['return']:>10.1f}{found['env_steps']:>10,}",
                    flush=True,
                )


if __name__ == "__main__":
    if len(sys.argv) == 5:
        text, backend, cache, seed = sys.argv[1:]
        print(json.dumps(run(float(text), backend, cache, int(seed))))
    else:
        import tyro

        tyro.cli(main)
