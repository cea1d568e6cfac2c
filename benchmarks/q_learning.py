"""Abstraction overhead of a tabular agent: Q-learning through triglot, against plain JAX.

Every program learns the same grid world from a table of zeros, in one process, interleaved
(`benchmarks.harness`). Its result is reported with its speed: the maximum value at the start,
against the exact value from value iteration. Run it from the repository's root, on one core:

    taskset -c 0 python -m benchmarks.q_learning
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from triglot import make_agent, make_env
from triglot.algorithms.q_learning import METHODS, QLearning
from triglot.core.agent import PolicyInput, Trajectory
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment

from . import harness, plain_q_learning

CONFIG = plain_q_learning.Config()
BASELINE = "plain, keyed"


@dataclass(frozen=True)
class Program:
    """A thunk that learns from zeros and returns the tables `[num_agents, cells, 4]`."""

    thunk: Callable[[], jax.Array]
    num_agents: int
    num_steps: int  # of each agent
    temporary_bytes: int | None = None


def plain(randomness: Any, num_agents: int, num_steps: int) -> Program:
    """Build a program in plain JAX."""
    config = replace(CONFIG, randomness=randomness)
    keys = jax.random.split(jax.random.key(0), num_agents)
    made = jax.jit(_over_agents(lambda key: plain_q_learning.train(config, num_steps, key)[0]))
    compiled = made.lower(keys).compile()
    return Program(lambda: compiled(keys), num_agents, num_steps, _temporary_bytes(compiled))


def through_seams(
    backend: str, num_agents: int, num_steps: int, rollout_length: int, method: str = "q_learning"
) -> Program:
    """Build a program through `Trainer.train_chunk`."""
    trainer = make_trainer(backend, rollout_length, method, num_steps // rollout_length)

    def learn(key: jax.Array) -> jax.Array:
        state, _ = trainer.train_chunk(trainer.init(key))
        return _table(state.agent)

    keys = jax.random.split(jax.random.key(0), num_agents)
    compiled = jax.jit(_over_agents(learn)).lower(keys).compile()
    steps = trainer.chunk_size * rollout_length
    return Program(lambda: compiled(keys), num_agents, steps, _temporary_bytes(compiled))


def python_loop(num_agents: int, num_steps: int) -> Program:
    """Call jitted functions from Python step by step: act, environment, update.

    Each call continues the training of the previous one, since one call alone is too short.
    """
    trainer = make_trainer("table", 1, "q_learning", 1)
    agent, env = trainer.agent, trainer.env
    over = jax.vmap if num_agents > 1 else lambda function, in_axes: function
    keys = jax.random.split(jax.random.key(0), num_agents)
    keys = keys if num_agents > 1 else keys[0]
    start = jax.jit(over(trainer.init, in_axes=0))(keys)

    # Typed keys are slow to pass to jitted functions, so they are made from the step number inside.
    def act(agent_state: Any, env_state: Any, own: jax.Array, time: int) -> jax.Array:
        inputs = PolicyInput(
            obs=env_state.obs, first=env_state.first, action_mask=env_state.action_mask
        )
        return agent.act(agent_state, (), inputs, _key(own, time, 0), explore=True).action

    def step(env_state: Any, action: jax.Array, own: jax.Array, time: int) -> Any:
        return env.step(env_state, action, _key(own, time, 1))

    def update(
        agent_state: Any, env_state: Any, action: jax.Array, seen: Any, own: jax.Array, time: int
    ) -> Any:
        fields = {
            "obs": env_state.obs,
            "first": env_state.first,
            "action_mask": env_state.action_mask,
            "action": action,
            "reward": seen.reward,
            "terminated": seen.terminated,
            "truncated": seen.truncated,
            "next_obs": seen.next_obs,
            "next_action_mask": seen.next_action_mask,
        }
        one_step = jax.tree.map(lambda leaf: leaf[None], fields)
        trajectory = Trajectory(**one_step, extras={}, carry=())
        return agent.update(agent_state, trajectory, _key(own, time, 2))[0]

    act = jax.jit(over(act, in_axes=(0, 0, 0, None)))
    step = jax.jit(over(step, in_axes=(0, 0, 0, None)))
    update = jax.jit(over(update, in_axes=(0, 0, 0, 0, 0, None)))
    own = jnp.arange(num_agents, dtype=jnp.uint32)
    own = own if num_agents > 1 else own[0]
    now = (start.agent, start.env, 0)

    def learn() -> jax.Array:
        nonlocal now
        agent_state, env_state, begun = now
        for time in range(begun, begun + num_steps):
            action = act(agent_state, env_state, own, time)
            next_env_state, seen = step(env_state, action, own, time)
            agent_state = update(agent_state, env_state, action, seen, own, time)
            env_state = next_env_state
        now = (agent_state, env_state, begun + num_steps)
        table = _table(agent_state)
        return table if num_agents > 1 else table[None]

    return Program(learn, num_agents, num_steps)


def _key(own: jax.Array, time: int, use: int) -> jax.Array:
    key = jax.random.fold_in(jax.random.key(1), own)
    return jax.random.fold_in(jax.random.fold_in(key, time), use)


def make_trainer(backend: str, rollout_length: int, method: str, num_updates: int) -> Trainer:
    """Build the agent in the baseline's grid world, with its hyperparameters."""
    env = make_env(f"gridworld:{CONFIG.size}x{CONFIG.size}")
    numbers = {name: getattr(CONFIG, name) for name in ("learning_rate", "discount", "epsilon")}
    agent = make_agent(
        QLearning,
        env,
        backend=backend,
        config={"rollout_length": rollout_length, "method": method},
        hyper=numbers,
    )
    return Trainer(agent, VectorEnvironment(env, 1), chunk_size=num_updates)


def _over_agents(learn: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """Vmap over keys; a single agent is not vmapped, which avoids batched lookups."""
    return lambda keys: jax.vmap(learn)(keys) if len(keys) > 1 else learn(keys[0])[None]


def _table(agent_state: Any) -> jax.Array:
    (table,) = jax.tree.leaves(agent_state.learner.variables.params)
    return table


def _temporary_bytes(compiled: Any) -> int:
    return compiled.memory_analysis().temp_size_in_bytes


def main(
    rounds: int = 15,
    num_steps: int = 2**20,
    num_agents: int = 30,
    steps_each: int = 2**17,
    rollout_length: int = 4096,
    python_steps: int = 2_000,
    backends: tuple[str, ...] = ("haiku", "linen", "nnx", "equinox"),
    out: Path = Path("benchmarks/results/q_learning.json"),
) -> None:
    """Measure and write the result.

    Args:
      rounds: pairs; each round runs every program once.
      num_steps: environment steps of a single agent.
      num_agents: agents, vmapped, in the rows with several.
      steps_each: environment steps of each of them.
      rollout_length: steps between two reports of metrics.
      python_steps: environment steps of each agent in the Python loops.
      backends: libraries whose lookup tables are measured beside the `table` backend.
      out: the JSON file, overwritten.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    programs = {}
    for count, steps in ((1, num_steps), (num_agents, steps_each)):
        suffix = "" if count == 1 else f", {count} agents"
        programs |= {
            f"{BASELINE}{suffix}": plain("keyed", count, steps),
            f"plain, bulk{suffix}": plain("bulk", count, steps),
            f"triglot table{suffix}": through_seams("table", count, steps, rollout_length),
            f"Python loop{suffix}": python_loop(count, python_steps),
        }
    programs["plain, in_loop"] = plain("in_loop", 1, steps_each)
    for method in METHODS[1:]:
        programs[f"triglot table, {method}"] = through_seams(
            "table", 1, num_steps, rollout_length, method
        )
    for backend in backends:
        programs[f"triglot {backend}"] = through_seams(backend, 1, steps_each, rollout_length)

    tables: dict[str, np.ndarray] = {}

    def thunk(name: str) -> harness.Thunk:
        def run() -> Any:
            tables[name] = jax.block_until_ready(programs[name].thunk())

        return run

    before = harness.environment()
    seconds = harness.measure({name: thunk(name) for name in programs}, rounds=rounds)
    per_step = {
        name: seconds[name] / (made.num_agents * made.num_steps) for name, made in programs.items()
    }
    exact = plain_q_learning.exact_values(CONFIG)[-1, -1]
    learned = {n: np.asarray(t)[:, -1].max(axis=-1) for n, t in tables.items()}
    result = {
        "environment": before,
        "load_average_after": harness.environment()["load_average"],
        "rounds": rounds,
        "config": CONFIG,
        "exact_start_value": exact,
        "programs": {
            name: {
                "num_agents": made.num_agents,
                "steps_of_each": made.num_steps,
                "steps_per_second": harness.interval(1.0 / per_step[name]),
                "time_ratio": harness.time_ratio(per_step, name, _baseline(made, num_agents)),
                "start_value": [float(learned[name].min()), float(learned[name].max())],
                "temporary_bytes": made.temporary_bytes,
            }
            for name, made in programs.items()
        },
        "seconds": seconds,
    }
    harness.write_json(out, result)
    report(result)
    print(f"written to {out}")


def _baseline(made: Program, num_agents: int) -> str:
    return BASELINE if made.num_agents == 1 else f"{BASELINE}, {num_agents} agents"


def report(result: dict[str, Any]) -> None:
    """Print the result as a table."""
    rows = [
        [
            name,
            f"{entry['steps_per_second'].median:,.0f}",
            entry["time_ratio"],
            "..".join(f"{value:.4f}" for value in sorted(set(entry["start_value"]))),
            f"{entry['steps_of_each']:,}",
            "" if (size := entry["temporary_bytes"]) is None else f"{size / 2**20:.2f}",
        ]
        for name, entry in result["programs"].items()
    ]
    header = ["program", "steps/s", "time per step, ratio [95%]", "Q(start)", "steps each", "MiB"]
    harness.print_table(header, rows)
    print(f"exact Q(start): {result['exact_start_value']:.4f}")


if __name__ == "__main__":
    tyro.cli(main)
