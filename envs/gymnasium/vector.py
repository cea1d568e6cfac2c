"""Gymnasium's vector environments as `HostVector`s."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...core.errors import TriglotError, describe
from ...core.host_environment import Arrays, HostStep
from ...core.specs import Box, Dict, Spec


class GymnasiumVector:
    """Several running Gymnasium environments, as a `HostVector`."""

    def __init__(
        self,
        vector: Any,
        obs_spec: Spec,
        action_spec: Spec,
        restart: Callable[[Any, np.ndarray], np.ndarray] | None,
    ) -> None:
        """Wrap `vector`, which is closed with this object.

        Args:
          vector: a `gymnasium.vector.VectorEnv` with AutoresetMode.SAME_STEP, or any with a
            `restart`.
          obs_spec: spec of one environment's observation.
          action_spec: spec of one environment's action.
          restart: `restart(vector, done)` resets the environments where `done` `[N]` and returns
            all observations; None if `vector` resets itself.
        """
        self._vector, self._restart = vector, restart
        self._obs_spec, self._action_spec = obs_spec, action_spec
        self._obs_space = vector.single_observation_space
        self._action_dtype = vector.single_action_space.dtype
        self._bounds = action_spec.bounds() if isinstance(action_spec, Box) else None

    def reset(self, seed: int) -> Arrays:
        obs, _ = self._vector.reset(seed=seed)
        return self._cast(obs)

    def step(self, action: np.ndarray) -> HostStep:
        if self._bounds is not None:  # float32 rounding may exceed the bounds
            action = np.clip(action, *self._bounds)
        try:
            obs, reward, terminated, truncated, info = self._vector.step(
                action.astype(self._action_dtype, copy=False)
            )
        except ValueError as error:
            self._explain(error)
            raise
        next_obs = obs = self._cast(obs)
        done = terminated | truncated
        if done.any():
            if self._restart is not None:
                obs = self._cast(self._restart(self._vector.unwrapped, done))
            else:
                spec, space = self._obs_spec, self._obs_space
                next_obs = _with_final(spec, space, obs, info["final_obs"], done)
        return HostStep.of(reward, terminated, truncated, next_obs, obs)

    def close(self) -> None:
        self._vector.close()

    def _cast(self, obs: Any) -> Arrays:
        return _cast(self._obs_spec, self._obs_space, obs)

    def _explain(self, error: ValueError) -> None:
        # NumPy's error about observations of unequal shapes does not name the environment.
        for index, obs in enumerate(getattr(self._vector, "_env_obs", ())):
            _check_shape(self._obs_spec, obs, index, error)


class FilmedGymnasium(GymnasiumVector):
    """One Gymnasium environment with rendering, as a `RenderableVector`."""

    def __init__(self, name: str, vector: Any, obs_spec: Spec, action_spec: Spec) -> None:
        """Wrap `vector`, which holds one environment and has automatic reset disabled."""
        self._name = name
        super().__init__(vector, obs_spec, action_spec, lambda vector, done: vector._observations)

    def frame(self) -> np.ndarray:
        try:
            (drawn,) = self._vector.render()
        except Exception as error:
            raise TriglotError(
                f"{self._name} cannot be rendered: {describe(error)}. Classic control needs "
                "pygame: pip install 'triglot[render]'."
            ) from error
        return np.asarray(drawn, np.uint8)


def _cast(spec: Spec, space: Any, obs: Any) -> Arrays:
    """Copy observations to the spec's structure and dtypes, integers so that they start at 0.

    A tuple becomes a dictionary, without the texts. Gymnasium reuses its arrays.
    """
    if isinstance(spec, Dict):
        parts = ((name, child, _part(space, name), _part(obs, name)) for name, child in spec.items)
        return {name: _cast(child, own, part) for name, child, own, part in parts}
    start = getattr(space, "start", None)
    return np.array(obs if start is None else np.asarray(obs) - start, spec.dtype)


def _part(whole: Any, name: str) -> Any:
    """Return a part of a space or of an observation; those of a tuple have numbers as names."""
    return whole[name] if isinstance(whole, Mapping) else whole[int(name)]


def _with_final(spec: Spec, space: Any, obs: Any, final: Any, done: np.ndarray) -> Arrays:
    """Replace the first observations of new episodes by the last ones of the ended episodes."""
    if isinstance(spec, Dict):
        parts = {n: [f and _part(f, n) for f in final] for n, _ in spec.items}
        return {
            name: _with_final(child, _part(space, name), obs[name], parts[name], done)
            for name, child in spec.items
        }
    result = obs.copy()
    for index in np.flatnonzero(done):
        _check_shape(spec, final[index], int(index))
        result[index] = _cast(spec, space, final[index])
    return result


def _check_shape(spec: Spec, obs: Any, index: int, cause: Exception | None = None) -> None:
    if isinstance(spec, Dict):
        for name, child in spec.items:
            _check_shape(child, _part(obs, name), index, cause)
    elif np.shape(obs) != spec.shape:
        raise TriglotError(
            f"environment {index} returned an observation of shape {np.shape(obs)}, but its space "
            f"declares {spec.shape}"
        ) from cause


def _restart_cartpole(vector: Any, done: np.ndarray) -> np.ndarray:
    starts = vector.np_random.uniform(vector.low, vector.high, (4, int(done.sum())))
    vector.state[:, done] = starts
    vector.steps[done] = 0
    vector.prev_done = np.zeros_like(done)
    return vector.state.T


# Functions that reset vector entry points whose own reset comes one step late.
RESTARTS: dict[Any, Callable[[Any, np.ndarray], np.ndarray]] = {
    "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv": _restart_cartpole
}
