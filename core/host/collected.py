"""Collected steps of host environments: joined over time and groups, checked, and counted."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from ..errors import TriglotError
from ..types import PyTree

Metrics: TypeAlias = dict[str, np.ndarray]


def over_time(steps: Sequence[PyTree]) -> PyTree:
    """Stack `T` steps `[S, ...]` on the host to `[S, T, ...]`."""

    def stack(*leaves: Any) -> np.ndarray:
        # Several times as fast as np.stack for small arrays.
        arrays = np.concatenate([np.asarray(leaf) for leaf in leaves])
        return arrays.reshape(len(leaves), *np.shape(leaves[0])).swapaxes(0, 1)

    return jax.tree.map(stack, *steps)


def over_groups(groups: Sequence[Sequence[PyTree]]) -> PyTree:
    """Stack the `T` steps `[S, N, ...]` of each of `G` groups to `[S, T, G * N, ...]`."""
    if len(groups) == 1:
        return over_time(groups[0])

    def join(*leaves: Any) -> np.ndarray:
        arrays = np.concatenate([np.asarray(leaf) for leaf in leaves])
        num_seeds, num_envs, *shape = np.shape(leaves[0])
        arrays = arrays.reshape(-1, len(groups), num_seeds, num_envs, *shape)
        return np.moveaxis(arrays, 2, 0).reshape(num_seeds, -1, len(groups) * num_envs, *shape)

    return jax.tree.map(join, *(step for steps in zip(*groups, strict=True) for step in steps))


def check_finite(name: str, seen: dict[str, Any], num_steps: int) -> None:
    """Reject NaN and infinite rewards and observations in the last steps, `[S, T, N, ...]`.

    Args:
      name: the environment's.
      seen: `reward`, `next_obs` and `obs`.
      num_steps: steps taken in each environment, including these.

    Raises:
      TriglotError: with the first such step.
    """
    for part in ("reward", "next_obs", "obs"):
        for leaf in jax.tree.leaves(seen[part]):
            if leaf.dtype.kind != "f" or np.isfinite(leaf).all():
                continue
            bad = ~np.isfinite(leaf).reshape((*leaf.shape[:3], -1)).all(axis=-1)
            time, seed, env = np.argwhere(np.swapaxes(bad, 0, 1))[0]
            step = num_steps - leaf.shape[1] + int(time) + 1
            raise TriglotError(
                f"{name} returned {part} {leaf[seed, time, env].tolist()} in step {step:,} of "
                f"environment {env}"
                + (f" of seed {seed}" if len(leaf) > 1 else "")
                + ": values must be finite, fix the environment."
            )


class EpisodeCounter:
    """The returns and lengths of the running episodes of `S` times `N` environments."""

    def __init__(self, num_seeds: int, num_envs: int) -> None:
        self._returns = np.zeros((num_seeds, num_envs))
        self._lengths = np.zeros((num_seeds, num_envs), np.int64)

    def add(self, seen: dict[str, Any]) -> Metrics:
        """Average over the episodes that ended in steps `[S, T, N]`, float32 `[S]` each.

        The steps must follow those of the previous call. An average over no episode is NaN.
        """
        reward, done = seen["reward"], seen["terminated"] | seen["truncated"]
        num_steps = done.shape[1]
        # An episode's sum is the running sum at its end minus the one at the previous end.
        total = self._returns[:, None] + np.cumsum(reward, axis=1, dtype=np.float64)
        time = self._lengths[:, None] + np.arange(1, num_steps + 1)[None, :, None]
        last_end = np.maximum.accumulate(np.where(done, np.arange(num_steps)[:, None], -1), axis=1)
        before = np.concatenate([np.full_like(last_end[:, :1], -1), last_end], axis=1)

        def since_end(sums: np.ndarray, ends: np.ndarray) -> np.ndarray:
            at_end = np.take_along_axis(sums, np.maximum(ends, 0), axis=1)
            return np.where(ends < 0, 0, at_end)

        returns = total - since_end(total, before[:, :-1])
        lengths = time - since_end(time, before[:, :-1])
        self._returns = (total - since_end(total, last_end))[:, -1]
        self._lengths = (time - since_end(time, last_end))[:, -1]
        count = done.sum(axis=(1, 2))
        with np.errstate(invalid="ignore"):
            found = {
                "num_episodes": count,
                "episode_return": (returns * done).sum(axis=(1, 2)) / count,
                "episode_length": (lengths * done).sum(axis=(1, 2)) / count,
            }
        return {name: value.astype(np.float32) for name, value in found.items()}
