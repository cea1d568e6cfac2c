"""What each suite of environments costs: checks and steps per second of one environment.

It measures one environment of each suite on one core, and writes `docs/suites.md`:

    python -m benchmarks.suites
    python -m benchmarks.suites --only navix pgx --rounds 3
    python -m benchmarks.suites --every     # checks those that were not checked yet, instead

Suites that are not installed keep their row.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

import triglot
from triglot.checks.environment.check import check_environment
from triglot.core import specs
from triglot.core.errors import MissingExtra, TriglotError
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.runs.registry.environments import load_suite
from triglot.runs.registry.presets.find import find
from triglot.shared.machine.cores import one_core
from triglot.shared.statistics import format_return

from . import harness
from .published import TASKS

ROOT = Path(__file__).resolve().parents[1]
NUM_ENVS = 64
LENGTH = 64  # steps of a timed call, and of a rollout
HEADER = (
    "environment",
    "of its suite",
    "checked",
    "without a failure",
    "drawn",
    "steps/s of one",
    f"of {NUM_ENVS}",
    "with resets",
    "PPO",
    "env steps",
    "return",
    "published",
)
PAGE = """\
# Suites

One environment of each suite (`python -m benchmarks.suites`). Steps per second are on one core,
the medians of {rounds} interleaved rounds of {length} steps: of one environment, of {num_envs}
under `vmap` without and with resets after each end, and of PPO in training on them. *Checked* are
the environments of the suite that `triglot check` was run on, *without a failure* those that passed
all of its checks. *Return* is that of PPO's preset after that many environment steps, over 5 seeds,
beside the [published](published.md) one.

{table}

{machine}

## Checks that fail

In the libraries' own code: {reasons}

{failures}
"""
REASONS = (
    "some draw twice from one key; solvers of physics stop before they have converged, so that "
    "other rounding gives other accelerations, compiled or under `vmap`; a deal of mahjong may be "
    "won at once, and the episode then ends at its first step."
)

ENVS = {
    name.partition(":")[0]: name
    for name in (
        "gymnax:Breakout-MinAtar",
        "jumanji:Snake-v1",
        "brax:ant",
        "playground:CartpoleBalance",
        "navix:Navix-Empty-Random-8x8-v0",
        "xminigrid:MiniGrid-DoorKey-5x5",
        "craftax:Craftax-Classic-Symbolic-v1",
        "pgx:2048",
    )
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the benchmark."""

    only: tuple[str, ...] = tuple(ENVS)
    """suites."""
    rounds: int = 7
    """timed rounds."""
    every: bool = False
    """check every environment of the suites that was not checked yet, and time nothing."""
    out: Path = ROOT / "docs/suites.json"
    """keeps the rows of other calls."""
    page: Path = ROOT / "docs/suites.md"
    """the page."""


def programs(env: Any) -> Mapping[str, Callable[[], Any]]:
    """Compile what is timed: each program takes `LENGTH` steps of each of its environments."""
    vector = VectorEnvironment(env, NUM_ENVS).for_rollouts(LENGTH)
    # One setting for all suites, whatever PPO's defaults for their observations and actions.
    sizes: dict[str, Any] = {"num_envs": NUM_ENVS, "rollout_length": LENGTH}
    sizes |= {"num_epochs": 4, "num_minibatches": 4, "channels": (3,)}
    agent = triglot.make_agent("ppo", env, config=triglot.PPO.Config(**sizes))
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


def returned(env: str) -> tuple[str, str, str]:
    """Show the environment steps of PPO's preset, its return, and the published one."""
    found = find("ppo", env)
    if found is None:
        return "", "", ""
    sample = found.measured[0]
    mean, low, high = map(format_return, (sample.mean, *sample.interval))
    tasks = [task for task in TASKS.values() if (task.algorithm, task.env) == ("ppo", env)]
    published = tasks[0].published if tasks else ""
    return f"{found.train['total_steps']:,}", f"{mean} [{low}, {high}]", published or "none"


def installed(suites: Iterable[str]) -> dict[str, Any]:
    """Make the environment of each suite that is installed."""
    envs = {}
    for suite in suites:
        try:
            envs[suite] = triglot.make_env(ENVS[suite])
        except MissingExtra as error:
            print(error)
    return envs


def check_every(suites: Iterable[str], checked: dict[str, list[str]]) -> Iterator[None]:
    """Check the environments that were not checked yet, and yield after each.

    Args:
      suites: installed ones.
      checked: the checks that fail, by environment; added to.
    """
    for suite in suites:
        for name in (f"{suite}:{name}" for name in load_suite(suite).names()):
            if name in checked:
                continue
            try:
                env = triglot.make_env(name)
            except TriglotError as error:  # such as of files that cannot be downloaded
                print(f"{name}: {error}", flush=True)
                continue
            checked[name] = list(check_environment(env).failed)
            print(f"{name}: {', '.join(checked[name]) or 'passed'}", flush=True)
            yield


def measured(envs: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """Time each suite's environment; return rows of the table."""
    timed, sizes, rows = {}, {}, {}
    for suite, env in envs.items():
        print(f"{env.name}: compile", flush=True)
        suffix = getattr(env, "draw_suffix", ".gif").removeprefix(".").upper()
        rows[suite] = [f"`{env.name}`", len(load_suite(suite).names()), suffix]
        for name, program in programs(env).items():
            timed[f"{suite} {name}"] = program
            sizes[f"{suite} {name}"] = LENGTH * (1 if name == "one" else NUM_ENVS)
    for name, seconds in harness.measure(timed, rounds=rounds).items():
        rows[name.partition(" ")[0]].append(harness.rounded(sizes[name] / np.median(seconds)))
    return rows


def cells(suite: str, row: list[Any], checked: Mapping[str, list[str]]) -> list[Any]:
    """Write the row of a suite's environment with what was checked, and what was learned."""
    env, number, *rest = row
    failed = [checks for name, checks in checked.items() if name.startswith(f"{suite}:")]
    clean = sum(not checks for checks in failed)
    return [env, number, len(failed), clean, *rest, *returned(ENVS[suite])]


def failures(checked: Mapping[str, list[str]]) -> str:
    """List the environments by suite and the checks that fail."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, checks in checked.items():
        suite, _, short = name.partition(":")
        if checks:
            found.setdefault((suite, ", ".join(checks)), []).append(f"`{short}`")
    return "\n".join(
        f"- {suite}, *{checks}*: {', '.join(names)}" for (suite, checks), names in found.items()
    )


def page(known: Mapping[str, Any]) -> str:
    """Write the page of the docs, of what the JSON file has."""
    found = known["machine"]["versions"].items()
    versions = (f"{name} {version}" for name, version in found if version not in (None, "None"))
    rows, checked = known["rows"], known["checked"]
    return PAGE.format(
        rounds=known["rounds"],
        length=LENGTH,
        num_envs=NUM_ENVS,
        table=harness.table(HEADER, [cells(s, rows[s], checked) for s in ENVS if s in rows]),
        machine=f"{known['machine']['cpu']}, {', '.join(versions)}",
        reasons=REASONS,
        failures=failures(checked),
    )


def main(options: Options) -> None:
    """Measure, and write the page."""
    envs = installed(options.only)
    known = {"rows": {}, "checked": {}, "rounds": options.rounds, "machine": harness.environment()}
    if options.out.exists():
        known |= json.loads(options.out.read_text())
    if options.every:
        for _ in check_every(envs, known["checked"]):
            harness.write_json(options.out, known)
    else:
        with one_core():
            known["rows"] |= measured(envs, options.rounds)
        known |= {"rounds": options.rounds, "machine": harness.environment()}
    harness.write_json(options.out, known)
    options.page.write_text(page(known))
    print(options.page)


if __name__ == "__main__":
    main(tyro.cli(Options))
