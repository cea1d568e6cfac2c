"""Population-based training against random search and a fixed setting, at equal environment steps.

    python -m benchmarks.population
    python -m benchmarks.population --repetitions 5 --members 20

Each method trains PPO on Pendulum with as many members. Of random search, each keeps the values
that it draws, the first values of the population. The fixed setting is the best that the random
searches of all repetitions found, trained again with other seeds: known in hindsight only. What
counts is the greedy return of the best member, chosen by 32 episodes and measured by 64 others;
also the mean over members. Then the time of one population is compared with that of as many
trainings one after the other, on CartPole.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import triglot
from triglot.core.hyper import fill_schedule_horizon, per_seed
from triglot.core.loop.population import Population
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.types import PyTree
from triglot.shared.statistics import interval95

from . import harness

ENV, SPEED_ENV = "gymnax:Pendulum-v1", "gymnax:CartPole-v1"
CONFIG = {"num_envs": 4, "rollout_length": 32, "num_epochs": 2, "hidden_sizes": (32, 32)}
PERTURB = ("learning_rate=log:1e-5..1e-1", "entropy_coef=log:1e-4..1e-1")
CHOOSE, MEASURE = 32, 64  # episodes
HEADER = ("method", "return of the best member", "mean of the members")


def score(agent: Any, env: Any, states: PyTree, members: int, key: jax.Array) -> tuple[int, Any]:
    """Choose the best member by some greedy episodes, and measure it by others.

    Returns:
      The member, its return, and the mean return of all members.
    """
    trainer = Trainer(agent, VectorEnvironment(env, agent.num_envs))
    choose, measure = jax.random.split(key)

    def returns(key: jax.Array, count: int) -> np.ndarray:
        how: Any = {"num_episodes": count, "max_steps": 500, "explore": False}
        played = trainer.evaluate_seeds(states, jax.random.split(key, members), **how)
        return np.asarray(played.returns).mean(axis=1)

    best, measured = int(np.argmax(returns(choose, CHOOSE))), returns(measure, MEASURE)
    return best, (float(measured[best]), float(measured.mean()))


def compare(repetitions: int, members: int, total_steps: int, exploit_every: int) -> dict[str, Any]:
    """Train with each method, `repetitions` times.

    Returns:
      The return of the best member and the mean of all, by method, `[repetitions, 2]`; and the
      fixed setting.
    """
    env = triglot.make_env(ENV)
    agent = triglot.make_agent("ppo", env, config=CONFIG, hyper={"decay_updates": float("inf")})
    given = fill_schedule_horizon(agent.hyper, 1)
    population = Population(size=members, exploit_every=exploit_every, perturb=PERTURB)
    draw = population.for_agent(agent).draw
    found: dict[str, list[Any]] = {"population": [], "random search": [], "fixed, in hindsight": []}
    settings: list[tuple[float, Any]] = []

    def train(key: jax.Array, **how: Any) -> tuple[int, Any]:
        result = triglot.train(agent, env, key=key, total_steps=total_steps, **how)
        return score(agent, env, result.runner_state.agent, members, jax.random.fold_in(key, 1))

    for repetition in range(repetitions):
        key = jax.random.key(repetition)
        found["population"].append(train(key, population=population)[1])
        # The population's own first values: it draws from the same keys.
        drawn = jax.vmap(lambda key: draw(key, given))(jax.random.split(key, members))
        drawn = per_seed(drawn, members)
        best, scores = train(key, num_seeds=members, hyper=drawn)
        found["random search"].append(scores)
        settings.append((scores[0], jax.tree.map(lambda leaf, i=best: float(leaf[i]), drawn)))
    fixed = max(settings, key=lambda pair: pair[0])[1]
    for repetition in range(repetitions):
        key = jax.random.key(1000 + repetition)
        hyper = per_seed(jax.tree.map(lambda number: jnp.full(members, number), fixed), members)
        scores = train(key, num_seeds=members, hyper=hyper)[1]
        found["fixed, in hindsight"].append(scores)
    names = [text.partition("=")[0] for text in PERTURB]
    return {"returns": found, "fixed": {name: getattr(fixed, name) for name in names}}


def speed(members: int, total_steps: int) -> dict[str, float]:
    """Time one population, and as many trainings one after the other; compiled before.

    The separate trainings are timed by eight of them.
    """
    env = triglot.make_env(SPEED_ENV)
    agent = triglot.make_agent("ppo", env, config=CONFIG)
    population = Population(size=members, perturb=PERTURB)

    def timed(run: Callable[[], Any]) -> float:
        run()
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    def one(seed: int, **how: Any) -> None:
        key = jax.random.key(seed)
        result = triglot.train(agent, env, key=key, total_steps=total_steps, **how)
        jax.block_until_ready(result.runner_state.agent)

    together = timed(lambda: one(0, population=population))
    apart = timed(lambda: [one(seed) for seed in range(8)]) / 8 * members
    return {"together": together, "apart": apart, "ratio": apart / together}


def main(
    repetitions: int = 5,
    members: int = 20,
    total_steps: int = 51_200,
    exploit_every: int = 40,
    speed_members: int = 64,
    out: Path = Path("benchmarks/results/population.json"),
) -> None:
    """Run both comparisons and print their tables.

    Args:
      repetitions: of each method, with other seeds.
      members: of the population, and trainings of the other methods.
      total_steps: environment steps of each member.
      exploit_every: updates between two generations.
      speed_members: of the population that is timed.
      out: the JSON file, overwritten.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    found = compare(repetitions, members, total_steps, exploit_every)
    rows = []
    for name, scores in found["returns"].items():
        cells = [name]
        for values in np.array(scores).T:
            low, high = interval95(values.tolist()) or (np.nan, np.nan)
            cells.append(f"{values.mean():.0f} ({low:.0f} to {high:.0f})")
        rows.append(cells)
    print(f"{members} members of {total_steps:,} steps, {repetitions} repetitions, 95% intervals\n")
    print(harness.table(HEADER, rows))
    fixed = ", ".join(f"{name} {value:.2g}" for name, value in found["fixed"].items())
    print(f"fixed setting: {fixed}\n")
    timed = speed(speed_members, 12_800)
    print(
        f"{speed_members} members of 12,800 steps: {timed['together']:.1f} s in one program, "
        f"{timed['apart']:.1f} s one after the other, {timed['ratio']:.1f} times as long"
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({**found, "speed": timed}, indent=1) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
