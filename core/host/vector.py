"""Step host environments: check their results and count their episodes."""

import contextlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..errors import TriglotError, describe
from ..host_environment import Arrays, HostEnvironment, HostStep, HostVector, check_shapes
from ..types import PyTree


class HostRunner:
    """`S` times `N` open environments, with the returns and lengths of their running episodes.

    Attributes:
      obs: the next policy input, `[S, N, ...]`.
      first: bool `[S, N]`, an episode starts here.
      num_steps: steps taken in each environment since they were opened.
    """

    def __init__(
        self,
        env: HostEnvironment,
        num_envs: int,
        seeds: Sequence[int],
        vectors: Sequence[HostVector] = (),
    ) -> None:
        """Open `num_envs` environments per seed and reset them.

        Args:
          env: the single environment.
          num_envs: `N`.
          seeds: `[S]`, seeds of the environments.
          vectors: environments that are open already, for the first seeds.

        Raises:
          TriglotError: if opening or resetting fails.
        """
        self._env, self._num_envs = env, num_envs
        self.num_steps = 0
        self._vectors = list(vectors)
        try:
            for _ in seeds[len(self._vectors) :]:
                self._vectors.append(env.open(num_envs))
            self._reset(seeds)
        except (Exception, SystemExit) as error:
            self.close()
            raise TriglotError(f"{env.name} failed on open or reset: {_message(error)}.") from error

    def restart(self, seeds: Sequence[int]) -> None:
        """Begin a new episode in every environment, from one seed for each of the `S` vectors.

        Raises:
          TriglotError: if resetting fails.
        """
        try:
            self._reset(seeds)
        except (Exception, SystemExit) as error:
            raise TriglotError(f"{self._env.name} failed on reset: {_message(error)}.") from error

    def _reset(self, seeds: Sequence[int]) -> None:
        starts = [v.reset(seed) for v, seed in zip(self._vectors, seeds, strict=True)]
        for obs in starts:
            check_shapes(self._env.obs_spec, obs, self._num_envs)
        self.obs = _stack_seeds(starts)
        self.first = np.ones((len(seeds), self._num_envs), bool)
        self._returns = np.zeros(self.first.shape)
        self._lengths = np.zeros(self.first.shape, np.int64)

    def step(self, action: np.ndarray) -> HostStep:
        """Take actions `[S, N, ...]`.

        Raises:
          TriglotError: if an environment raises or its observations change their shape.
        """
        steps = [self._step(v, actions) for v, actions in zip(self._vectors, action, strict=True)]
        step = HostStep(*map(_stack_seeds, zip(*steps, strict=True)))
        self.num_steps += 1
        self.obs = step.obs
        self.first = step.terminated | step.truncated
        return step

    def episodes(self, seen: dict[str, Any]) -> dict[str, np.ndarray]:
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

    def check_finite(self, seen: dict[str, Any]) -> None:
        """Reject NaN and infinite rewards and observations in the last steps, `[S, T, N, ...]`.

        Raises:
          TriglotError: with the first such step.
        """
        for name in ("reward", "next_obs", "obs"):
            for leaf in jax.tree.leaves(seen[name]):
                if leaf.dtype.kind != "f" or np.isfinite(leaf).all():
                    continue
                bad = ~np.isfinite(leaf).reshape((*leaf.shape[:3], -1)).all(axis=-1)
                time, seed, env = np.argwhere(np.swapaxes(bad, 0, 1))[0]
                step = self.num_steps - leaf.shape[1] + int(time) + 1
                raise TriglotError(
                    f"{self._env.name} returned {name} {leaf[seed, time, env].tolist()} in step "
                    f"{step:,} of environment {env}"
                    + (f" of seed {seed}" if len(self._vectors) > 1 else "")
                    + ": values must be finite, fix the environment."
                )

    def close(self) -> None:
        """Close all environments; the first exception of one is raised at the end."""
        with contextlib.ExitStack() as closing:
            for vector in reversed(self._vectors):
                closing.callback(vector.close)

    def _step(self, vector: Any, action: np.ndarray) -> HostStep:
        try:
            step = vector.step(action)
            check_shapes(self._env.obs_spec, step.next_obs, self._num_envs)
        except (Exception, SystemExit) as error:
            where = f"{self._env.name} failed in step {self.num_steps + 1:,}"
            raise TriglotError(f"{where}: {_message(error)}.") from error
        return step


def over_time(steps: Sequence[PyTree]) -> PyTree:
    """Stack `T` steps `[S, ...]` on the host to `[S, T, ...]`."""

    def stack(*leaves: Any) -> np.ndarray:
        # Several times as fast as np.stack for small arrays.
        arrays = np.concatenate([np.asarray(leaf) for leaf in leaves])
        return arrays.reshape(len(leaves), *np.shape(leaves[0])).swapaxes(0, 1)

    return jax.tree.map(stack, *steps)


def _stack_seeds(parts: Sequence[Arrays]) -> Arrays:
    if isinstance(parts[0], dict):
        return {name: _stack_seeds([part[name] for part in parts]) for name in parts[0]}
    return parts[0][None] if len(parts) == 1 else np.stack(parts)


def _message(error: BaseException) -> str:
    return (str(error) if isinstance(error, TriglotError) else describe(error)).rstrip(".")
