"""The port of `my_haiku.net` to Equinox."""

import equinox as eqx
import jax


def net(key: jax.Array) -> eqx.Module:
    return eqx.nn.MLP(4, 2, width_size=16, depth=1, key=key)
