"""Small runs to attack, and what must be equal afterwards."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

NETWORK = "--hidden-sizes 8"
# One run of each algorithm and loop, which takes some seconds with a warm compilation cache.
RUNS = {
    "ppo": f"ppo probe:two-step --num-seeds 2 --num-envs 2 --rollout-length 8 {NETWORK} "
    "--num-minibatches 2 --num-epochs 1 --total-steps 64_000",
    "dqn": f"dqn probe:two-step --num-seeds 2 --num-envs 2 {NETWORK} --buffer-size 256 "
    "--learning-starts 64 --batch-size 16 --total-steps 8_000",
    "sac": f"sac gymnax:Pendulum-v1 --num-envs 2 {NETWORK} --buffer-size 256 "
    "--learning-starts 64 --batch-size 16 --total-steps 2_000",
    "q_learning": "q_learning gridworld:8x8 --num-seeds 2 --total-steps 64_000",
    "population": f"ppo probe:two-step --num-envs 2 --rollout-length 8 {NETWORK} "
    "--num-minibatches 2 --num-epochs 1 --total-steps 32_000 --population 4 --exploit-every 7 "
    "--learning-rate 1e-3 --perturb learning_rate=log:1e-4..1e-2,entropy_coef",
    "host": f"ppo gymnasium:CartPole-v1 --num-envs 2 --rollout-length 8 {NETWORK} "
    "--num-minibatches 2 --num-epochs 1 --total-steps 4_000",
}
# A run of 8 updates and as many checkpoints.
SMALL = (
    "train ppo probe:two-step --num-seeds 2 --num-envs 2 --rollout-length 8 --num-minibatches 2 "
    "--num-epochs 1 --hidden-sizes 8 --total-steps 128 --eval-episodes 2 "
    "--checkpoint-seconds 0.000001"
)
STEPS_PER_UPDATE = 16  # of SMALL
COMMON = "--eval-episodes 2 --checkpoint-seconds 0.01"


def start(command: str) -> subprocess.Popen[str]:
    """Start `triglot` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "triglot", *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(command: str) -> str:
    """Run `triglot` to its end, which must be a good one, and return what it printed."""
    process = start(command)
    text, _ = process.communicate()
    assert process.returncode == 0, text
    return text


def fingerprint(run: Path) -> dict[str, str]:
    """Hash the last checkpoint's arrays and the metrics of a run."""
    last = max(path for path in (run / "checkpoints").iterdir() if path.name.isdigit())
    metrics = (run / "metrics.jsonl").read_bytes()
    return {
        "update": last.name,
        "arrays": arrays_hash(last),
        "metrics": hashlib.sha256(metrics).hexdigest(),
        "evaluation": json.dumps(json.loads((run / "summary.json").read_text())["evaluation"]),
    }


def arrays_hash(checkpoint: Path) -> str:
    """Hash every array of a checkpoint, read by orbax without the run's code."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        tree = checkpointer.restore(checkpoint.absolute())
    found = hashlib.sha256()

    def add(path: str, node: object) -> None:
        if isinstance(node, dict):
            for name in sorted(node):
                add(f"{path}/{name}", node[name])
        elif isinstance(node, list | tuple):
            for index, child in enumerate(node):
                add(f"{path}/{index}", child)
        elif node is not None:
            if isinstance(node, jax.Array) and jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
                node = jax.random.key_data(node)
            array = np.asarray(node)
            found.update(f"{path}{array.shape}{array.dtype}".encode() + array.tobytes())

    add("", tree)
    return found.hexdigest()
