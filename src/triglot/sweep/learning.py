"""Learning curves of a batch: few points, summed in the order of the updates."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

MAX_POINTS = 200
SUMS = ("returns", "episodes")
RECENT = 0.1  # of the updates done, from which the return in training is averaged


@dataclass
class Learning:
    """Episodes that ended in training, in at most 200 spans of updates.

    The sums do not depend on the sizes of chunks, so that an interruption changes no bit.

    Attributes:
      num_updates: of the whole training.
      returns: the sum of returns, float64 `[S, P]`.
      episodes: how many, float64 `[S, P]`.
    """

    num_updates: int
    returns: np.ndarray
    episodes: np.ndarray

    @classmethod
    def empty(cls, num_trainings: int, num_updates: int) -> "Learning":
        """Begin without any episode."""
        shape = (num_trainings, min(num_updates, MAX_POINTS))
        return cls(num_updates, np.zeros(shape), np.zeros(shape))

    @property
    def nbytes(self) -> int:
        """The bytes of both sums."""
        return self.returns.nbytes + self.episodes.nbytes

    def add(self, done: int, metrics: Mapping[str, ArrayLike]) -> None:
        """Add the updates of a chunk, `[S, count]` each, which came after `done` updates."""
        returns = np.asarray(metrics["episode_return"], np.float64)
        episodes = np.asarray(metrics["num_episodes"], np.float64)
        sums = np.where(episodes > 0, returns * episodes, 0.0)
        for index in range(returns.shape[1]):
            point = self._point(done + index)
            self.returns[:, point] += sums[:, index]
            self.episodes[:, point] += episodes[:, index]

    def packed(self) -> dict[str, np.ndarray]:
        """View the sums as uint32, which JAX keeps exactly where it would round float64."""
        return {name: getattr(self, name).view(np.uint32) for name in SUMS}

    @classmethod
    def unpacked(cls, num_updates: int, arrays: Mapping[str, np.ndarray]) -> "Learning":
        """Read what `packed` returned."""
        sums = {name: np.array(arrays[name], order="C").view(np.float64) for name in SUMS}
        return cls(num_updates, **sums)

    def curves(self) -> np.ndarray:
        """Mean return of the episodes of each span, `[S, P]`; NaN where none ended."""
        return _mean(self.returns, self.episodes)

    def recent(self, done: int) -> np.ndarray:
        """Mean return of the episodes in the last tenth of the first `done` updates, `[S]`.

        A training in which none ended then has the mean over all its episodes, or NaN.
        """
        last = self._point(done - 1)
        first = self._point(int((1 - RECENT) * done))
        latest = _mean(*(a[:, first : last + 1].sum(axis=1) for a in (self.returns, self.episodes)))
        whole = _mean(self.returns.sum(axis=1), self.episodes.sum(axis=1))
        return np.where(np.isnan(latest), whole, latest)

    def ends(self) -> np.ndarray:
        """Number of updates done at the end of each span, int `[P]`."""
        count = self.returns.shape[1]
        return -(-np.arange(1, count + 1) * self.num_updates // count)

    def _point(self, update: int) -> int:
        return update * self.returns.shape[1] // self.num_updates


def _mean(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
