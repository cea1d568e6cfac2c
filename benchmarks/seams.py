"""Abstraction overhead: triglot on each library against PPO in plain JAX.

All programs of a row train on CartPole-v1 with the same setting, each from its own initial state,
in one process, interleaved (`benchmarks.harness`). Rows: `ppo` (4 environments x 128 steps, 4
epochs x 4 minibatches, two 64-64 tanh networks); `seeds`, the same with several seeds in one
program. Run it from the repository's root, pinned to one core: other processes then disturb it
least, and XLA's threads do not add noise:

    taskset -c 0 python -m benchmarks.seams --row ppo
"""

import functools
import itertools
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro
from tqdm import tqdm

from triglot import make_agent, make_env
from triglot.algorithms.ppo import PPO
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.types import PyTree

from . import harness, plain_ppo

PLAIN = "plain"
ONE_PASS = "plain, one pass of the critic"


@dataclass(frozen=True, kw_only=True)
class Program:
    """A jitted function of a training state.

    Attributes:
      function: trains for some updates; returns the new state and the metrics.
      state: every call starts from it.
      steps: environment steps of a call, of all seeds.
      baselines: the programs by whose time that of this one is divided.
    """

    function: jax.stages.Wrapped
    state: PyTree
    steps: int
    baselines: tuple[str, ...]


def program(
    init: Callable[[jax.Array], PyTree],
    run: Callable[[PyTree], PyTree],
    num_seeds: int | None,
    **how: Any,
) -> Program:
    """Build a program, vmapped over seeds if there is a number of them."""
    key = jax.random.key(0)
    if num_seeds is not None:
        # Not vmapped: see `triglot.core.loop.trainer.init_seeds`.
        init, run = functools.partial(jax.lax.map, init), jax.vmap(run)
        key = jax.random.split(key, num_seeds)
    return Program(function=jax.jit(run), state=jax.jit(init)(key), **how)


def plain(config: plain_ppo.Config, num_updates: int, num_seeds: int | None, **how: Any) -> Program:
    """Build the plain program."""
    init = functools.partial(plain_ppo.init, config)
    return program(init, functools.partial(plain_ppo.train, config, num_updates), num_seeds, **how)


def trainer_of(
    config: plain_ppo.Config, num_updates: int, backend: str, arithmetic: str = "canonical"
) -> Trainer:
    """Build triglot's PPO with the numbers of the plain program."""
    env, numbers = make_env("gymnax:CartPole-v1"), asdict(config)

    def given(kind: type) -> dict[str, Any]:
        return {f.name: numbers[f.name] for f in fields(kind) if f.name in numbers}

    hyper = {name: float(number) for name, number in given(PPO.Hyperparams).items()}
    rate = f"linear({config.learning_rate}, 0, {config.decay_updates} updates)"
    agent = make_agent(
        "ppo",
        env,
        backend=backend,
        arithmetic=arithmetic,
        config=given(PPO.Config),
        hyper={**hyper, "learning_rate": rate},
    )
    return Trainer(agent, VectorEnvironment(env, agent.num_envs), chunk_size=num_updates)


def ppo_programs(
    backends: tuple[str, ...], arithmetics: tuple[str, ...], num_updates: int, vmapped: bool
) -> dict[str, Program]:
    """Build PPO of one seed."""
    config = plain_ppo.Config()
    how = {"steps": num_updates * config.steps_per_update, "baselines": (PLAIN, ONE_PASS)}
    one_pass = replace(config, second_pass=False)
    programs = {
        PLAIN: plain(config, num_updates, None, **how),
        ONE_PASS: plain(one_pass, num_updates, None, **how),
    }
    for backend, arithmetic in itertools.product(backends, arithmetics):
        trainer = trainer_of(config, num_updates, backend, arithmetic)
        for num_seeds in (None, 1) if vmapped else (None,):
            name = f"{backend} {arithmetic}" + (", vmap 1" if num_seeds else "")
            programs[name] = program(trainer.init, trainer.train_chunk, num_seeds, **how)
    return programs


def seeds_programs(backend: str, counts: tuple[int, ...], num_updates: int) -> dict[str, Program]:
    """Build PPO with several numbers of seeds, each against plain JAX with as many."""
    config = plain_ppo.Config()
    trainer = trainer_of(config, num_updates, backend)
    programs = {}
    for count in counts:
        name, steps = f"{PLAIN}, {count}", count * num_updates * config.steps_per_update
        how = {"steps": steps, "baselines": (name,)}
        programs[name] = plain(config, num_updates, count, **how)
        programs[f"{backend}, {count}"] = program(trainer.init, trainer.train_chunk, count, **how)
    return programs


def compile_all(programs: dict[str, Program], rounds: int) -> dict[str, list[harness.Compiled]]:
    """Trace and compile every program `rounds` times from cleared caches, interleaved."""
    rng = np.random.default_rng(0)
    made: dict[str, list[harness.Compiled]] = {name: [] for name in programs}
    order = [name for _ in range(rounds) for name in rng.permutation(list(programs))]
    for name in tqdm(order, desc="compile"):
        jax.clear_caches()
        one = programs[name]
        made[name].append(harness.compile_timed(one.function, one.state))
    return made


def main(
    row: Literal["ppo", "seeds"] = "ppo",
    backends: tuple[str, ...] = ("haiku", "linen", "nnx", "equinox"),
    arithmetics: tuple[Literal["native", "leaf_order", "canonical"], ...] = ("native", "canonical"),
    rounds: int = 20,
    num_updates: int | None = None,
    compile_rounds: int = 3,
    num_seeds: tuple[int, ...] = (1, 4, 16),
    vmapped: bool = False,
    out: Path | None = None,
) -> None:
    """Measure every program of a row and write a JSON file.

    Args:
      row: PPO of one seed on each library, or of several seeds.
      backends: libraries to measure; `seeds` takes the first.
      arithmetics: of each library, in the row `ppo`.
      rounds: pairs; each round runs every program once.
      num_updates: updates in one run; None for 64, and 16 with several seeds.
      compile_rounds: times each program is compiled, each time from cleared caches.
      num_seeds: numbers of seeds, in the row `seeds`.
      vmapped: in the row `ppo`, measure each under `vmap` over one seed too.
      out: the JSON file, overwritten; None for benchmarks/results/seams-ROW.json.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    if row == "ppo":
        programs = ppo_programs(backends, arithmetics, num_updates or 64, vmapped)
    else:
        programs = seeds_programs(backends[0], num_seeds, num_updates or 16)
    before = harness.environment()
    made = compile_all(programs, compile_rounds)
    metrics: dict[str, dict[str, jax.Array]] = {}

    def run(name: str) -> PyTree:
        state, metrics[name] = made[name][-1].call(programs[name].state)
        return state

    thunks = {name: functools.partial(run, name) for name in programs}
    seconds = harness.measure(thunks, rounds=rounds)
    entries = {}
    for name, one in programs.items():
        memory = made[name][-1].call.memory_analysis()
        assert memory is not None
        entries[name] = {
            "time_ratios": {
                base: harness.time_ratio(seconds, name, base) for base in one.baselines
            },
            "steps_per_second": harness.interval(one.steps / seconds[name]),
            "temporary_bytes": memory.temp_size_in_bytes,
            "episode_return": float(np.nanmean(metrics[name]["episode_return"])),
            "trace_seconds": [each.trace_seconds for each in made[name]],
            "compile_seconds": [each.compile_seconds for each in made[name]],
        }
    path = out or Path(f"benchmarks/results/seams-{row}.json")
    result = {"environment": before, "rounds": rounds, "programs": entries, "seconds": seconds}
    result["load_average_after"] = harness.environment()["load_average"]
    harness.write_json(path, result)
    print(report(entries))
    print(f"written to {path}")


def report(entries: dict[str, Any]) -> str:
    """Format the result as a table."""
    width = max(len(entry["time_ratios"]) for entry in entries.values())
    ratios = ["time / baseline [95%]", f"time / {ONE_PASS} [95%]"][:width]
    header = ["program", *ratios, "steps/s", "MB"]
    rows = [
        [
            name,
            *entry["time_ratios"].values(),
            f"{entry['steps_per_second'].median / 1e3:.1f} k",
            f"{entry['temporary_bytes'] / 1e6:.1f}",
            f"{statistics.median(entry['trace_seconds']):.2f}",
            f"{statistics.median(entry['compile_seconds']):.2f}",
            f"{entry['episode_return']:.0f}",
        ]
        for name, entry in entries.items()
    ]
    return harness.table([*header, "trace s", "compile s", "return"], rows)


if __name__ == "__main__":
    tyro.cli(main)
