"""Telling a function on the host what happens inside a compiled program."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

Callback: TypeAlias = Callable[[int, dict[str, np.ndarray]], None]


def run_callback(callback: Callback, num_updates: jax.Array, metrics: dict[str, jax.Array]) -> None:
    """Call `listener` on the host, in the order of the updates; under `vmap`, once for all seeds.

    Args:
      listener: called with the updates done and each metric `[S]`, of the `S` seeds.
      num_updates: int32 `[]`, the same in all seeds.
      metrics: scalars by name.
    """

    def on_host(num_updates: np.ndarray, metrics: dict[str, np.ndarray]) -> None:
        callback(
            int(np.ravel(num_updates)[0]),
            {name: np.atleast_1d(np.asarray(value)) for name, value in metrics.items()},
        )

    # JAX would call the host for one seed after the other; this rule hands over all of them.
    @custom_vmap
    def send(*told: jax.Array | dict[str, jax.Array]) -> tuple[()]:
        jax.debug.callback(on_host, *told, ordered=True)
        return ()

    @send.def_vmap
    def _(num_seeds: int, batched: list, *told: jax.Array) -> tuple[tuple[()], tuple[()]]:
        def whole(value: jax.Array, is_batched: bool) -> jax.Array:
            return value if is_batched else jnp.broadcast_to(value, (num_seeds, *value.shape))

        jax.debug.callback(on_host, *jax.tree.map(whole, told, tuple(batched)), ordered=True)
        return (), ()

    send(num_updates, metrics)
