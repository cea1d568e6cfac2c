"""Estimate the memory of a run before anything is allocated, and compare it with what is free.

The estimate is a lower bound, so that nothing that would fit is refused. It counts arrays that must
exist at the same time, and neither the temporary arrays of a gradient step nor compiled programs.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import jax
import psutil

from ...core.agent import PolicyInput
from ...core.errors import TriglotError
from ...core.experiment import Experiment
from ...core.learner import LearnerState
from ...core.loop.sharding import Sharding, padded
from ...core.loop.state import RunnerState
from ...core.loop.trainer import TrainerLike
from ...core.network import Variables
from ...core.rl.replay import ReplayState
from ...core.specs import zeros
from ...core.types import PyTree, abstract_key

Parts: TypeAlias = dict[str, int]  # bytes by name

# What to lower, by part.
REMEDIES = {
    "parameters": "the sizes of the layers",
    "optimizer": "the sizes of the layers",
    "replay": "--buffer-size",
    "rollout": "--num-envs or --rollout-length",
    "environments": "--num-envs",
    "Python environments": "--num-envs",
    "evaluation": "--eval-episodes",
    "metrics": "--total-steps",
    "episodes": "--episodes or --max-steps",
}
ON_HOST = ("metrics", "Python environments")
REPLICATED = ("parameters", "optimizer", "replay")
# An episode that is played: two keys, its return, its length and two flags.
EPISODE_BYTES = 26
# Two metrics of every line of metrics.jsonl are read for the learning curve, as float32.
METRIC_BYTES = 2 * 4
# A Python environment and its wrappers take at least this much: CartPole 5.8 kB, FrozenLake 26 kB.
PYTHON_BYTES = 5_000


def of_training(experiment: Experiment, *, num_lines: int, eval_episodes: int) -> Parts:
    """Estimate the memory of a training of all seeds; nothing is computed.

    Args:
      experiment: on one device.
      num_lines: updates per seed whose metrics are written.
      eval_episodes: episodes per seed after the training, which run at the same time.
    """
    trainer, state, num_seeds = experiment.trainer, experiment.shapes, experiment.num_seeds
    parts = of_state(experiment)
    rollout = _rollout_bytes(trainer, state)
    played = _env_bytes(trainer, state) + nbytes(state.carry)
    evaluation = eval_episodes * (played // trainer.agent.num_envs + num_seeds * EPISODE_BYTES)
    # The rollout is dropped before the evaluation.
    larger = {"rollout": rollout} if rollout > evaluation else {"evaluation": evaluation}
    return {**parts, **larger, "metrics": num_lines * num_seeds * METRIC_BYTES}


def among_devices(parts: Parts, sharding: Sharding | None, num_seeds: int) -> Parts:
    """Count what several devices hold together, or one of them that has memory of its own.

    Args:
      parts: of the training on one device.
      sharding: how it is divided; None for one device.
      num_seeds: `S`.
    """
    if sharding is None:
        return parts
    number = sharding.num_devices
    if sharding.shard == "seeds":
        rows = padded(num_seeds, number)
        parts = {name: size * rows // num_seeds for name, size in parts.items()}
    if device_free() is None:  # parts of a CPU share the machine's memory
        copied = REPLICATED if sharding.shard == "envs" else ()
        return {name: size * (number if name in copied else 1) for name, size in parts.items()}
    # The first device makes the initial state of all.
    return {name: size // (number if name == "rollout" else 1) for name, size in parts.items()}


def nbytes(tree: PyTree) -> int:
    """Sum the bytes of arrays, which may be abstract."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def check(parts: Parts, *, num_seeds: int = 1, copies: int = 1) -> None:
    """Refuse what needs more memory than is free.

    Args:
      parts: bytes by name.
      num_seeds: `S`, for the advice.
      copies: how many processes need them at the same time.

    Raises:
      TriglotError: with the largest parts, and what to lower.
    """
    on_device = device_free()
    advice = " or --num-seeds" if num_seeds > 1 else ""
    if on_device is not None:
        others = {name: parts[name] for name in parts if name not in ON_HOST}
        where = f"of memory on {jax.devices()[0].device_kind}"
        _compare(others, on_device, copies, where, advice)
        parts = {name: parts[name] for name in parts if name in ON_HOST}
    _compare(parts, free(), copies, "of memory", advice)


def device_free() -> int | None:
    """Return the free bytes of the default device, or None if it uses the machine's memory."""
    stats = jax.devices()[0].memory_stats() or {}
    limit = stats.get("bytes_limit")
    return None if limit is None else limit - stats.get("bytes_in_use", 0)


def free(
    groups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int:
    """Return the free bytes of the machine, or of this process's control group if fewer.

    Args:
      groups: where the control groups are mounted.
      membership: the file that names this process's.
    """
    return min([psutil.virtual_memory().available, *_group_free(groups, membership)])


def _group_free(groups: Path, membership: Path) -> Iterable[int]:
    """Yield what each control group with a limit has left; cached files do not count as used."""
    try:
        names = [line.split(":", 2)[2] for line in membership.read_text().splitlines()]
    except (OSError, IndexError):
        return
    for root, limit, used in (
        (groups, "memory.max", "anon"),
        (groups / "memory", "memory.limit_in_bytes", "total_rss"),
    ):
        folders = {root / name.lstrip("/") for name in names}
        for folder in {root, *folders, *(up for f in folders for up in f.parents)}:
            try:
                most = int((folder / limit).read_text())
                lines = (folder / "memory.stat").read_text().splitlines()
                stat = dict(line.split() for line in lines)
                yield max(0, most - int(stat[used]))
            except (OSError, ValueError, KeyError):  # no such group, or "max"
                continue


def of_state(experiment: Experiment) -> Parts:
    """Estimate the memory of the state of all seeds, as a checkpoint holds it."""
    trainer, state = experiment.trainer, experiment.shapes
    parts: Parts = dict.fromkeys(("parameters", "optimizer", "replay", "environments"), 0)

    def is_part(node: object) -> bool:
        return isinstance(node, LearnerState | ReplayState | Variables)

    for node in jax.tree.leaves(state.agent, is_leaf=is_part):
        if isinstance(node, LearnerState):
            parts["parameters"] += nbytes(node.variables)
            parts["optimizer"] += nbytes(node.opt_state)
        else:
            parts["replay" if isinstance(node, ReplayState) else "parameters"] += nbytes(node)
    parts["environments"] += nbytes((state.env, state.carry))
    if trainer.steps_on_host:
        parts["Python environments"] = _env_bytes(trainer, state)
    return parts


def _env_bytes(trainer: TrainerLike, state: RunnerState) -> int:
    """Return the bytes of all environments' states, without the pool of initial states."""
    num_seeds = state.num_updates.shape[0]
    if trainer.steps_on_host:
        bytes_per_env = getattr(trainer.single_env, "bytes_per_env", PYTHON_BYTES)
        return num_seeds * trainer.agent.num_envs * bytes_per_env
    return nbytes((state.env.state, state.env.obs, state.env.action_mask))


def _rollout_bytes(trainer: TrainerLike, state: RunnerState) -> int:
    """Return the bytes of one rollout of all seeds."""
    agent, num_seeds = trainer.agent, state.num_updates.shape[0]
    if agent.online:  # it learns from each step at once
        return 0

    def act(state: RunnerState, key: jax.Array) -> PyTree:
        state_of_seed = jax.tree.map(lambda leaf: leaf[0], state)
        first = jax.numpy.ones((agent.num_envs,), bool)
        if trainer.steps_on_host:
            inputs = PolicyInput(obs=zeros(agent.obs_spec, agent.num_envs), first=first)
        else:
            inputs = PolicyInput.of(agent, state_of_seed.env, first)
        out = agent.act(state_of_seed.agent, state_of_seed.carry, inputs, key, explore=True)
        flags = (first, first, first, jax.numpy.zeros((agent.num_envs,)))
        return out.action, out.extras, flags, (inputs.obs, inputs.action_mask)

    action, extras, flags, policy_input = jax.eval_shape(act, state, abstract_key())
    return (
        num_seeds
        * agent.rollout_length
        * nbytes((action, extras, flags, policy_input, policy_input))
    )


def _compare(parts: Parts, limit: int, copies: int, where: str, advice: str) -> None:
    needed = copies * sum(parts.values())
    if needed <= limit:
        return
    ranked = sorted(parts, key=lambda name: parts[name], reverse=True)
    largest = [name for name in ranked if copies * parts[name] >= 0.05 * needed]
    listed = ", ".join(f"{name} {_gigabytes(copies * parts[name])}" for name in largest)
    at_once = f", {copies} processes together" if copies > 1 else ""
    raise TriglotError(
        f"this needs at least {_gigabytes(needed)} GB {where} ({listed}{at_once}), and "
        f"{_gigabytes(limit)} are free: lower {REMEDIES[largest[0]]}{advice}."
    )


def _gigabytes(number: int) -> str:
    """Format bytes as GB.

    >>> [_gigabytes(n) for n in (76_300_000_000, 1_250_000_000, 10**30)]
    ['76', '1.2', '1e+21']
    """
    size = number / 1e9
    return f"{size:.2g}" if size < 10 or size >= 1e6 else f"{size:,.0f}"
