"""Abstraction overhead of DQN and its replay options, against plain JAX.

All programs train DQN with purejaxrl's setting (CartPole-v1, 10 environments, a gradient step of
128 samples per 10 steps, 120 and 84 units), in one process, interleaved (`benchmarks.harness`),
each from a state with a full replay. Run it from the repository's root, on one core:

    taskset -c 0 python -m benchmarks.dqn
"""

import statistics
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from triglot import make_agent, make_env
from triglot.algorithms.dqn import DQN
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment

from . import harness, plain_dqn
from .seams import Program, compile_all

PLAIN = "plain"


def plain_program(config: plain_dqn.Config, num_updates: int) -> Program:
    """Build a program of `num_updates` updates in plain JAX."""
    function = jax.jit(lambda state: plain_dqn.train(config, num_updates, state))
    state = plain_dqn.init(config, jax.random.key(0))
    filled, _ = plain_dqn.train(config, _updates_to_fill(config), state)
    return Program(function, filled)


def triglot_program(
    backend: str, config: plain_dqn.Config, num_updates: int, options: Mapping[str, Any]
) -> Program:
    """Build a program of `num_updates` updates through triglot; `options` override `config`."""
    env = make_env("gymnax:CartPole-v1")

    def given(kind: type) -> dict[str, Any]:
        numbers = asdict(config)
        return {f.name: numbers[f.name] for f in fields(kind) if f.name in numbers}

    agent = make_agent(
        DQN,
        env,
        backend=backend,
        config=given(DQN.Config) | dict(options),
        hyper={name: float(number) for name, number in given(DQN.Hyperparams).items()},
    )
    trainer = Trainer(agent, VectorEnvironment(env, agent.num_envs), chunk_size=num_updates)
    fill = Trainer(agent, trainer.env, chunk_size=_updates_to_fill(config))
    filled, _ = jax.jit(fill.train_chunk)(jax.jit(fill.init)(jax.random.key(0)))
    return Program(jax.jit(trainer.train_chunk), filled)


def _updates_to_fill(config: plain_dqn.Config) -> int:
    return -(-config.learning_starts // config.num_envs) + 1


def main(
    backends: tuple[str, ...] = ("haiku", "linen", "nnx", "equinox"),
    buffer_size: int = 10_000,
    rounds: int = 20,
    num_updates: int = 2_000,
    compile_rounds: int = 1,
    out: Path = Path("benchmarks/results/dqn.json"),
) -> None:
    """Measure every backend, and on the first one the options, against plain JAX.

    Args:
      backends: libraries to measure.
      buffer_size: slots of every replay.
      rounds: pairs; each round runs every program once.
      num_updates: updates in one run, of 10 environment steps each.
      compile_rounds: times each program is compiled, each time from cleared caches.
      out: the JSON file, overwritten.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    config = plain_dqn.Config(buffer_size=buffer_size)
    options = {
        "prioritized": {"prioritized": True},
        "n_step 3": {"n_step": 3},
        "double": {"double": True},
        "dueling": {"dueling": True},
    }
    programs = {PLAIN: plain_program(config, num_updates)}
    for backend in backends:
        programs[backend] = triglot_program(backend, config, num_updates, {})
    for name, option in options.items():
        called = f"{backends[0]}, {name}"
        programs[called] = triglot_program(backends[0], config, num_updates, option)

    before = harness.environment()
    made = compile_all(programs, compile_rounds)
    metrics: dict[str, Any] = {}

    def thunk(name: str) -> harness.Thunk:
        def run() -> Any:
            state, metrics[name] = made[name][-1].call(programs[name].state)
            return state

        return run

    seconds = harness.measure({name: thunk(name) for name in programs}, rounds=rounds)
    steps = num_updates * config.num_envs
    result = {
        "environment": before,
        "load_average_after": harness.environment()["load_average"],
        "rounds": rounds,
        "updates_per_run": num_updates,
        "config": config,
        "programs": {
            name: {
                "time_ratio": harness.time_ratio(seconds, name, PLAIN),
                "time_ratio_to_uniform": harness.time_ratio(seconds, name, backends[0]),
                "steps_per_second": harness.interval(steps / seconds[name]),
                "episode_return": float(np.nanmean(metrics[name]["episode_return"])),
                "trace_seconds": [c.trace_seconds + c.lower_seconds for c in made[name]],
                "compile_seconds": [c.compile_seconds for c in made[name]],
            }
            for name in programs
        },
        "seconds": seconds,
    }
    harness.write_json(out, result)
    report(result, backends[0])
    print(f"written to {out}")


def report(result: dict[str, Any], uniform: str) -> None:
    """Print the result as a table."""
    rows = [
        [
            name,
            entry["time_ratio"],
            entry["time_ratio_to_uniform"],
            f"{entry['steps_per_second'].median / 1e3:.1f} k",
            f"{statistics.median(entry['trace_seconds']):.2f}",
            f"{statistics.median(entry['compile_seconds']):.2f}",
            f"{entry['episode_return']:.0f}",
        ]
        for name, entry in result["programs"].items()
    ]
    header = ["program", f"time / {PLAIN} [95%]", f"time / {uniform} [95%]", "steps/s", "trace s"]
    harness.print_table([*header, "compile s", "return"], rows)


if __name__ == "__main__":
    tyro.cli(main)
