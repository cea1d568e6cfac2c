"""Abstraction overhead: PPO through triglot on each library, against PPO in plain JAX.

All programs train the same PPO with the same setting (CartPole-v1, 4 environments x 128 steps, 4
epochs x 4 minibatches, two 64-64 tanh networks), each from its own initial state, in one process,
interleaved (`benchmarks.harness`). Run it from the repository's root, pinned to one core: other
processes then disturb it least, and XLA's threads do not add noise:

    taskset -c 0 python -m benchmarks.seams
"""

import functools
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

from . import harness, plain_ppo

PLAIN = "plain"
ONE_PASS = "plain, one pass of the critic"
SQUARE = "matmul 2048x2048 @ 2048x2048"
LAYER = "matmul 128x64 @ 64x64"


@dataclass(frozen=True)
class Program:
    """A jitted function of a training state, and the state every call starts from."""

    function: Any
    state: Any


def plain_program(config: plain_ppo.Config, num_updates: int) -> Program:
    """Build a program of `num_updates` updates in plain JAX."""
    function = jax.jit(lambda state: plain_ppo.train(config, num_updates, state))
    return Program(function, plain_ppo.init(config, jax.random.key(0)))


def triglot_program(
    backend: str,
    arithmetic: str,
    config: plain_ppo.Config,
    num_updates: int,
    *,
    vmapped: bool,
    num_seeds: int = 1,
) -> Program:
    """Build a program of `num_updates` updates through triglot; `vmapped` over seeds."""
    env = make_env("gymnax:CartPole-v1")
    numbers = asdict(config)
    width = numbers.pop("hidden_size")

    def given(options: type) -> dict[str, Any]:
        return {f.name: numbers[f.name] for f in fields(options) if f.name in numbers}

    agent = make_agent(
        "ppo",
        env,
        backend=backend,
        arithmetic=arithmetic,
        config=given(PPO.Config) | {"hidden_sizes": (width, width)},
        hyper={name: float(number) for name, number in given(PPO.Hyperparams).items()},
    )
    trainer = Trainer(agent, VectorEnvironment(env, agent.num_envs), chunk_size=num_updates)
    init: Callable = trainer.init
    run: Callable = trainer.train_chunk
    key = jax.random.key(0)
    if vmapped:
        # Not vmapped: see `triglot.core.loop.trainer.init_seeds`.
        init, run = functools.partial(jax.lax.map, trainer.init), jax.vmap(run)
        key = jax.random.split(key, num_seeds)
    return Program(jax.jit(run), jax.jit(init)(key))


def matmul_flop(config: plain_ppo.Config) -> float:
    """Count the floating-point operations of one update's matrix products.

    The actor reads each sample once in the rollout, the critic twice after it (the observation, and
    its true successor, which only the plain program reads at every step), both once more per epoch.
    The backward pass costs one forward pass for the weights, and another for the inputs of every
    layer but the first.
    """

    def forward(outputs: int) -> float:
        return 2.0 * config.hidden_size * (4 + config.hidden_size + outputs)

    actor, critic = forward(plain_ppo.ENV.num_actions), forward(1)
    first_layer = 2.0 * config.hidden_size * 4
    gradient_step = 3.0 * (actor + critic) - 2.0 * first_layer
    per_sample = actor + 2.0 * critic + config.num_epochs * gradient_step
    return per_sample * config.steps_per_update


def compile_all(programs: dict[str, Program], rounds: int) -> dict[str, list[harness.Compiled]]:
    """Trace and compile every program `rounds` times from cleared caches, interleaved."""
    rng = np.random.default_rng(0)
    made: dict[str, list[harness.Compiled]] = {name: [] for name in programs}
    order = [name for _ in range(rounds) for name in rng.permutation(list(programs))]
    for name in tqdm(order, desc="compile"):
        jax.clear_caches()
        program = programs[name]
        made[name].append(harness.compile_timed(program.function, program.state))
    return made


def main(
    backends: tuple[str, ...] = ("haiku", "linen", "nnx", "equinox"),
    arithmetics: tuple[Literal["native", "leaf_order", "canonical"], ...] = ("native", "canonical"),
    rounds: int = 20,
    num_updates: int = 64,
    compile_rounds: int = 3,
    vmapped: bool = False,
    out: Path = Path("benchmarks/results/seams.json"),
) -> None:
    """Measure every backend against plain JAX and write a JSON file.

    Args:
      backends: libraries to measure.
      arithmetics: of each library.
      rounds: pairs; each round runs every program once.
      num_updates: PPO updates in one run.
      compile_rounds: times each program is compiled, each time from cleared caches.
      vmapped: also measure each under `vmap` over one seed, as `triglot.train` runs it.
      out: the JSON file, overwritten.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    config = plain_ppo.Config()
    one_pass = replace(config, second_pass=False)
    programs = {
        PLAIN: plain_program(config, num_updates),
        ONE_PASS: plain_program(one_pass, num_updates),
    }
    for backend in backends:
        for arithmetic in arithmetics:
            for batched in (False, True) if vmapped else (False,):
                name = f"{backend} {arithmetic}" + (", vmap 1" if batched else "")
                programs[name] = triglot_program(
                    backend, arithmetic, config, num_updates, vmapped=batched
                )

    before = harness.environment()
    made = compile_all(programs, compile_rounds)
    square, square_flop = harness.matmul_thunk(2048, 2048, 1)
    layer, layer_flop = harness.matmul_thunk(128, 64, 5000)
    thunks = {SQUARE: square, LAYER: layer}
    metrics: dict[str, Any] = {}

    def thunk(name: str) -> harness.Thunk:
        def run() -> Any:
            state, metrics[name] = made[name][-1].call(programs[name].state)
            return state

        return run

    thunks |= {name: thunk(name) for name in programs}
    seconds = harness.measure(thunks, rounds=rounds)

    steps = num_updates * config.steps_per_update
    flop = {name: num_updates * matmul_flop(config) for name in programs}
    flop |= {SQUARE: square_flop, LAYER: layer_flop}
    result = {
        "environment": before,
        "load_average_after": harness.environment()["load_average"],
        "rounds": rounds,
        "updates_per_run": num_updates,
        "config": config,
        "matmul_gflop_per_second": {
            name: harness.interval(flop[name] / seconds[name] / 1e9) for name in (SQUARE, LAYER)
        },
        "programs": {
            name: {
                "time_ratio": harness.time_ratio(seconds, name, PLAIN),
                "steps_per_second": harness.interval(steps / seconds[name]),
                "matmul_gflop_per_second": harness.interval(flop[name] / seconds[name] / 1e9),
                "share_of_layer_matmul": harness.interval(
                    (flop[name] / seconds[name]) / (layer_flop / seconds[LAYER])
                ),
                "episode_return": float(np.nanmean(metrics[name]["episode_return"])),
                "trace_seconds": [c.trace_seconds + c.lower_seconds for c in made[name]],
                "compile_seconds": [c.compile_seconds for c in made[name]],
            }
            for name in programs
        },
        "seconds": seconds,
    }
    harness.write_json(out, result)
    report(result)
    print(f"written to {out}")


def report(result: dict[str, Any]) -> None:
    """Print the result as a table."""
    rows = [
        [
            name,
            entry["time_ratio"],
            f"{entry['steps_per_second'].median / 1e3:.1f} k",
            f"{entry['matmul_gflop_per_second'].median:.1f}",
            f"{entry['share_of_layer_matmul'].median:.0%}",
            f"{statistics.median(entry['trace_seconds']):.2f}",
            f"{statistics.median(entry['compile_seconds']):.2f}",
            f"{entry['episode_return']:.0f}",
        ]
        for name, entry in result["programs"].items()
    ]
    header = ["program", "time ratio [95%]", "steps/s", "GFLOP/s", "of layer"]
    harness.print_table([*header, "trace s", "compile s", "return"], rows)
    for name, value in result["matmul_gflop_per_second"].items():
        print(f"{name}: {value.median:.0f} GFLOP/s")


if __name__ == "__main__":
    tyro.cli(main)
