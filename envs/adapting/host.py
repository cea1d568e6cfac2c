"""Environments of libraries that are stepped in Python, as `HostEnvironment`s."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from ...core.errors import TriglotError, describe
from ...core.host_environment import Arrays, HostStart, HostStep, to_dtype
from ...core.specs import Box, Leaf, Spec, mask_size
from ...core.types import Obs
from . import masks
from .masks import Info
from .options import Options
from .spaces import AnySpace, map_leaves

Restart = Callable[[Any, np.ndarray], Obs]


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
        mask_form: str = "",
        ignores_mask: bool = True,
    ) -> None:
        """Wrap `vector`, which is closed with this object.

        Args:
          env: what `vector` holds several of.
          vector: a `gymnasium.vector.VectorEnv` with AutoresetMode.SAME_STEP, or any with a
            `restart`, or, if it is not reset, with AutoresetMode.DISABLED.
          restart: `restart(vector, done)` resets the environments where `done` `[N]` and returns
            all observations; None if `vector` resets itself.
          resets: whether ended environments are reset.
          mask_form: how action masks are given, as `masks.find_form` returns it.
          ignores_mask: whether masks are ignored where the form is none.
        """
        self._env, self._restart, self._resets = env, restart, resets
        self._mask_form, self._ignores_mask = mask_form, ignores_mask
        self._mask_size = mask_size(env.action_spec)
        self.ended = np.zeros(0, bool)  # where the last step ended an episode, for `transitions`
        self._vector: Any = vector
        self._declared = env.action_spec.bounds() if isinstance(env.action_spec, Box) else None

    def reset(self, seed: int) -> Arrays | HostStart:
        try:
            raw_obs, info = self._vector.reset(seed=seed)
        except ValueError as error:
            self._find_wrong_shape(error)
            raise
        obs = self.read(raw_obs)
        mask = self._masks(raw_obs, info, "reset")
        return obs if mask is None else HostStart(obs, mask)

    def step(self, action: np.ndarray) -> HostStep:
        if self._declared is not None:
            action = self._clipped(action)
        raw_obs, reward, terminated, truncated, info = self.advance(action)
        next_obs = obs = self.read(raw_obs)
        next_mask = mask = self._masks(raw_obs, info, "step")
        done = terminated | truncated
        if self._resets and done.any():
            next_obs, obs = self.renew(obs, done, info)
            next_mask = self._last_masks(mask, done, info)
        return HostStep.of(reward, terminated, truncated, next_obs, obs, next_mask, mask)

    def _masks(self, raw_obs: Obs, info: Info, method: str) -> np.ndarray | None:
        """Read the masks of all environments, bool `[N, num_actions]`; None without masks."""
        if not self._mask_form:
            if not self._ignores_mask and masks.KEY in info:
                raise masks.unexpected()
            return None
        if key := masks.key_of(self._mask_form):
            return to_dtype(raw_obs[key], bool, "an entry of the action mask")
        return masks.of_vector(info, self._vector.num_envs, self._mask_size, method)

    def _last_masks(
        self, mask: np.ndarray | None, done: np.ndarray, info: Info
    ) -> np.ndarray | None:
        """Put the masks from before the reset where episodes ended."""
        if mask is None:
            return None
        key, result = masks.key_of(self._mask_form), mask.copy()
        for index in np.flatnonzero(done):
            result[index] = (
                masks.as_mask(info["final_obs"][index][key], self._mask_size)
                if key
                else masks.of_last(info, int(index), self._mask_size)
            )
        return result

    def _clipped(self, action: np.ndarray) -> np.ndarray:
        """Clip actions in the space's dtype: float32 rounds bounds and actions beyond float64's."""
        assert self._declared is not None  # for the type checker
        action, space = np.clip(action, *self._declared), self._action_space
        if space.dtype == action.dtype:
            return action
        return np.clip(action.astype(space.dtype), space.low, space.high)

    @property
    def _action_space(self) -> AnySpace:
        """The space of one environment's action."""
        return self._vector.single_action_space

    @property
    def unwrapped(self) -> Any:
        """The library's vector environment."""
        return self._vector

    def mask_of(self, raw_obs: Obs, info: Info) -> np.ndarray | None:
        """Read the mask of one environment, bool `[num_actions]`; None without masks."""
        if not self._mask_form:
            return None
        key = masks.key_of(self._mask_form)
        return masks.as_mask(raw_obs[key] if key else info[masks.KEY], self._mask_size)

    def as_action(self, action: np.ndarray) -> Any:
        """Convert the action of one environment to the space's dtype; a scalar to its type."""
        action = self._clipped(action) if self._declared is not None else action
        converted = np.asarray(action).astype(self._action_space.dtype)
        return converted if converted.ndim else converted[()]

    def reset_where(
        self, done: np.ndarray, obs: Arrays, mask: np.ndarray | None
    ) -> tuple[Arrays, np.ndarray | None]:
        """Reset ended environments of a vector without autoreset."""
        raw_obs, info = self._vector.reset(options={"reset_mask": done})
        started, index = self.read(raw_obs), np.flatnonzero(done)
        obs = replaced(obs, index, jax.tree.map(lambda leaf: leaf[index], started))
        if mask is None:
            return obs, None
        key, mask = masks.key_of(self._mask_form), mask.copy()
        mask[index] = np.asarray(raw_obs[key] if key else info[masks.KEY], bool)[index]
        return obs, mask

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
            self._find_wrong_shape(error)
            raise

    def read(self, obs: Obs) -> Arrays:
        """Copy observations to the spec's structure and dtypes, integers so that they start at 0.

        A tuple becomes a dictionary, without the texts. Gymnasium reuses its arrays.
        """

        def cast(leaf: Leaf, space: AnySpace, values: npt.ArrayLike) -> np.ndarray:
            start = getattr(space, "start", None)
            values = values if start is None else np.asarray(values) - start
            return to_dtype(values, leaf.dtype, "an observation")

        space = self._vector.single_observation_space
        if key := self._inner_key(space):
            space, obs = space[key], obs[key]
        return map_leaves(cast, self._env.obs_spec, space, obs)

    def _inner_key(self, space: AnySpace) -> str:
        """Return the key of what is left of an observation without its mask; "" if it is whole."""
        return masks.without_mask(self._mask_form, space)[1] if self._mask_form else ""

    def renew(self, obs: Arrays, done: np.ndarray, info: Info) -> tuple[Arrays, Arrays]:
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
        return replaced(obs, ended, jax.tree.map(lambda *rows: np.stack(rows), *last)), obs

    def _find_wrong_shape(self, error: ValueError) -> None:
        """Say which observation has another shape, which NumPy's error does not."""
        for index, obs in enumerate(getattr(self._vector, "_env_obs", ())):
            if obs is not None:  # of an environment that was not reached
                self._check_shapes(obs, index, error)

    def _check_shapes(self, obs: Obs, index: int, cause: Exception | None = None) -> None:
        def check(leaf: Leaf, value: npt.ArrayLike) -> None:
            if np.shape(value) != leaf.shape:
                raise TriglotError(
                    f"environment {index} returned an observation of shape {np.shape(value)}, but "
                    f"its space declares {leaf.shape}"
                ) from cause

        key = self._inner_key(self._vector.single_observation_space)
        map_leaves(check, self._env.obs_spec, obs[key] if key else obs)


def replaced(obs: Arrays, index: np.ndarray, others: Arrays) -> Arrays:
    """Replace the observations of the environments `index` in a copy."""

    def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        result = old.copy()
        result[index] = new
        return result

    return jax.tree.map(put, obs, others)
