"""Step host environments and check their results."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import TriglotError, describe
from ..host_environment import Arrays, HostEnvironment, HostStep, HostVector, check_shapes


class HostRunner:
    """`S` times `N` open environments.

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
        *,
        where: str = "",
    ) -> None:
        """Open `num_envs` environments per seed and reset them.

        Args:
          env: the single environment.
          num_envs: `N`.
          seeds: `[S]`, seeds of the environments.
          vectors: environments that are open already, for the first seeds.
          where: which of several runners this is, for errors.

        Raises:
          TriglotError: if opening or resetting fails.
        """
        self._env, self._num_envs, self._where = env, num_envs, where
        self.num_steps = 0
        self.first = np.ones((len(seeds), num_envs), bool)
        self._vectors = list(vectors)
        try:
            for _ in seeds[len(self._vectors) :]:
                self._vectors.append(env.open(num_envs))
            starts = [v.reset(seed) for v, seed in zip(self._vectors, seeds, strict=True)]
            for obs in starts:
                check_shapes(env.obs_spec, obs, num_envs)
        except (Exception, SystemExit) as error:
            self.close()
            raise TriglotError(f"{env.name} failed on open or reset: {_message(error)}.") from error
        self.obs = _stack_seeds(starts)

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

    def close(self) -> None:
        """Close the environments."""
        for vector in self._vectors:
            vector.close()

    def _step(self, vector: Any, action: np.ndarray) -> HostStep:
        try:
            step = vector.step(action)
            check_shapes(self._env.obs_spec, step.next_obs, self._num_envs)
        except (Exception, SystemExit) as error:
            where = f"{self._env.name} failed in step {self.num_steps + 1:,}{self._where}"
            raise TriglotError(f"{where}: {_message(error)}.") from error
        return step


def _stack_seeds(parts: Sequence[Arrays]) -> Arrays:
    if isinstance(parts[0], dict):
        return {name: _stack_seeds([part[name] for part in parts]) for name in parts[0]}
    return parts[0][None] if len(parts) == 1 else np.stack(parts)


def _message(error: BaseException) -> str:
    return (str(error) if isinstance(error, TriglotError) else describe(error)).rstrip(".")
