"""Peers that train in a child process with an interpreter of their own.

CleanRL (https://github.com/vwxyzjn/cleanrl): PPO in PyTorch and DQN in Flax. Each of its files is a
script that trains when it is run; it runs as it is, with the interpreter in `.venv` of the clone.

Stable-Baselines3 (https://github.com/DLR-RM/stable-baselines3): PPO in PyTorch, with the
interpreter that is given: `python -m venv sb3`, `sb3/bin/pip install stable-baselines3
'gymnasium[mujoco]>=1.3,<1.4'`.

Both step Gymnasium's environments, and reply the trained policy's layers.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ..child import Child, Ended
from .contender import Contender, NotInstalled, Train, clone, revision_of
from .row import Row

ROOT = Path(__file__).resolve().parents[2]
RUN = ("-W", "ignore", "-m", "benchmarks.peers.foreign_script")
Layers: TypeAlias = list[list[jax.Array]]  # kernels and biases, `[1, ...]`
CLEANRL_SCRIPTS = {"ppo": "ppo.py", "dqn": "dqn_jax.py"}


def cleanrl(row: Row, total_steps: int, folder: Path | None) -> Contender:
    """Start CleanRL's process.

    Args:
      row: of PPO or DQN.
      total_steps: environment steps of each seed.
      folder: of its repository.

    Raises:
      NotInstalled: if the folder does not hold the script and an interpreter that can run it.
    """
    folder = clone(folder, "cleanrl", f"cleanrl/{CLEANRL_SCRIPTS[row.algorithm]}").absolute()
    given = {"env-id": row.env_id}
    if row.algorithm == "ppo":
        given |= row.given("CleanRL")
    else:
        steps = row.config["rollout_length"] * row.config["num_envs"]
        given["train-frequency"] = steps
        given["target-network-frequency"] = row.setting["target_update_period"] * steps
    script = folder / "cleanrl" / CLEANRL_SCRIPTS[row.algorithm]
    python = folder / ".venv" / "bin" / "python"
    missing = f"its environment is to be at {folder / '.venv'}"
    made = _contender(row, total_steps, [python, *RUN, script], given, missing)
    return replace(made, version=f"{revision_of(folder)} ({made.version})")


def sb3(row: Row, total_steps: int, python: Path | None) -> Contender:
    """Start the process of Stable-Baselines3.

    Args:
      row: of PPO.
      total_steps: environment steps of each seed.
      python: an interpreter that has it.

    Raises:
      NotInstalled: if there is no such interpreter, or it lacks the package.
    """
    missing = "give --sb3 an interpreter that has it, see benchmarks/peers/foreign.py"
    if python is None:
        raise NotInstalled(missing)
    given = {**row.setting, "env-id": row.env_id}
    return _contender(row, total_steps, [python.absolute(), *RUN], given, missing)


def _contender(
    row: Row, total_steps: int, command: list[str | Path], given: Mapping[str, Any], missing: str
) -> Contender:
    """Build the contender of a process that replies its versions, then layers to each request."""

    def request(seed: jax.Array, steps: int) -> dict[str, Any]:
        return {**given, "seed": int(seed), "total-timesteps": steps}

    try:
        child = Child(f"The process of {row.peers[0]}", command, cwd=ROOT)
        versions: Mapping[str, str] = child.reply()
    except (OSError, Ended) as error:
        raise NotInstalled(missing) from error

    def compile(keys: jax.Array) -> tuple[Train, float]:
        seeds = jax.vmap(jax.random.bits)(keys[:, 0]) >> 1  # the largest is 2**31 - 1
        child.ask(request(seeds[0], max(total_steps // 10, 1)))  # a warmup

        def train(index: int) -> Layers:
            layers = child.ask(request(seeds[index], total_steps))
            return [[jnp.asarray(array)[None] for array in layer] for layer in layers]

        return train, 0.0

    def greedy(layers: Layers, obs: jax.Array) -> jax.Array:
        activation = jax.nn.relu if row.algorithm == "dqn" else jnp.tanh
        for kernel, bias in layers[:-1]:
            obs = activation(obs @ kernel + bias)
        kernel, bias = layers[-1]
        return jnp.argmax(obs @ kernel + bias, axis=-1)

    version = " ".join(f"{name} {text}" for name, text in versions.items())
    return Contender(compile=compile, act=greedy, version=version)
