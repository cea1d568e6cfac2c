"""EnvPool's batches of environments as `HostVector`s."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..core.host_environment import Arrays, HostStep
from ..core.specs import Box, Dict, Spec


class EnvPoolVector:
    """Several running EnvPool environments, as a `HostVector`.

    EnvPool resets an ended environment in the step after the end, whose data would belong to no
    episode. So ended environments are reset by their ids before the next step.
    """

    resets = True  # ended environments

    def __init__(
        self,
        start: Callable[[list[int]], Any],
        num_envs: int,
        time_limit: int | None,
        obs_spec: Spec,
        action_spec: Spec,
    ) -> None:
        """Prepare environments; `reset` starts them, since EnvPool takes seeds only then.

        Args:
          start: makes the pool from one seed per environment.
          num_envs: number of environments.
          time_limit: steps after which an episode is truncated, fewer than the pool's own limit;
            None if there is no limit.
          obs_spec: spec of one environment's observation, images with their channels last.
          action_spec: spec of one environment's action.
        """
        self._start, self._pool = start, None
        self._time_limit, self._obs_spec = time_limit, obs_spec
        self._steps = np.zeros(num_envs, np.int64)
        self._bounds = action_spec.bounds() if isinstance(action_spec, Box) else None

    def reset(self, seed: int) -> Arrays:
        words = np.random.SeedSequence(seed).generate_state(len(self._steps))
        self._steps[:] = 0
        with quiet():
            self._pool = self._start((words >> 1).tolist())  # EnvPool's seeds are int32
            obs, _ = self._pool.reset()
        return _read(self._obs_spec, obs)

    def step(self, action: np.ndarray) -> HostStep:
        pool: Any = self._pool
        if self._bounds is not None:  # float32 rounding may exceed the bounds
            action = np.clip(action, *self._bounds)
        found, reward, terminated, truncated, _ = pool.step(action)
        self._steps += 1
        if self._time_limit is not None:
            truncated = truncated | (self._steps >= self._time_limit)
        next_obs = obs = _read(self._obs_spec, found)
        done = terminated | truncated
        if done.any() and self.resets:
            self._steps[done] = 0
            starts, info = pool.reset(np.flatnonzero(done).astype(np.int32))
            obs = _with_starts(next_obs, _read(self._obs_spec, starts), info["env_id"])
        return HostStep.of(reward, terminated, truncated, next_obs, obs)

    def close(self) -> None:
        self._pool = None  # its threads end with it


class FilmedEnvPool(EnvPoolVector):
    """One EnvPool environment with rendering, as a `RenderableVector`."""

    resets = False

    def frame(self) -> np.ndarray:
        pool: Any = self._pool
        return pool.render()[0]


@contextmanager
def quiet() -> Iterator[None]:
    """Hide Gymnasium's warnings about the precision of bounds."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered", category=UserWarning)
        yield


def _read(spec: Spec, obs: Any) -> Arrays:
    """Convert observations to the spec's dtypes, and images to channels last."""
    if isinstance(spec, Dict):
        return {name: _read(child, obs[name]) for name, child in spec.items}
    if obs.shape[1:] != spec.shape and len(spec.shape) == 3:
        obs = np.moveaxis(obs, 1, -1)
    return np.array(obs, spec.dtype, order="C")


def _with_starts(obs: Arrays, starts: Arrays, ids: np.ndarray) -> Arrays:
    """Replace the observations of the environments `ids` by the first ones of new episodes."""
    if isinstance(obs, dict):
        return {name: _with_starts(obs[name], starts[name], ids) for name in obs}
    obs = obs.copy()
    obs[ids] = starts
    return obs
