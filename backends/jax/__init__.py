"""Adapter for plain JAX: functions `init` and `apply`, and the zoo without a library."""

from dataclasses import replace
from functools import partial

import jax

from ...core.network import Network, Statistic
from ...core.networks.architecture import NetworkSpec, Table
from .. import calling, table
from ..zoo.lifting import inputs_of, lift_zoo
from .functions import from_functions
from .lifting import lift

__all__ = ["from_functions", "zoo"]


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network whose parameters are stored by canonical name in the canonical layout."""
    if isinstance(spec.torso, Table):
        return replace(table.zoo(spec, name), backend="jax")
    from ..zoo.jax import leaf_of, make

    init, apply = make(spec)

    def build(*, name: str, initial_carry: calling.InitialCarry | None = None) -> Network:
        how = partial(leaf_of, spec)
        network = lift(init, apply, inputs_of(spec), name, initial_carry, how)
        state = jax.eval_shape(network.init, jax.random.key(0)).state
        return replace(network, statistics=tuple(map(Statistic, sorted(state))))

    return lift_zoo(build, spec, name)
