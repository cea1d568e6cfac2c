"""CleanRL (https://github.com/vwxyzjn/cleanrl): PPO in PyTorch and DQN in Flax, on Gymnasium.

Each of its files is a script that trains when it is run. It runs as it is, in a child process with
the interpreter of the clone's own environment, `.venv` in the clone; see `cleanrl_script.py`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ..child import Child, Ended
from .contender import Contender, NotInstalled, Train, revision_of

SCRIPTS = {"ppo": "ppo.py", "dqn": "dqn_jax.py"}
ACTIVATIONS = {"ppo": jnp.tanh, "dqn": jax.nn.relu}


def contender(
    algorithm: str, env_id: str, total_steps: int, options: Mapping[str, Any], folder: Path | None
) -> Contender:
    """Start CleanRL's process.

    Args:
      algorithm: `ppo` or `dqn`.
      env_id: of Gymnasium.
      total_steps: environment steps of each seed.
      options: of the script, by the name of its option without the dashes.
      folder: of its repository.

    Raises:
      NotInstalled: if the folder does not hold the script and an interpreter that can run it.
    """
    if folder is None or not (folder / "cleanrl" / SCRIPTS[algorithm]).exists():
        raise NotInstalled("give --cleanrl the folder of a clone of its repository")
    child, versions = _start(folder, folder / "cleanrl" / SCRIPTS[algorithm])
    given = {"env-id": env_id, "total-timesteps": total_steps, **options}
    words = [f"--{name}={value}" for name, value in given.items()]

    def compile(keys: jax.Array) -> tuple[Train, float]:
        warmup = [*words, f"--total-timesteps={max(total_steps // 10, 1)}"]
        child.ask(json.dumps(warmup))
        seeds = jax.vmap(jax.random.bits)(keys[:, 0]) >> 1  # the largest is 2**31 - 1

        def train(index: int) -> Any:
            layers = child.ask(json.dumps([*words, f"--seed={seeds[index]}"]))
            return [[jnp.asarray(array)[None] for array in layer] for layer in layers]

        return train, 0.0

    def greedy(layers: Any, obs: jax.Array) -> jax.Array:
        for kernel, bias in layers[:-1]:
            obs = ACTIVATIONS[algorithm](obs @ kernel + bias)
        kernel, bias = layers[-1]
        return jnp.argmax(obs @ kernel + bias, axis=-1)

    found = " ".join(f"{name} {text}" for name, text in versions.items())
    return Contender(compile=compile, act=greedy, version=f"{revision_of(folder)} ({found})")


def _start(folder: Path, script: Path) -> tuple[Child, dict[str, str]]:
    """Start the interpreter; returns its process and the versions there."""
    runner = Path(__file__).with_name("cleanrl_script.py")
    command = [folder / ".venv" / "bin" / "python", "-W", "ignore", runner, script]
    try:
        child = Child("CleanRL's process", command)
        return child, child.reply()
    except (OSError, Ended) as error:
        raise NotInstalled(f"its environment is to be at {folder / '.venv'}") from error
