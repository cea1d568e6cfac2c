"""The runner state, and the random keys of each update."""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax

PyTree: TypeAlias = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class RunnerState:
    """Everything training needs to go on.

    Attributes:
      key: of all updates; each folds its number in, see `update_keys`.
      agent: the agent's state.
      carry: the policy's carry, `[N, ...]`.
      env: the environments, a `VectorState`; `()` where they are stepped in Python.
      num_updates: int32 `[]`, updates done.
    """

    key: jax.Array
    agent: Any
    carry: PyTree
    env: Any
    num_updates: jax.Array


class UpdateKeys(NamedTuple):
    """The keys of one update: of new starts for the pool, of acting in the environments, of
    learning, and of opening environments of the host before it."""

    pool: jax.Array
    rollout: jax.Array
    learn: jax.Array
    start: jax.Array


def update_keys(key: jax.Array, num_updates: jax.Array) -> UpdateKeys:
    """Make the keys of the update that follows `num_updates` others, int32 `[]`.

    They do not wait for the update before, so that those of many are made at once.
    """
    return UpdateKeys(*jax.random.split(jax.random.fold_in(key, num_updates), 4))
