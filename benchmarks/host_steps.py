"""What stepping costs in an update of PPO on environments that are stepped on the host.

Per task, three things are timed in turn, in paired rounds: an update of PPO (16 environments, two
networks of 64-64 tanh units, rollouts of 128, 4 epochs of 4 minibatches); its steps alone, with
random actions; and its calls of the policy and its learning alone, from one observation and one
rollout. The table has the ratio of the update to the longer of the other two: 1 if it vanished
behind the longer one. The steps alone use all cores, with EnvPool.

python -m benchmarks.host_steps envpool:HalfCheetah-v5 envpool:Ant-v5 --out runs/host_steps.json
"""

import argparse
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import triglot
from benchmarks.harness import (
    Seconds,
    environment,
    interval,
    measure,
    print_table,
    time_ratio,
    write_json,
)
from triglot.core.host.trainer import HostProgram, HostTrainer
from triglot.core.loop.trainer import init_seeds

NUM_ENVS = 16


def times(name: str, rounds: int) -> tuple[Seconds, int]:
    """Time an update and its parts; give also its number of steps in each environment."""
    env: Any = triglot.make_env(name)
    agent = triglot.make_agent("ppo", env, backend="equinox", config={"num_envs": NUM_ENVS})
    trainer, length = HostTrainer(agent, env), agent.rollout_length
    state = init_seeds(trainer, jax.random.split(jax.random.key(0), 1), agent.hyper)
    with closing(HostProgram(trainer)) as program:
        program.compile(state)
        learn: Any = program._learn
        seen: list[Any] = []

        def keeping(agent_state: Any, trajectory: Any, key: Any) -> Any:
            seen[:] = [trajectory, np.asarray(key)]
            return learn(agent_state, trajectory, key)

        program._learn = keeping
        state, _ = program(state, 1)
        program._learn = learn
        trajectory, learn_key = seen
        runner, actor = program._runner, program._actor
        assert runner and actor
        states = {"update": state, "rest": jax.tree.map(lambda leaf: leaf.copy(), state)}
        act_key, obs, first = learn_key, runner.obs, runner.first
        actions = np.asarray(trajectory.action)

        def update() -> Any:
            states["update"], metrics = program(states["update"], 1)
            return metrics

        def steps() -> None:
            for time in range(length):
                runner.step(actions[:, time])

        def rest() -> Any:
            state = states["rest"]
            read = actor.of(state.agent)
            for _ in range(length):
                np.asarray(actor.call(read, state.carry, act_key, obs, first)[0])
            agent_state, metrics = learn(state.agent, trajectory, learn_key)
            states["rest"] = replace(state, agent=agent_state)
            return metrics

        thunks: dict[str, Callable[[], Any]] = {"update": update, "steps": steps, "rest": rest}
        return measure(thunks, rounds=rounds, warmups=2), length


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environments", nargs="+", help="such as envpool:Ant-v5")
    parser.add_argument("--rounds", type=int, default=20, help="timed rounds (default 20)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # as `triglot train` does
    rows, found = [], {}
    for name in options.environments:
        seconds, length = times(name, options.rounds)
        longer = np.maximum(seconds["steps"], seconds["rest"])
        share = time_ratio({**seconds, "longer": longer}, "update", "longer")
        medians = [1000 * interval(seconds[part]).median for part in ("update", "steps", "rest")]
        rate = NUM_ENVS * length / interval(seconds["update"]).median
        rows.append([name, *(f"{one:.0f}" for one in medians), share, f"{rate:,.0f}"])
        found[name] = {"seconds": seconds, "to_longer": share}
    print_table(
        ["environment", "update, ms", "steps", "policy, learning", "update / longer", "steps/s"],
        rows,
    )
    if options.out:
        write_json(options.out, {"found": found, "environment": environment()})


if __name__ == "__main__":
    main()
