"""Train on several devices of the CPU, in a process of its own, since JAX counts them once.

    python -m tests.core.loop.on_devices FOLDER --devices 8 --case ppo-envs --case ppo-seeds
    python -m tests.core.loop.on_devices FOLDER --devices 2 --case ppo-envs --process 0 --port 1234

For each case, the final numbers of the agents are written to FOLDER/CASE.npz; after
`--case NAME/one` those of a training on one device.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np

from triglot.core.garbage import collect_rarely

REPLAY = {"batch_size": 16, "buffer_size": 256, "learning_starts": 32, "hidden_sizes": (8,)}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": (
        "gymnax:CartPole-v1",
        {"rollout_length": 8, "num_minibatches": 2, "num_epochs": 2, "hidden_sizes": (8,)},
    ),
    "dqn": ("gymnax:CartPole-v1", {"rollout_length": 4, **REPLAY}),
    "q_learning": ("gridworld:3x3,max_steps=8", {"rollout_length": 4}),
    "sac": ("gymnax:Pendulum-v1", {"rollout_length": 4, "num_gradient_steps": 2, **REPLAY}),
}
NUM_ENVS, NUM_UPDATES = 16, 10


def main() -> None:
    """Train each case and write its numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--case", action="append", required=True)
    parser.add_argument("--process", type=int)
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    collect_rarely()
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    if given.process is None:
        jax.config.update("jax_num_cpu_devices", given.devices)
    else:
        address = f"localhost:{given.port}"
        jax.distributed.initialize(address, given.devices, given.process)
    assert jax.device_count() == given.devices
    for case in given.case:
        numbers = trained(case, given.devices)
        if not given.process:
            np.savez(given.folder / f"{case.replace('/', '-')}.npz", **numbers)


def trained(case: str, devices: int) -> dict[str, Any]:
    """Train a case, and return the final numbers of its agents by path."""
    import triglot
    from triglot.core.types import by_path

    name, _, where = case.partition("/")
    name, shard = name.split("-")
    env_name, config = CONFIGS[name]
    env = triglot.make_env(env_name)
    agent = triglot.make_agent(name, env, config={**config, "num_envs": NUM_ENVS})
    on: dict[str, Any] = {} if where == "one" else {"devices": devices, "shard": shard}
    result = triglot.train(
        agent,
        env,
        key=jax.random.key(0),
        total_steps=NUM_UPDATES * agent.config.steps_per_update,
        num_seeds=devices if shard == "seeds" else 2,
        **on,
    )
    assert all(array.shape[1] == NUM_UPDATES for array in result.metrics.values())
    return {path: np.asarray(leaf) for path, leaf in by_path(result.runner_state.agent).items()}


if __name__ == "__main__":
    main()
