"""Gymnasium's vectors of open environments, as the host's loop steps them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.errors import TriglotError, describe
from ..core.host_environment import Arrays, HostStep
from ..core.specs import Box, Dict, Spec


class GymnasiumVector:
    """Several open environments of Gymnasium, as a `HostVector`."""

    def __init__(
        self,
        vector: Any,
        obs_spec: Spec,
        action_spec: Spec,
        restart: Callable[[Any, np.ndarray], np.ndarray] | None,
    ) -> None:
        """Take over `vector`.

        Args:
          vector: a `gymnasium.vector.VectorEnv` that begins an episode in the step that ended one,
            or has a `restart`.
          obs_spec, action_spec: of one environment.
          restart: begins the episodes of the environments where `done` `[N]` and returns all
            observations; for a vector that does not do so itself.
        """
        self._vector, self._restart = vector, restart
        self._obs_spec, self._action_spec = obs_spec, action_spec
        self._action_dtype = vector.single_action_space.dtype
        self._bounds = action_spec.bounds() if isinstance(action_spec, Box) else None

    def reset(self, seed: int) -> Arrays:
        obs, _ = self._vector.reset(seed=seed)
        return _cast(self._obs_spec, obs)

    def step(self, action: np.ndarray) -> HostStep:
        if self._bounds is not None:  # float32 may round a number beyond them
            action = np.clip(action, *self._bounds)
        try:
            obs, reward, terminated, truncated, info = self._vector.step(
                action.astype(self._action_dtype, copy=False)
            )
        except ValueError as error:
            self._explain(error)
            raise
        next_obs = obs = _cast(self._obs_spec, obs)
        done = terminated | truncated
        if done.any():
            if self._restart is not None:
                obs = _cast(self._obs_spec, self._restart(self._vector.unwrapped, done))
            else:
                next_obs = _with_final(self._obs_spec, obs, info["final_obs"], done)
        return HostStep(
            reward=np.asarray(reward, np.float32),
            terminated=terminated,
            truncated=truncated & ~terminated,
            next_obs=next_obs,
            obs=obs,
        )

    def close(self) -> None:
        self._vector.close()

    def _explain(self, error: ValueError) -> None:
        # What NumPy says of observations that cannot be put side by side names neither of them.
        for index, obs in enumerate(getattr(self._vector, "_env_obs", ())):
            _check_shape(self._obs_spec, obs, index, error)


class FilmedGymnasium(GymnasiumVector):
    """One environment of Gymnasium that draws itself, as a `FilmedVector`."""

    def __init__(self, name: str, vector: Any, obs_spec: Spec, action_spec: Spec) -> None:
        """Take over `vector`, of one environment, which never begins an episode by itself."""
        self._name = name
        super().__init__(vector, obs_spec, action_spec, lambda vector, done: vector._observations)

    def frame(self) -> np.ndarray:
        try:
            (drawn,) = self._vector.render()
        except Exception as error:
            raise TriglotError(
                f"{self._name} cannot be drawn: {describe(error)}. Classic control needs pygame: "
                "pip install 'triglot[render]'."
            ) from error
        return np.asarray(drawn, np.uint8)


def _cast(spec: Spec, obs: Any) -> Arrays:
    """Copy observations to the spec's dtypes; the vector will use its arrays again."""
    if isinstance(spec, Dict):
        return {name: _cast(child, obs[name]) for name, child in spec.items}
    return np.array(obs, spec.dtype)


def _with_final(spec: Spec, obs: Any, final: Any, done: np.ndarray) -> Arrays:
    """Put the last observations of ended episodes in the place of the new ones' first."""
    if isinstance(spec, Dict):
        parts = {n: [f and f[n] for f in final] for n, _ in spec.items}
        return {n: _with_final(child, obs[n], parts[n], done) for n, child in spec.items}
    result = obs.copy()
    for index in np.flatnonzero(done):
        _check_shape(spec, final[index], int(index))
        result[index] = final[index]
    return result


def _check_shape(spec: Spec, obs: Any, index: int, cause: Exception | None = None) -> None:
    if isinstance(spec, Dict):
        for name, child in spec.items:
            _check_shape(child, obs[name], index, cause)
    elif np.shape(obs) != spec.shape:
        raise TriglotError(
            f"environment {index} gave an observation of shape {np.shape(obs)}, and its space "
            f"declares {spec.shape}"
        ) from cause


def _restart_cartpole(vector: Any, done: np.ndarray) -> np.ndarray:
    starts = vector.np_random.uniform(vector.low, vector.high, (4, int(done.sum())))
    vector.state[:, done] = starts
    vector.steps[done] = 0
    vector.prev_done = np.zeros_like(done)
    return vector.state.T


# By vector entry point: those that would begin an episode one step late.
RESTARTS: dict[Any, Callable[[Any, np.ndarray], np.ndarray]] = {
    "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv": _restart_cartpole
}
