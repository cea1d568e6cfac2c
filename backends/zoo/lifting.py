"""What every built-in network has besides its library's module: initializers, noise, statistics."""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp

from ...core.network import Network, Statistics, Variables
from ...core.networks.architecture import Head, Layers, NetworkSpec
from ...core.networks.noise import draw_masks, draw_noise
from ...core.specs import Box, Dict
from ...core.types import ArrayT, PyTree, abstract_key
from ..calling import Inputs, arguments
from ..cells import match_initializers


def inputs_of(spec: NetworkSpec) -> Inputs:
    """List what a built-in network reads: the observations, then the noise or the masks."""
    sizes = spec.drawn_sizes
    if not sizes:
        return spec.obs_spec
    return (*spec.inputs, Dict({name: Box((size,)) for name, size in sizes.items()}))


def values_of(head: Head, dense: Callable[..., jax.Array]) -> jax.Array:
    """Compute a head from dense layers: `[B]` without a size, else `[B, size]`.

    Args:
      head: without a state-independent output.
      dense: `dense(size, suffix="")` applies a layer, whose name is the head's with a suffix.
    """
    if head.size is None:
        return dense(1)[:, 0]
    if not head.dueling:
        return dense(head.size)
    advantage = dense(head.size, "_advantage")
    return dense(1, "_value") + advantage - advantage.mean(axis=-1, keepdims=True)


def activated(
    torso: Layers,
    features: ArrayT,
    activation: Callable[[ArrayT], ArrayT],
    norm: Callable[[ArrayT], ArrayT],
) -> ArrayT:
    """Apply a layer's activation and its normalization, in the torso's order."""
    if torso.normalize_after_activation:
        return norm(activation(features))
    return activation(norm(features))


def lift_zoo(
    lift: Callable[..., Network], spec: NetworkSpec, name: str, *module: object
) -> Network:
    """Wrap the module of a built-in network.

    Args:
      lift: the adapter's function.
      spec: the network.
      name: shown in errors and reports.
      module: the first arguments of `lift`; it reads `inputs_of(spec)`.
    """
    if spec.cell is not None:
        network = lift(*module, name=name, initial_carry=spec.cell.initial_carry)
        network = network if spec.layers.scale is None else match_initializers(network)
    else:
        network = lift(*module, name=name)
    if network.statistics:  # one for each array of the state
        example = jax.eval_shape(network.init, abstract_key()).state
        network = _with_named_statistics(network, example)
    return _with_draws(network, spec) if spec.drawn_sizes else network


def _with_draws(network: Network, spec: NetworkSpec) -> Network:
    """Draw noise, or masks of dropout, from the key of each call; without a key there is none.

    All examples of a batch read the same noise, and masks of their own.
    """
    sizes = spec.drawn_sizes

    def apply(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        batch = jax.tree.leaves(inputs)[0].shape[0]
        if key is None:
            unchanged = jnp.ones if spec.dropout else jnp.zeros
            drawn = {name: unchanged((batch, size)) for name, size in sizes.items()}
        elif spec.dropout:
            drawn = draw_masks(sizes, spec.dropout, batch, key)
        else:
            rows = draw_noise(sizes, key)
            drawn = {n: jnp.broadcast_to(row, (batch, row.size)) for n, row in rows.items()}
        return network.apply(variables, (*arguments(inputs), drawn), train=train)

    return replace(network, apply=apply)


def _with_named_statistics(network: Network, example: PyTree) -> Network:
    """Keep running statistics by canonical name, with the same start and meaning in all libraries.

    Haiku and Equinox divide theirs by their weight so far, the latter after a start at 1: a counter
    of 0 in every call leaves the plain average, which is that of Flax.
    """
    arrays, structure = jax.tree.flatten(example)
    names = [
        statistic.name if statistic and not statistic.counts else None
        for statistic in network.statistics
    ]
    leaves = list(zip(names, arrays, strict=True))

    def encode(state: PyTree) -> Statistics:
        arrays = zip(leaves, structure.flatten_up_to(state), strict=True)
        return Statistics(named={name: jnp.ravel(array) for (name, _), array in arrays if name})

    def decode(statistics: Statistics) -> PyTree:
        return structure.unflatten(
            statistics.named[name].reshape(leaf.shape) if name else jnp.zeros_like(leaf)
            for name, leaf in leaves
        )

    def init(key: jax.Array) -> Variables:
        start_variables = network.init(key)
        start = {
            name: jnp.full_like(array, float(name.endswith("/var")))
            for name, array in encode(start_variables.state).named.items()
        }
        return Variables(params=start_variables.params, state=Statistics(named=start))

    def apply(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        network_variables = Variables(params=variables.params, state=decode(variables.state))
        outputs, moved = network.apply(network_variables, inputs, key=key, train=train)
        return outputs, encode(moved) if train else variables.state

    return replace(network, init=init, apply=apply, statistics=())
