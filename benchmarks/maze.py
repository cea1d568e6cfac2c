"""Jumanji's Maze-v0: cost of resets, speed of PPO, and the success rate of a random policy.

Every stepping program takes random allowed actions and stores what a rollout stores, or sums the
observations; they run in one process, interleaved (`benchmarks.harness`). Run it from
the repository's root, on one core:

    taskset -c 0 python -m benchmarks.maze
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jumanji.registration import make as make_jumanji
from jumanji.wrappers import VmapAutoResetWrapper
from tqdm import tqdm

from triglot import make_agent, make_env
from triglot.core.environment import Environment
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment, VectorState
from triglot.core.tracing.hoist import scan_keys
from triglot.core.types import PyTree

from . import harness
from .seams import Program

ENV = "jumanji:Maze-v0"
BARE = "bare step"
JUMANJI_BARE = "jumanji, bare step"


def random_action(mask: jax.Array | None, num_envs: int, key: jax.Array) -> jax.Array:
    """Draw an action for each environment, uniformly among those that `mask` `[N, 4]` allows."""
    if mask is None:
        return jax.random.randint(key, (num_envs,), 0, 4)
    return jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf)).astype(jnp.int32)


def kept(obs: PyTree, rest: PyTree, stored: bool) -> PyTree:
    """Return what a step stores: everything, or the sum of the next observation `obs`."""
    if stored:
        return obs, rest
    return sum((leaf.sum(dtype=jnp.float32) for leaf in jax.tree.leaves(obs)), jnp.float32(0.0))


def stepping(
    step: Callable, refresh: Callable, num_rollouts: int, rollout_length: int
) -> Callable[[PyTree, jax.Array], tuple[PyTree, PyTree]]:
    """Build a program of several rollouts from `step(state, key) -> (state, kept)`."""

    def rollout(state: PyTree, key: jax.Array) -> tuple[PyTree, PyTree]:
        refresh_key, steps_key = jax.random.split(key)
        state = refresh(state, refresh_key)
        return scan_keys(step, state, jax.random.split(steps_key, rollout_length))

    return jax.jit(
        lambda state, key: jax.lax.scan(rollout, state, jax.random.split(key, num_rollouts))
    )


def stepping_programs(
    num_envs: int, num_rollouts: int, rollout_length: int, stored: bool
) -> dict[str, Program]:
    """Build the programs that step without training."""
    env = make_env(ENV)

    def build(step: Callable, state: PyTree, refresh: Callable = lambda state, _: state) -> Program:
        run = stepping(step, refresh, num_rollouts, rollout_length)
        # Otherwise all episodes would start, and end, at the same step.
        state, _ = run(state, jax.random.key(1))
        return Program(lambda state: run(state, jax.random.key(2)), state)

    def bare(state: Any, key: jax.Array) -> tuple[Any, PyTree]:
        action_key, step_key = jax.random.split(key)
        action = random_action(state.action_mask, num_envs, action_key)
        after = jax.vmap(env.step)(state.state, action, jax.random.split(step_key, num_envs))
        seen = (after.obs, action, after.reward, after.terminated, after.truncated)
        return after, kept(state.obs, seen, stored)

    keys = jax.random.split(jax.random.key(0), num_envs)
    programs = {BARE: build(bare, jax.jit(jax.vmap(env.reset))(keys))}
    for resets in ("pool", "fresh"):
        vector = VectorEnvironment(env, num_envs, resets=resets).for_rollouts(rollout_length)

        def ours(
            state: VectorState, key: jax.Array, vector: VectorEnvironment = vector
        ) -> tuple[VectorState, PyTree]:
            action_key, step_key = jax.random.split(key)
            action = random_action(state.action_mask, num_envs, action_key)
            after, seen = vector.step(state, action, step_key)
            rest = (seen.next_obs, action, seen.reward, seen.terminated, seen.truncated)
            return after, kept(state.obs, rest, stored)

        start = jax.jit(vector.reset)(jax.random.key(0))
        programs[resets] = build(ours, start, vector.refresh)

    maze = make_jumanji("Maze-v0")
    wrapped = VmapAutoResetWrapper(maze, next_obs_in_extras=True)
    steps = {JUMANJI_BARE: jax.vmap(maze.step), "jumanji, VmapAutoResetWrapper": wrapped.step}
    for name, step in steps.items():

        def theirs(carry: Any, key: jax.Array, step: Callable = step) -> tuple[Any, PyTree]:
            state, obs = carry
            action = random_action(obs.action_mask, num_envs, key)
            state, seen = step(state, action)
            next_obs = seen.extras.get("next_obs", seen.observation)
            rest = (next_obs, action, seen.reward, seen.discount)
            return (state, seen.observation), kept(obs, rest, stored)

        state, first = jax.jit(jax.vmap(maze.reset))(keys)
        programs[name] = build(theirs, (state, first.observation))
    return programs


def training_program(
    backend: str, num_envs: int, rollout_length: int, num_updates: int, resets: str
) -> Program:
    """Build a program of `num_updates` PPO updates from the initial state, with metrics."""
    env = make_env(ENV)
    config = {"num_envs": num_envs, "rollout_length": rollout_length}
    agent = make_agent("ppo", env, backend=backend, config=config)
    vector = VectorEnvironment(env, num_envs, resets=resets)  # pyright: ignore[reportArgumentType]
    trainer = Trainer(agent, vector, chunk_size=num_updates)
    return Program(jax.jit(trainer.train_chunk), jax.jit(trainer.init)(jax.random.key(0)))


def random_share(env: Environment, num_mazes: int, key: jax.Array) -> dict[str, float]:
    """Play one episode in each of many fresh mazes with a uniformly random policy.

    Returns:
      The share of mazes solved, with Wilson's 95% interval.
    """
    vector = VectorEnvironment(env, num_mazes, resets="fresh")
    reset_key, steps_key = jax.random.split(key)

    @jax.jit
    def one(stood: tuple, key: jax.Array) -> tuple:
        (state, mask), running, solved = stood
        action_key, step_key = jax.random.split(key)
        action = random_action(mask, num_mazes, action_key)
        after = jax.vmap(env.step)(state, action, jax.random.split(step_key, num_mazes))
        solved |= running & after.terminated
        running &= ~(after.terminated | after.truncated)
        return (after.state, after.action_mask), running, solved

    start = jax.jit(vector.reset)(reset_key)
    ones = jnp.ones((num_mazes,), bool)
    stood = (start.state, start.action_mask), ones, ~ones
    steps = 0
    while stood[1].any():
        stood = one(stood, jax.random.fold_in(steps_key, steps))
        steps += 1
    share, z = float(stood[2].mean()), 1.96
    middle = (share + z * z / (2 * num_mazes)) / (1 + z * z / num_mazes)
    half = z * (share * (1 - share) / num_mazes + (z / (2 * num_mazes)) ** 2) ** 0.5
    half /= 1 + z * z / num_mazes
    return {"share": share, "low": middle - half, "high": middle + half}


def main(
    backend: str = "haiku",
    num_envs: int = 128,
    rollout_length: int = 128,
    num_rollouts: int = 4,
    rounds: int = 20,
    train_envs: tuple[int, ...] = (32, 128),
    num_updates: int = 8,
    train_rounds: int = 5,
    num_mazes: int = 8192,
    stored: bool = True,
    out: Path = Path("benchmarks/results/maze.json"),
) -> None:
    """Measure and write the result.

    Args:
      backend: the library whose network is trained.
      num_envs: environments stepped without training.
      rollout_length: steps between two refreshes of the pool, and of PPO's rollouts.
      num_rollouts: rollouts in one run.
      rounds: pairs; each round runs every stepping program once.
      train_envs: numbers of environments in training.
      num_updates: PPO updates in one run.
      train_rounds: rounds of the training programs; 0 skips them.
      num_mazes: mazes for the random policy.
      stored: store what a rollout stores, including observations and their successors; otherwise
        only sum the observations.
      out: the JSON file, overwritten.
    """
    before = harness.environment()
    luck = {
        name: random_share(
            make_env(ENV, use_action_mask=masked), num_mazes, jax.random.key(int(masked))
        )
        for name, masked in tqdm([("mask", True), ("no mask", False)], desc="random policy")
    }
    programs = stepping_programs(num_envs, num_rollouts, rollout_length, stored)
    seconds = harness.measure(
        {name: lambda p=p: p.function(p.state) for name, p in programs.items()}, rounds=rounds
    )
    steps = num_envs * num_rollouts * rollout_length
    result = {
        "environment": before,
        "rounds": rounds,
        "num_envs": num_envs,
        "rollout_length": rollout_length,
        "rollouts_per_run": num_rollouts,
        "stored": stored,
        "random_policy": {"num_mazes": num_mazes} | luck,
        "stepping": {
            name: {
                "time_ratio": harness.time_ratio(seconds, name, BARE),
                "time_ratio_to_jumanjis_own": harness.time_ratio(seconds, name, JUMANJI_BARE),
                "steps_per_second": harness.interval(steps / seconds[name]),
            }
            for name in programs
        },
        "seconds": seconds,
        "training": train(backend, train_envs, rollout_length, num_updates, train_rounds),
    }
    result["load_average_after"] = harness.environment()["load_average"]
    harness.write_json(out, result)
    report(result)
    print(f"written to {out}")


def train(
    backend: str, train_envs: tuple[int, ...], rollout_length: int, num_updates: int, rounds: int
) -> dict[str, Any]:
    """Measure PPO with the resets of the pool and with fresh ones."""
    if not rounds:
        return {}
    names = {f"PPO, {n} environments, {r}": (n, r) for n in train_envs for r in ("pool", "fresh")}
    programs = {
        name: training_program(backend, num_envs, rollout_length, num_updates, resets)
        for name, (num_envs, resets) in names.items()
    }
    metrics: dict[str, Any] = {}

    def thunk(name: str) -> harness.Thunk:
        def run() -> Any:
            state, metrics[name] = programs[name].function(programs[name].state)
            return state

        return run

    seconds = harness.measure({name: thunk(name) for name in programs}, rounds=rounds)
    steps = {name: n * rollout_length * num_updates for name, (n, _) in names.items()}
    return {
        name: {
            "backend": backend,
            "updates": num_updates,
            "steps_per_second": harness.interval(steps[name] / seconds[name]),
            "share_solved": float(
                np.nansum(metrics[name]["episode_return"] * metrics[name]["num_episodes"])
                / np.sum(metrics[name]["num_episodes"])
            ),
            "seconds": seconds[name],
        }
        for name in programs
    }


def report(result: dict[str, Any]) -> None:
    """Print the result as tables."""
    for name in ("mask", "no mask"):
        luck = result["random_policy"][name]
        print(
            f"random policy, {name}: {luck['share']:.3f} of {result['random_policy']['num_mazes']} "
            f"mazes [{luck['low']:.3f}, {luck['high']:.3f}]"
        )
    rows = [
        [
            name,
            entry["time_ratio"],
            entry["time_ratio_to_jumanjis_own"],
            f"{entry['steps_per_second'].median / 1e3:,.0f} k",
        ]
        for name, entry in result["stepping"].items()
    ]
    harness.print_table(
        ["program", f"time / {BARE} [95%]", f"time / {JUMANJI_BARE} [95%]", "steps/s"], rows
    )
    rows = [
        [name, f"{entry['steps_per_second'].median:,.0f}", f"{entry['share_solved']:.3f}"]
        for name, entry in result["training"].items()
    ]
    harness.print_table(["training", "steps/s", "share solved"], rows)


if __name__ == "__main__":
    tyro.cli(main)
