"""Procedural levels: a numbered set to train on, others held out, and curricula over the set."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from ..environment import Environment, TimeStep
from ..errors import TriglotError
from ..hyper import MAX_COUNT, between, one_of
from ..types import PyTree, pytree_dataclass
from .base import Wrapper

# Moving averages of a level's return move by these shares per episode, and so much of the sampling
# is uniform, so that a level without progress is still tried.
FAST, SLOW, UNIFORM = 0.3, 0.03, 0.2


@pytree_dataclass
class LevelState:
    """The state of `Levels`.

    Attributes:
      state: the inner state.
      level: int32 `[]`, the level's index in the set, counted from 0.
    """

    state: PyTree
    level: jax.Array


@pytree_dataclass
class LevelProgress:
    """What a curriculum knows of the levels.

    Attributes:
      fast, slow: float32 `[num_levels]`, moving averages of the return.
      seen: bool `[num_levels]`, whether an episode of the level has ended.
    """

    fast: jax.Array
    slow: jax.Array
    seen: jax.Array


@dataclass(frozen=True)
class Levels(Wrapper):
    """Start each episode in one of a numbered set of levels.

    A level is a reset: number `i` resets the inner environment with key `i`, which is
    `jax.random.fold_in(jax.random.key(0), i)` whatever the run's seed. What happens later in an
    episode still depends on the keys of its steps.

    The sampling `learning_progress` prefers levels whose return changes, for better or worse: the
    probability is proportional to the difference of a fast and a slow moving average of a level's
    return, in absolute value; 20 % of the episodes are uniform. The averages are over all
    environments of a seed, see `Curriculum`; evaluations sample uniformly.

    Source: Cobbe et al. (2019), "Quantifying Generalization in Reinforcement Learning",
    https://arxiv.org/abs/1812.02341 (levels to train on and others to test);
    Kanitscheider et al. (2021), "Multi-task curriculum learning in a complex, visual,
    hard-exploration domain: Minecraft", https://arxiv.org/abs/2106.14876 (learning progress, here
    without its reweighting and thresholds).

    Attributes:
      env: the inner environment.
      num_levels: size of the set.
      first_level: number of its first level.
      sampling: `uniform` or `learning_progress`.

    Raises:
      TriglotError: if a level's number exceeds 2^31 - 1.
    """

    num_levels: int = 200
    first_level: int = between(0, 0)
    sampling: str = one_of("uniform", "learning_progress")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_level + self.num_levels > MAX_COUNT:
            raise TriglotError(
                f"levels must be numbered below {MAX_COUNT:,}, got {self.num_levels:,} from number "
                f"{self.first_level:,}."
            )

    def reset(self, key: jax.Array) -> TimeStep:
        return self.start(jax.random.randint(key, (), 0, self.num_levels))

    def start(self, level: jax.Array) -> TimeStep:
        """Start an episode in one level, int32 `[]`, its index in the set."""
        key = jax.random.fold_in(jax.random.key(0), self.first_level + level)
        start = self.env.reset(key)
        return replace(start, state=LevelState(state=start.state, level=level))

    def step(self, state: LevelState, action: PyTree, key: jax.Array) -> TimeStep:
        step = self.env.step(state.state, action, key)
        return replace(step, state=LevelState(state=step.state, level=state.level))

    def initial_progress(self) -> LevelProgress | None:
        """Make the averages before the first episode; None if the sampling is uniform."""
        if self.sampling == "uniform":
            return None
        zero = jnp.zeros((self.num_levels,), jnp.float32)
        return LevelProgress(fast=zero, slow=zero, seen=jnp.zeros((self.num_levels,), bool))

    def update_progress(
        self, progress: PyTree, states: LevelState, returns: jax.Array, done: jax.Array
    ) -> LevelProgress:
        """Move the averages of the levels whose episodes ended, by their mean return."""
        level = states.level
        # Environments that end in one level at once are averaged; each writes the same number, so
        # the order of the writes, which a GPU does not fix, has no effect.
        same = (level[:, None] == level[None, :]) & done[None, :]
        count = jnp.maximum(same.astype(jnp.float32).sum(axis=1), 1.0)
        mean = jnp.where(same, returns[None, :], 0.0).sum(axis=1) / count

        def moved(average: jax.Array, share: float) -> jax.Array:
            old = average[level]
            # The first episode is no progress.
            new = jnp.where(progress.seen[level], old + share * (mean - old), mean)
            return average.at[where].set(new, mode="drop")

        where = jnp.where(done, level, self.num_levels)  # out of bounds: dropped
        seen_levels = progress.seen.at[where].set(True, mode="drop")
        fast, slow = moved(progress.fast, FAST), moved(progress.slow, SLOW)
        return LevelProgress(fast=fast, slow=slow, seen=seen_levels)

    def probabilities(self, progress: LevelProgress) -> jax.Array:
        """Return how likely an episode is to start in each level, float32 `[num_levels]`."""
        change = jnp.abs(progress.fast - progress.slow)
        total = change.sum()
        equal = 1.0 / self.num_levels
        by_change = jnp.where(total > 0, change / jnp.where(total > 0, total, 1.0), equal)
        return UNIFORM * equal + (1.0 - UNIFORM) * by_change

    def reset_by(self, progress: PyTree, key: jax.Array) -> TimeStep:
        """Start an episode in a level drawn by learning progress."""
        edges = jnp.cumsum(self.probabilities(progress))
        drawn = jax.random.uniform(key) * edges[-1]
        level = jnp.searchsorted(edges, drawn, side="right").astype(jnp.int32)
        return self.start(jnp.minimum(level, self.num_levels - 1))


def held_out(env: object) -> Environment | None:
    """Replace the levels of an environment by all levels after them; None if it has no levels.

    >>> from triglot.envs import gridworld
    >>> held_out(Levels(gridworld.make("4x4"), 200)).first_level
    200
    """
    if not isinstance(env, Wrapper):
        return None
    if isinstance(env, Levels):
        first = env.first_level + env.num_levels
        return Levels(env.env, MAX_COUNT - first, first)
    inner = held_out(env.env)
    return None if inner is None else replace(env, env=inner)
