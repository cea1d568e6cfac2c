"""Callbacks: their types, and host callbacks from jitted code."""

import inspect
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from ..errors import TriglotError, kind_of

OnStage: TypeAlias = Callable[[str], None]
Callback: TypeAlias = Callable[[int, dict[str, np.ndarray]], bool | np.bool_ | None]


def check_callback(name: str, callback: object) -> None:
    """Refuse what cannot be called with the number of updates and the metrics.

    Raises:
      TriglotError: saying what was given.
    """
    call = f"{name} is called with two arguments, the number of updates done and the metrics"
    if not callable(callback):
        raise TriglotError(f"{call}: give a function, got {kind_of(callback)}.")
    try:
        inspect.signature(callback).bind(0, {})
    except TypeError as error:
        raise TriglotError(f"{call}; {kind_of(callback)} does not take them: {error}.") from None
    except ValueError:  # a function without a signature, as some in C
        pass


def asks_to_stop(answer: object) -> bool:
    """Return whether the result of a callback ends the training, which only False does."""
    return isinstance(answer, bool | np.bool_) and not answer


def ignore_stage(name: str) -> None:
    """Do nothing; the default of a program's `compile`."""


def run_callback(callback: Callback, num_updates: jax.Array, metrics: dict[str, jax.Array]) -> None:
    """Call `callback` on the host, in the order of the updates; under `vmap`, once for all seeds.

    Args:
      callback: called with the number of updates done and each metric `[S]`.
      num_updates: int32 `[]`, the same for all seeds.
      metrics: scalars by name.
    """

    def on_host(num_updates: np.ndarray, metrics: dict[str, np.ndarray]) -> None:
        arrays = {name: np.atleast_1d(np.asarray(value)) for name, value in metrics.items()}
        callback(int(np.ravel(num_updates)[0]), arrays)

    # Without this rule, JAX calls the host once per seed.
    @custom_vmap
    def send(*values: jax.Array | dict[str, jax.Array]) -> tuple[()]:
        jax.debug.callback(on_host, *values, ordered=True)
        return ()

    @send.def_vmap
    def _(num_seeds: int, batched: list, *values: jax.Array) -> tuple[tuple[()], tuple[()]]:
        def broadcast(value: jax.Array, is_batched: bool) -> jax.Array:
            return value if is_batched else jnp.broadcast_to(value, (num_seeds, *value.shape))

        jax.debug.callback(on_host, *jax.tree.map(broadcast, values, tuple(batched)), ordered=True)
        return (), ()

    send(num_updates, metrics)
