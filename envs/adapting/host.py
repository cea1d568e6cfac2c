"""Environments of libraries that are stepped in Python, as `HostEnvironment`s."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ...core.errors import TriglotError, describe
from ...core.host_environment import Arrays, HostStep
from ...core.specs import Box, Leaf, Spec
from .options import Options
from .spaces import map_leaves

Restart = Callable[[Any, np.ndarray], Any]


@dataclass(frozen=True)
class HostAdapted:
    """An environment of a library that is stepped in Python; a suite's class opens it.

    Attributes:
      suite: the suite's name.
      env_id: the environment's name in the suite.
      options: of the suite's `make`, as sorted pairs.
      obs_spec: spec of one environment's observation, with JAX's dtypes.
      action_spec: spec of one environment's action, with JAX's dtypes.
    """

    suite: str
    env_id: str
    options: Options
    obs_spec: Spec
    action_spec: Spec

    @property
    def name(self) -> str:
        return f"{self.suite}:{self.env_id}"


class GymnasiumVector:
    """Several running environments with Gymnasium's vector interface, as a `HostVector`.

    One environment that is not reset is a `RenderableVector`.
    """

    def __init__(
        self,
        env: HostAdapted,
        vector: Any,
        restart: Restart | None = None,
        *,
        resets: bool = True,
    ) -> None:
        """Wrap `vector`, which is closed with this object.

        Args:
          env: what `vector` holds several of.
          vector: a `gymnasium.vector.VectorEnv` with AutoresetMode.SAME_STEP, or any with a
            `restart`, or, if it is not reset, with AutoresetMode.DISABLED.
          restart: `restart(vector, done)` resets the environments where `done` `[N]` and returns
            all observations; None if `vector` resets itself.
          resets: whether ended environments are reset.
        """
        self._env, self._restart, self._resets = env, restart, resets
        self._vector: Any = vector
        spec = env.action_spec
        self._bounds = spec.bounds() if isinstance(spec, Box) else None

    def reset(self, seed: int) -> Arrays:
        obs, _ = self._vector.reset(seed=seed)
        return self.read(obs)

    def step(self, action: np.ndarray) -> HostStep:
        if self._bounds is not None:  # float32 rounding may exceed the bounds
            action = np.clip(action, *self._bounds)
        found, reward, terminated, truncated, info = self.advance(action)
        next_obs = obs = self.read(found)
        done = terminated | truncated
        if self._resets and done.any():
            next_obs, obs = self.renew(obs, done, info)
        return HostStep.of(reward, terminated, truncated, next_obs, obs)

    def close(self) -> None:
        vector, self._vector = self._vector, None  # a library's threads may end with its object
        if vector is not None:
            vector.close()

    def frame(self) -> np.ndarray:
        try:
            (drawn,) = self._vector.render()
        except Exception as error:
            raise TriglotError(
                f"{self._env.name} cannot be rendered: {describe(error)}. Classic control needs "
                "pygame: pip install 'triglot[render]'."
            ) from error
        return np.asarray(drawn, np.uint8)

    def advance(self, action: np.ndarray) -> tuple[Any, ...]:
        """Take a step of the library: observations, rewards, both flags and further information."""
        try:
            return self._vector.step(
                action.astype(self._vector.single_action_space.dtype, copy=False)
            )
        except ValueError as error:
            # NumPy's error about observations of unequal shapes does not name the environment.
            for index, obs in enumerate(getattr(self._vector, "_env_obs", ())):
                self._check_shapes(obs, index, error)
            raise

    def read(self, obs: Any) -> Arrays:
        """Copy observations to the spec's structure and dtypes, integers so that they start at 0.

        A tuple becomes a dictionary, without the texts. Gymnasium reuses its arrays.
        """

        def cast(leaf: Leaf, space: Any, values: Any) -> np.ndarray:
            start = getattr(space, "start", None)
            return np.array(values if start is None else np.asarray(values) - start, leaf.dtype)

        return map_leaves(cast, self._env.obs_spec, self._vector.single_observation_space, obs)

    def renew(self, obs: Arrays, done: np.ndarray, info: Any) -> tuple[Arrays, Arrays]:
        """Begin new episodes where `done`; return the true successors and the next observations.

        Args:
          obs: what the step of the library returned.
          done: bool `[N]`.
          info: further information of the step.
        """
        if self._restart is not None:
            return obs, self.read(self._restart(self._vector.unwrapped, done))
        ended = np.flatnonzero(done)
        final = info.get("final_obs")
        if final is None or any(final[index] is None for index in ended):
            raise TriglotError(
                "the vector environment returned no info['final_obs'] for an episode that ended, "
                "which AutoresetMode.SAME_STEP needs: the true last observation would be lost. "
                "Return it, or choose vectorization_mode='sync'"
            )
        for index in ended:
            self._check_shapes(info["final_obs"][index], int(index))
        last = [self.read(info["final_obs"][index]) for index in ended]
        return replaced(obs, ended, jax.tree.map(lambda *each: np.stack(each), *last)), obs

    def _check_shapes(self, obs: Any, index: int, cause: Exception | None = None) -> None:
        def check(leaf: Leaf, value: Any) -> None:
            if np.shape(value) != leaf.shape:
                raise TriglotError(
                    f"environment {index} returned an observation of shape {np.shape(value)}, but "
                    f"its space declares {leaf.shape}"
                ) from cause

        map_leaves(check, self._env.obs_spec, obs)


def replaced(obs: Arrays, index: np.ndarray, others: Arrays) -> Arrays:
    """Replace the observations of the environments `index` in a copy."""

    def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        result = old.copy()
        result[index] = new
        return result

    return jax.tree.map(put, obs, others)
