"""What each suite of environments costs and gives: checks, steps per second, returns of PPO.

It measures one environment of each suite on one core, trains PPO on it with 5 seeds, and writes
`docs/suites.md`. A finished run is read, an interrupted one is continued:

    python -m benchmarks.suites
    python -m benchmarks.suites --only navix pgx --rounds 3

Suites that are not installed keep their row.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

import triglot
from triglot.checks.environment.check import check_environment
from triglot.core import specs
from triglot.core.errors import MissingExtra
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.machine.cores import one_core
from triglot.registry.environments import load_suite

from . import harness
from .published import NUM_SEEDS, finished, returns_of, shown, train

ROOT = Path(__file__).resolve().parents[1]
NUM_ENVS = 64
LENGTH = 64  # steps of a timed call, and of a rollout
TRAINING = f"""--num-envs {NUM_ENVS} --rollout-length {LENGTH} --num-minibatches 8 --num-epochs 4
    --learning-rate 1e-3 --entropy-coef 0.01 --eval-episodes 128"""
HEADER = (
    "environment",
    "of its suite",
    "checks that fail",
    "drawn",
    "steps/s of one",
    f"of {NUM_ENVS}",
    "with resets",
    "PPO",
    "env steps",
    "return",
)
PAGE = """\
# Suites

One environment of each suite (`python -m benchmarks.suites`). Steps per second are on one core,
the medians of {rounds} interleaved rounds of {length} steps: of one environment, of {num_envs}
under `vmap` without and with resets after each end, and of PPO in training on them. *Checks that
fail* are those of `triglot check`, in the library's own code. Returns are greedy, of PPO after that
many environment steps per seed, with the 95 % interval over {num_seeds} seeds; where there is none,
it was not trained. No setting was tuned: `{training}`.

{table}

{machine}
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One environment.

    Attributes:
      total_steps: of the training, environment steps per seed; 0 for none.
      options: of the training, besides `TRAINING`.
    """

    env: str
    total_steps: int = 0
    options: tuple[str, ...] = ()


ROWS = {
    row.env.partition(":")[0]: row
    for row in (
        Row(env="gymnax:Breakout-MinAtar"),
        Row(env="jumanji:Snake-v1", total_steps=500_000),
        Row(env="brax:ant"),
        Row(
            env="playground:CartpoleBalance",
            total_steps=500_000,
            options=("--normalize-obs", "True"),
        ),
        Row(env="navix:Navix-DoorKey-5x5-v0", total_steps=500_000),
        Row(env="xminigrid:MiniGrid-DoorKey-5x5", total_steps=500_000),
        Row(env="craftax:Craftax-Classic-Symbolic-v1"),
        Row(env="pgx:connect_four", total_steps=500_000),
    )
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the benchmark."""

    only: tuple[str, ...] = tuple(ROWS)
    """suites."""
    rounds: int = 7
    """timed rounds."""
    train: bool = True
    """train PPO where a row says so; else only finished runs are read."""
    out: Path = Path("runs/suites")
    """folder of the runs and of `rows.json`, which keeps the rows of other calls."""
    page: Path = ROOT / "docs/suites.md"
    """the page."""


def programs(env: Any) -> Mapping[str, Callable[[], Any]]:
    """Compile what is timed: each program takes `LENGTH` steps of each of its environments."""
    vector = VectorEnvironment(env, NUM_ENVS).for_rollouts(LENGTH)
    agent = triglot.make_agent(
        "ppo", env, config=triglot.PPO.Config(num_envs=NUM_ENVS, rollout_length=LENGTH)
    )
    trainer = Trainer(agent, vector, chunk_size=1)

    def one(state: Any, key: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> Any:
            action_key, step_key = jax.random.split(key)
            after = env.step(state, specs.sample(env.action_spec, action_key), step_key)
            return after.state, after.reward

        return jax.lax.scan(step, state, jax.random.split(key, LENGTH))

    def many(states: Any, key: jax.Array) -> Any:
        return jax.vmap(one)(states, jax.random.split(key, NUM_ENVS))

    def with_resets(state: Any, key: jax.Array) -> Any:
        pool_key, steps_key = jax.random.split(key)

        def step(state: Any, key: jax.Array) -> Any:
            action_key, step_key = jax.random.split(key)
            keys = jax.random.split(action_key, NUM_ENVS)
            actions = jax.vmap(lambda key: specs.sample(env.action_spec, key))(keys)
            state, transition = vector.step(state, actions, step_key)
            return state, transition.reward

        keys = jax.random.split(steps_key, LENGTH)
        return jax.lax.scan(step, vector.refresh(state, pool_key), keys)

    key = jax.random.key(0)
    starts = jax.jit(jax.vmap(env.reset))(jax.random.split(key, NUM_ENVS)).state
    start = jax.tree.map(lambda leaf: leaf[0], starts)
    made = {
        "one": (one, start),
        "many": (many, starts),
        "with_resets": (with_resets, jax.jit(vector.reset)(key)),
    }
    timed = {}
    for name, (function, state) in made.items():
        compiled = jax.jit(function).lower(state, key).compile()
        timed[name] = lambda compiled=compiled, state=state: compiled(state, key)
    first = jax.jit(trainer.init)(key)
    update = jax.jit(trainer.train_chunk).lower(first).compile()
    return timed | {"ppo": lambda: update(first)}


def returned(run: Path) -> tuple[str, str]:
    """Show the environment steps and the greedy return of a finished run, or nothing."""
    if not finished(run):
        return "", ""
    found = returns_of(run)
    return f"{found['num_steps']:,}", shown(found["greedy"])


def installed(suites: Iterable[str]) -> dict[str, Any]:
    """Make the environment of each suite that is installed."""
    envs = {}
    for suite in suites:
        try:
            envs[suite] = triglot.make_env(ROWS[suite].env)
        except MissingExtra as error:
            print(error)
    return envs


def measured(envs: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """Check and time each suite's environment; return rows of the table."""
    timed, sizes, rows = {}, {}, {}
    for suite, env in envs.items():
        print(f"{env.name}: check and compile", flush=True)
        failed = ", ".join(check_environment(env).failed) or "none"
        suffix = getattr(env, "draw_suffix", ".gif").removeprefix(".").upper()
        rows[suite] = [f"`{env.name}`", len(load_suite(suite).names()), failed, suffix]
        for name, program in programs(env).items():
            timed[f"{suite} {name}"] = program
            sizes[f"{suite} {name}"] = LENGTH * (1 if name == "one" else NUM_ENVS)
    for name, seconds in harness.measure(timed, rounds=rounds).items():
        rows[name.partition(" ")[0]].append(harness.rounded(sizes[name] / np.median(seconds)))
    return rows


def main(options: Options) -> None:
    """Train, measure, and write the page."""
    options.out.mkdir(parents=True, exist_ok=True)
    envs = installed(options.only)
    for suite in envs if options.train else ():
        row, run = ROWS[suite], options.out / suite
        if row.total_steps and not finished(run):
            words = ["--total-steps", str(row.total_steps), *TRAINING.split(), *row.options]
            train(run, "ppo", row.env, "--no-preset", *words)
    kept = options.out / "rows.json"
    rows = json.loads(kept.read_text()) if kept.exists() else {}
    with one_core():
        rows |= measured(envs, options.rounds)
    kept.write_text(json.dumps(rows))
    cells = [[*rows[suite], *returned(options.out / suite)] for suite in ROWS if suite in rows]
    machine = harness.environment()
    versions = (f"{name} {version}" for name, version in machine["versions"].items())
    options.page.write_text(
        PAGE.format(
            rounds=options.rounds,
            length=LENGTH,
            num_envs=NUM_ENVS,
            num_seeds=NUM_SEEDS,
            training=" ".join(TRAINING.split()),
            table=harness.table(HEADER, cells),
            machine=f"{machine['cpu']}, Python {machine['python']}, {', '.join(versions)}",
        )
    )
    print(options.page)


if __name__ == "__main__":
    main(tyro.cli(Options))
