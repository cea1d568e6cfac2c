"""Step host environments: check their results and count their episodes."""

import contextlib
from collections.abc import Sequence

import jax
import numpy as np
import numpy.typing as npt

from ..errors import TriglotError, describe
from ..host_environment import (
    Arrays,
    HostEnvironment,
    HostStart,
    HostStep,
    HostVector,
    check_shapes,
    host_mask_size,
    to_dtype,
)
from ..specs import Box, Discrete, MultiDiscrete, leaves
from ..types import PyTree

_MUST_ALLOW = np.ones((), bool)


class HostRunner:
    """`S` times `N` open environments, with the returns and lengths of their running episodes.

    Attributes:
      obs: the next policy input, `[S, N, ...]`.
      first: bool `[S, N]`, an episode starts here.
      action_mask: bool `[S, N, num_actions]` of `obs`; None if the environments give none.
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
        self._env, self._num_envs, self._mask_size = env, num_envs, host_mask_size(env)
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
        starts = [start if isinstance(start, HostStart) else (start, None) for start in starts]
        self.obs = _stack_seeds([self._read(obs) for obs, _ in starts])
        self.action_mask = _stack_seeds([self._mask(mask, _MUST_ALLOW) for _, mask in starts])
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
        self.obs, self.action_mask = step.obs, step.action_mask
        self.first = step.terminated | step.truncated
        return step

    def episodes(self, steps: dict[str, Arrays]) -> dict[str, np.ndarray]:
        """Average over the episodes that ended in steps `[S, T, N]`, float32 `[S]` each.

        The steps must follow those of the previous call. An average over no episode is NaN.
        """
        reward, done = steps["reward"], steps["terminated"] | steps["truncated"]
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
            averages = {
                "num_episodes": count,
                "episode_return": (returns * done).sum(axis=(1, 2)) / count,
                "episode_length": (lengths * done).sum(axis=(1, 2)) / count,
            }
        return {name: value.astype(np.float32) for name, value in averages.items()}

    def check_finite(self, steps: dict[str, Arrays]) -> None:
        """Reject values in the last steps, `[S, T, N, ...]`, that cannot be learned from.

        These are NaN and infinite rewards and observations, and numbers outside of what their spec
        declares where the declaration decides how they are stored: indices of a table or a one-hot,
        and whole numbers (`Box.stored_dtype`).

        Raises:
          TriglotError: with the first such step.
        """
        self._check_declared(steps)
        for name in ("reward", "next_obs", "obs"):
            for leaf in jax.tree.leaves(steps[name]):
                if leaf.dtype.kind == "f" and not (fine := np.isfinite(leaf)).all():
                    raise self._refusal(name, leaf, fine, "values must be finite")

    def _check_declared(self, steps: dict[str, Arrays]) -> None:
        for name in ("next_obs", "obs"):
            arrays = jax.tree.leaves(steps[name])
            for (place, spec), leaf in zip(leaves(self._env.obs_spec), arrays, strict=True):
                stored_as_is = isinstance(spec, Box) and spec.stored_dtype == spec.dtype
                if stored_as_is:
                    continue
                low, high = spec.bounds()
                fine = (leaf >= low) & (leaf <= high)
                if isinstance(spec, Box):
                    fine &= leaf == np.round(leaf)
                if not fine.all():
                    declared = f"obs_spec declares {place} {spec}".replace("  ", " ")
                    raise self._refusal(name, leaf, fine, declared)

    def _refusal(self, name: str, leaf: np.ndarray, fine: np.ndarray, why: str) -> TriglotError:
        """Describe the first step in which values of `leaf`, `[S, T, N, ...]`, are not `fine`."""
        bad = ~fine.reshape((*leaf.shape[:3], -1)).all(axis=-1)
        time, seed, env = np.argwhere(np.swapaxes(bad, 0, 1))[0]
        step = self.num_steps - leaf.shape[1] + int(time) + 1
        return TriglotError(
            f"{self._env.name} returned {name} {leaf[seed, time, env].tolist()} in step "
            f"{step:,} of environment {env}"
            + (f" of seed {seed}" if len(self._vectors) > 1 else "")
            + f": {why}, fix the environment."
        )

    def close(self) -> None:
        """Close all environments; the first exception of one is raised at the end."""
        with contextlib.ExitStack() as closing:
            for vector in reversed(self._vectors):
                closing.callback(vector.close)

    def _step(self, vector: HostVector, action: np.ndarray) -> HostStep:
        try:
            step = vector.step(action)
            next_obs = self._read(step.next_obs)
            terminated = self._per_env("terminated", step.terminated, bool)
            step = step._replace(
                next_obs=next_obs,
                obs=next_obs if step.obs is step.next_obs else self._read(step.obs),
                reward=self._per_env("a reward", step.reward, np.float32),
                terminated=terminated,
                truncated=self._per_env("truncated", step.truncated, bool),
                next_action_mask=self._mask(step.next_action_mask, ~terminated),
                action_mask=self._mask(step.action_mask, _MUST_ALLOW),
            )
        except (Exception, SystemExit) as error:
            where = f"{self._env.name} failed in step {self.num_steps + 1:,}"
            raise TriglotError(f"{where}: {_message(error)}.") from error
        return step

    def _read(self, obs: Arrays) -> Arrays:
        """Check observations `[N, ...]`, and convert 64-bit types that JAX does not have."""
        check_shapes(self._env.obs_spec, obs, self._num_envs)
        return jax.tree.map(_in_jax_dtype, obs)

    def _mask(self, mask: np.ndarray | None, must_allow: np.ndarray) -> np.ndarray | None:
        """Check masks `[N, num_actions]`; they allow an action where `must_allow` `[N]` is True."""
        if mask is None and self._mask_size is None:
            return None
        size = self._mask_size
        if mask is None or np.shape(mask) != (self._num_envs, size) or size is None:
            raise TriglotError(
                f"action masks must have the shape {(self._num_envs, size)}, got "
                f"{None if mask is None else np.shape(mask)}: has_action_mask is {size is not None}"
            )
        mask = mask if mask.dtype == bool else to_dtype(mask, bool, "an entry of an action mask")
        spec = self._env.action_spec
        assert isinstance(spec, Discrete | MultiDiscrete)  # the others have no masks
        starts = np.cumsum([0, *np.ravel(spec.num_values)[:-1]])
        allows = np.logical_or.reduceat(mask, starts, axis=-1).all(axis=-1)
        if not (allows | ~must_allow).all():
            index = int(np.flatnonzero(must_allow & ~allows)[0])
            raise TriglotError(
                f"the action mask of environment {index} allows no action: end the episode there, "
                "or allow an action that does nothing"
            )
        return mask

    def _per_env(self, name: str, values: npt.ArrayLike, dtype: npt.DTypeLike) -> np.ndarray:
        """Check that there is one value for each environment, and convert them."""
        if not isinstance(values, np.ndarray) or values.dtype != dtype:
            values = to_dtype(values, dtype, name)
        if values.shape != (self._num_envs,):
            raise TriglotError(
                f"{name} must have the shape ({self._num_envs},), one value for each environment; "
                f"got {values.shape}"
            )
        return values


def _in_jax_dtype(array: np.ndarray) -> np.ndarray:
    if array.dtype.itemsize < 8:
        return array
    return to_dtype(array, jax.dtypes.canonicalize_dtype(array.dtype), "an observation")


def over_time(steps: Sequence[PyTree]) -> PyTree:
    """Stack `T` steps `[S, ...]` on the host to `[S, T, ...]`."""

    def stack(*leaves: npt.ArrayLike) -> np.ndarray:
        # Several times as fast as np.stack for small arrays.
        arrays = np.concatenate([np.asarray(leaf) for leaf in leaves])
        return arrays.reshape(len(leaves), *np.shape(leaves[0])).swapaxes(0, 1)

    return jax.tree.map(stack, *steps)


def _stack_seeds(parts: Sequence[Arrays]) -> Arrays:
    if parts[0] is None:
        return None
    if isinstance(parts[0], dict):
        return {name: _stack_seeds([part[name] for part in parts]) for name in parts[0]}
    return parts[0][None] if len(parts) == 1 else np.stack(parts)


def _message(error: BaseException) -> str:
    return (str(error) if isinstance(error, TriglotError) else describe(error)).rstrip(".")
