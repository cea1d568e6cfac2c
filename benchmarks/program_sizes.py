"""Sizes of the compiled programs, since a start waits for their compilation.

    python -m benchmarks.program_sizes
    python -m benchmarks.program_sizes --only "ppo CartPole" sac

Each row is one program of an algorithm at its defaults: the initialization of all seeds, the
training, and the evaluation of 64 episodes. The columns are the equations of its jaxpr, with those
of nested ones; the instructions of the compiled program, with those of its fusions; the seconds of
tracing and lowering in Python; and the seconds of XLA, without a compilation cache.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import tyro
from jax.extend import core as jex

import triglot
from triglot.compare.programs.describe import describe
from triglot.core.loop.trainer import init_seeds, play_seeds, train_seeds
from triglot.core.trainers import make_trainer

from .harness import compile_timed, table

EVALUATION = {"num_episodes": 64, "max_steps": 1000, "explore": False}


@dataclass(frozen=True)
class Case:
    """A training: an algorithm in an environment, with options that override its defaults."""

    algorithm: str
    env: str
    config: Mapping[str, Any] = field(default_factory=dict)
    num_seeds: int = 1


CASES = {
    "ppo CartPole": Case("ppo", "gymnax:CartPole-v1"),
    "ppo CartPole, 16 seeds": Case("ppo", "gymnax:CartPole-v1", num_seeds=16),
    "ppo Pendulum": Case("ppo", "gymnax:Pendulum-v1"),
    "ppo lstm MemoryChain": Case("ppo", "gymnax:MemoryChain-bsuite", {"cell": "lstm"}),
    "ppo Maze": Case("ppo", "jumanji:Maze-v0"),
    "ppo ant": Case("ppo", "brax:ant"),
    "dqn CartPole": Case("dqn", "gymnax:CartPole-v1"),
    "sac Pendulum": Case("sac", "gymnax:Pendulum-v1"),
    "q_learning gridworld": Case("q_learning", "gridworld:8x8"),
}


def sizes(case: Case, backend: str) -> Iterator[tuple[str, int, int, float, float]]:
    """Compile the programs of a case; yield each one's name, sizes and seconds."""
    env = triglot.make_env(case.env)
    agent = triglot.make_agent(
        case.algorithm,
        env,
        backend="table" if case.algorithm == "q_learning" else backend,
        config=dict(case.config),
    )
    trainer = make_trainer(agent, env)
    keys = jax.random.split(jax.random.key(0), case.num_seeds)
    state = init_seeds.eval_shape(trainer, keys)
    programs = {
        "init": (init_seeds, (trainer, keys), {}),
        "train": (train_seeds, (trainer, state, np.int32(0)), {}),
        "evaluate": (play_seeds, (trainer, state.agent, keys), EVALUATION),
    }
    for name, (function, args, options) in programs.items():
        jax.clear_caches()
        found = compile_timed(function, *args, **options)
        equations = num_equations(function.trace(*args, **options).jaxpr.jaxpr)
        instructions = describe(found.call)["instructions"]
        yield name, equations, instructions, found.trace_seconds, found.compile_seconds


def num_equations(jaxpr: Any) -> int:
    """Count the equations of a jaxpr, with those of jaxprs in their parameters."""
    inner = (jex.jaxprs_in_params(equation.params) for equation in jaxpr.eqns)
    return len(jaxpr.eqns) + sum(num_equations(one) for each in inner for one in each)


def main(only: tuple[str, ...] = (), backend: str = "linen") -> None:
    """Print the table.

    Args:
      only: the rows whose names begin with one of these; all by default.
      backend: the network library; Q-learning has a table.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    rows = []
    for title, case in CASES.items():
        if not only or title.startswith(only):
            for name, equations, instructions, python, xla in sizes(case, backend):
                shown = (f"{equations:,}", f"{instructions:,}", f"{python:.1f}", f"{xla:.1f}")
                rows.append((title, name, *shown))
    header = ("training", "program", "equations", "instructions", "trace s", "XLA s")
    print(table(header, rows))


if __name__ == "__main__":
    tyro.cli(main)
