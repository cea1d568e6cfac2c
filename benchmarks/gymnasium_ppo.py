"""PPO on CartPole-v1, or on a task of MuJoCo: triglot against Stable-Baselines3.

Both use one setting: 8 environments of CartPole-v1 or 16 of MuJoCo (`--env HalfCheetah-v5`), two
networks of 64-64 tanh units, Adam at a constant rate, clip 0.2, GAE(0.99, 0.95), global norm 0.5,
observations and rewards as they are; and either triglot's defaults (`--setting triglot`:
rollouts of 128, 4 epochs of 4 minibatches, rate 2.5e-4, value clipping, entropy bonus 0.01) or
those of Stable-Baselines3 (`--setting sb3`: rollouts of 2,048, 10 epochs of 256 minibatches, rate
3e-4, no entropy bonus). triglot steps Gymnasium's own vector of CartPoles, and, as
Stable-Baselines3 does, one environment after the other ("sync"). It also trains five seeds at once,
each in its own 8 environments, as `--num-seeds 5` does; its steps/s count all seeds. MuJoCo's tasks
are stepped by EnvPool and by Gymnasium in triglot, and in Stable-Baselines3 one after the other or
by one process each ("processes"). One difference remains there: triglot squashes actions by tanh
into their bounds, and Stable-Baselines3 clips them. Each program
is a separate process. In each round, one program runs at a time, in a new random order, and
continues its training for the same number of steps per seed. The table includes greedy returns.

Stable-Baselines3 is not a dependency of triglot: install it in a separate virtual environment,
`python -m venv sb3 && sb3/bin/pip install stable-baselines3 'gymnasium>=1.3,<1.4'`, and pass its
interpreter.

python -m benchmarks.gymnasium_ppo --sb3 sb3/bin/python --out runs/gymnasium_ppo.json
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NUM_ENVS = {"CartPole-v1": 8}  # 16 of other tasks
EPISODES = 64
AT_ONCE = 5  # seeds


@dataclass(frozen=True)
class Setting:
    """The options that both programs get."""

    rollout_length: int
    num_epochs: int
    num_minibatches: int
    learning_rate: float
    entropy_coef: float
    clip_value: bool
    updates: int  # default number in a round


SETTINGS = {
    "triglot": Setting(
        rollout_length=128,
        num_epochs=4,
        num_minibatches=4,
        learning_rate=2.5e-4,
        entropy_coef=0.01,
        clip_value=True,
        updates=12,
    ),
    "sb3": Setting(
        rollout_length=2048,
        num_epochs=10,
        num_minibatches=256,
        learning_rate=3e-4,
        entropy_coef=0.0,
        clip_value=False,
        updates=1,
    ),
}


class Triglot:
    """triglot's PPO; the update and the policy are compiled in the constructor."""

    def __init__(self, env: str, how: str, num_seeds: int, seed: int, setting: Setting) -> None:
        import jax

        jax.config.update("jax_cpu_enable_async_dispatch", False)  # as `triglot train` does
        import triglot
        from triglot.core.host.trainer import HostProgram, HostTrainer
        from triglot.core.loop.trainer import init_seeds

        self.key = jax.random.key(seed)
        suite, _, mode = how.partition("/")
        self.env: Any = triglot.make_env(
            f"{suite}:{env}", **({"vectorization_mode": mode} if mode else {})
        )
        unscaled = {} if env in NUM_ENVS else {"normalize_obs": False, "scale_rewards": False}
        self.agent = triglot.make_agent(
            "ppo",
            self.env,
            backend="equinox",
            config={
                "num_envs": NUM_ENVS.get(env, 16),
                **unscaled,
                "rollout_length": setting.rollout_length,
                "num_epochs": setting.num_epochs,
                "num_minibatches": setting.num_minibatches,
                "clip_value": setting.clip_value,
            },
            hyper={
                "learning_rate": setting.learning_rate,
                "decay_updates": float("inf"),
                "entropy_coef": setting.entropy_coef,
            },
        )
        trainer = HostTrainer(self.agent, self.env)
        keys = jax.random.split(self.key, num_seeds)
        self.state = init_seeds(trainer, keys, self.agent.hyper)
        self.program = HostProgram(trainer)
        self.program.compile(self.state)

    def train(self, num_updates: int) -> None:
        import jax

        self.state, _ = self.program(self.state, num_updates)
        jax.block_until_ready(self.state.num_updates)

    def greedy_return(self) -> float:
        import jax

        import triglot

        returns = []
        for index in range(len(self.state.num_updates)):
            state = jax.tree.map(lambda leaf, i=index: leaf[i], self.state.agent)
            played = triglot.evaluate(self.agent, self.env, state, self.key, num_episodes=EPISODES)
            returns.append(played.returns)
        return float(np.mean(returns))

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        return {name: version(name) for name in ("jax", "gymnasium", "equinox")}


class StableBaselines3:
    """Stable-Baselines3's PPO with some PyTorch threads (1 is the fastest at this size)."""

    def __init__(self, env: str, how: str, num_seeds: int, seed: int, setting: Setting) -> None:
        assert num_seeds == 1  # it cannot train several at once
        import torch  # pyright: ignore[reportMissingImports]
        from stable_baselines3 import PPO  # pyright: ignore[reportMissingImports]
        from stable_baselines3.common import env_util, vec_env  # pyright: ignore[reportMissingImports]

        threads, _, kind = how.partition("/")
        torch.set_num_threads(int(threads))
        num_envs = NUM_ENVS.get(env, 16)
        self.steps_per_update = num_envs * setting.rollout_length
        vector = vec_env.SubprocVecEnv if kind == "processes" else vec_env.DummyVecEnv
        self.env = env_util.make_vec_env(env, num_envs, seed=seed, vec_env_cls=vector)
        self.model = PPO(
            "MlpPolicy",
            self.env,
            n_steps=setting.rollout_length,
            batch_size=self.steps_per_update // setting.num_minibatches,
            n_epochs=setting.num_epochs,
            learning_rate=setting.learning_rate,
            clip_range=0.2,
            clip_range_vf=0.2 if setting.clip_value else None,
            ent_coef=setting.entropy_coef,
            policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
            seed=seed,
            device="cpu",
        )

    def train(self, num_updates: int) -> None:
        self.model.learn(num_updates * self.steps_per_update, reset_num_timesteps=False)

    def greedy_return(self) -> float:
        from stable_baselines3.common import evaluation  # pyright: ignore[reportMissingImports]

        returns, _ = evaluation.evaluate_policy(self.model, self.env, EPISODES)
        return float(returns)

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        return {name: version(name) for name in ("stable-baselines3", "torch", "gymnasium")}


class Program(NamedTuple):
    """How to start a program.

    Attributes:
      how: `suite` or `suite/vectorization_mode`; of Stable-Baselines3 the number of PyTorch
        threads, or `threads/processes`.
    """

    python: str
    kind: str
    how: str
    num_seeds: int = 1


def programs_for(env: str, sb3: str, threads: str) -> dict[str, Program]:
    """Choose the programs to compare; `Stable-Baselines3` is the baseline."""
    one_by_one = Program(sb3, "sb3", threads)
    if env not in NUM_ENVS:
        return {
            "EnvPool": Program(sys.executable, "triglot", "envpool"),
            "sync": Program(sys.executable, "triglot", "gymnasium/sync"),
            "Stable-Baselines3": one_by_one,
            "Stable-Baselines3, processes": Program(sb3, "sb3", f"{threads}/processes"),
        }
    own = "gymnasium/vector_entry_point"
    return {
        "own vector": Program(sys.executable, "triglot", own),
        f"own vector, {AT_ONCE} seeds": Program(sys.executable, "triglot", own, AT_ONCE),
        "sync": Program(sys.executable, "triglot", "gymnasium/sync"),
        "Stable-Baselines3": one_by_one,
    }


def serve(env: str, kind: str, how: str, num_seeds: int, seed: int, setting: Setting) -> None:
    """Read numbers of updates from lines of the input, train, and print the seconds taken."""
    make = Triglot if kind == "triglot" else StableBaselines3
    program = make(env, how, num_seeds, seed, setting)
    print(json.dumps(program.versions()), flush=True)
    for line in sys.stdin:
        if line.strip() == "end":
            print(json.dumps(program.greedy_return()), flush=True)
            return
        start = time.perf_counter()
        program.train(int(line))
        print(json.dumps(time.perf_counter() - start), flush=True)


def command_of(program: Program, *, env: str, seed: int, setting: str) -> list[str]:
    """Give the command that serves a program."""
    serving = ["--serve", program.kind, program.how, str(program.num_seeds), str(seed)]
    file = ["-m", "benchmarks.gymnasium_ppo"] if program.kind == "triglot" else [__file__]
    return [program.python, *file, *serving, "--setting", setting, "--env", env]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments, those of the command line where none are given, and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sb3", help="the interpreter of an environment with Stable-Baselines3")
    parser.add_argument("--env", default="CartPole-v1", help="Gymnasium's id (default CartPole-v1)")
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds (default 10)")
    parser.add_argument(
        "--updates", type=int, help="updates per round (default 12, or 1 with --setting sb3)"
    )
    parser.add_argument(
        "--setting", choices=SETTINGS, default="triglot", help="whose defaults (default triglot)"
    )
    parser.add_argument(
        "--seeds", type=int, default=1, help="trainings of each program (default 1)"
    )
    parser.add_argument(
        "--threads", default="1", help="PyTorch threads (default 1, the fastest here)"
    )
    parser.add_argument(
        "--beside", nargs="+", metavar="PROGRAM", help="only these beside SB3 (default all)"
    )
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        kind, how, num_seeds, seed = options.serve
        return serve(options.env, kind, how, int(num_seeds), int(seed), SETTINGS[options.setting])
    if options.sb3 is None or not _has_sb3(options.sb3):
        parser.error(
            "give --sb3 the interpreter of an environment with Stable-Baselines3: `python -m venv "
            "sb3 && sb3/bin/pip install stable-baselines3 'gymnasium>=1.3,<1.4'`."
        )
    _compare(options)


def _compare(options: argparse.Namespace) -> None:
    from tqdm import tqdm

    from .child import Child
    from .harness import environment, interval, print_table, time_ratio, write_json

    setting = SETTINGS[options.setting]
    updates = options.updates or setting.updates
    programs = programs_for(options.env, options.sb3, options.threads)
    chosen = {"Stable-Baselines3", *(options.beside or programs)}
    if unknown := chosen - programs.keys():
        sys.exit(f"--beside: no program {', '.join(unknown)} here; choose from {list(programs)}.")
    programs = {name: one for name, one in programs.items() if name in chosen}
    rng = np.random.default_rng(0)
    kept: dict[str, list[float]] = {name: [] for name in programs}  # per round and seed
    returns: dict[str, list[float]] = {name: [] for name in programs}
    versions = {}
    for seed in range(options.seeds):
        given = {"env": options.env, "seed": seed, "setting": options.setting}
        with ExitStack() as stack:
            running = {
                name: stack.enter_context(Child(name, command_of(program, **given)))
                for name, program in programs.items()
            }
            versions = {name: process.reply() for name, process in running.items()}
            for index in tqdm(range(options.rounds + 1), desc=f"seed {seed}", unit="round"):
                for name in rng.permutation(list(running)):
                    seconds = running[name].ask(str(updates))
                    if index:  # the first round is a warmup
                        kept[name].append(seconds / programs[name].num_seeds)
            for name, process in running.items():
                returns[name].append(process.ask("end"))
    seconds = {name: np.asarray(values) for name, values in kept.items()}
    steps = updates * NUM_ENVS.get(options.env, 16) * setting.rollout_length
    faster = {
        name: time_ratio(seconds, "Stable-Baselines3", name)
        for name in programs
        if name != "Stable-Baselines3"
    }
    rates = {name: interval(steps / values) for name, values in seconds.items()}
    budget = (options.rounds + 1) * steps  # of each seed
    print_table(
        ["program", "steps/s", "times as fast as SB3", f"greedy return at {budget:,} steps"],
        [
            [
                name,
                f"{rates[name].median:,.0f} [{rates[name].low:,.0f}, {rates[name].high:,.0f}]",
                faster.get(name, ""),
                ", ".join(f"{value:.1f}" for value in returns[name]),
            ]
            for name in programs
        ],
    )
    if options.out:
        found = {"seconds": seconds, "faster": faster, "rates": rates, "returns": returns}
        how = {
            "env": options.env,
            "setting": options.setting,
            "versions": versions,
            "environment": environment(),
            "steps_per_round": steps,
        }
        write_json(options.out, {**found, **how})


def _has_sb3(python: str) -> bool:
    try:
        found = subprocess.run([python, "-c", "import stable_baselines3"], capture_output=True)
    except OSError:
        return False
    return found.returncode == 0


if __name__ == "__main__":
    main()
