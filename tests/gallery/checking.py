"""What two networks compute at equal weights, without the whole of `diff`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gallery.pair import Pair
from triglot.core.network import Network, Variables
from triglot.core.types import PyTree
from triglot.diff.inputs import batch_of
from triglot.diff.loading import load_network
from triglot.diff.measures.weights import canonical, put, with_noise
from triglot.diff.pairing.pair import pair_parameters
from triglot.diff.pairing.use_order import Uses, read_uses

BATCH = 3


@functools.cache
def networks(pair: Pair) -> tuple[Network, Network]:
    """Lift both clean networks."""
    one, other = (load_network(made(), pair.spec()) for made in (pair.one, pair.other))
    return one, other


@functools.cache
def weights(pair: Pair) -> tuple[Variables, Variables]:
    """Put equal weights into both clean networks, and noise into biases and scales."""
    both, batch = networks(pair), inputs(pair)
    starts = [jax.jit(each.init)(jax.random.key(0)) for each in both]

    def uses() -> tuple[Uses, Uses]:
        found = []
        for network, start in zip(both, starts, strict=True):
            outputs = jax.eval_shape(lambda v, n=network: n.apply(v, batch)[0], start)
            indices = range(len(jax.tree.leaves(outputs)))
            found.append(read_uses(network, start, batch, list(indices)))
        return found[0], found[1]

    found = pair_parameters(both, uses)
    left = (*found.only_one, *found.only_other)
    assert not left, f"without a counterpart: {', '.join(each.name for each in left)}"
    assert not any(each.transposed for each in found.pairs)
    noisy = with_noise(canonical(both[0], starts[0]), 0)
    moved = {each.other: noisy[each.one] for each in found.pairs}
    return put(both[0], starts[0], noisy), put(both[1], starts[1], moved)


@functools.cache
def inputs(pair: Pair) -> PyTree:
    """Draw a small batch."""
    return batch_of(pair.spec(), BATCH, jax.random.key(1))


def evaluated(network: Network, variables: Variables, batch: PyTree) -> list[np.ndarray]:
    """Compute the outputs in evaluation."""
    found = jax.jit(lambda v: network.apply(v, batch)[0])(variables)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


def trained(network: Network, variables: Variables, batch: PyTree) -> list[np.ndarray]:
    """Compute outputs and state of a call in training, and gradients of their squares."""

    def loss(params: PyTree) -> Any:
        own = Variables(params=params, state=variables.state)
        moved = network.apply(own, batch, key=jax.random.key(2), train=True)
        return sum(jnp.mean(leaf**2) for leaf in jax.tree.leaves(moved[0])), moved

    found = jax.jit(jax.grad(loss, has_aux=True))(variables.params)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


def largest_difference(pair: Pair) -> float:
    """Return the largest relative difference of both clean networks' outputs in evaluation."""
    one, other = (
        evaluated(network, variables, inputs(pair))
        for network, variables in zip(networks(pair), weights(pair), strict=True)
    )
    assert [array.shape for array in one] == [array.shape for array in other]
    assert all(np.std(array) > 1e-4 for array in one), "the outputs are nearly constant"
    return max(map(relative, one, other))


def effect(pair: Pair, bug: str) -> str:
    """Say what a bug changes of the second network: parameters, outputs, training, or nothing."""
    clean, variables = networks(pair)[1], weights(pair)[1]
    buggy = load_network(pair.other(bug=bug), pair.spec())
    expected = jax.eval_shape(buggy.init, jax.random.key(0))
    leaves = [jax.tree.leaves(each) for each in (variables, expected)]
    if [leaf.shape for leaf in leaves[0]] != [leaf.shape for leaf in leaves[1]]:
        return "parameters"
    own = jax.tree.unflatten(jax.tree.structure(expected), leaves[0])
    for what, compute in (("outputs", evaluated), ("training", trained)):
        before = compute(clean, variables, inputs(pair))
        if any(map(differs, before, compute(buggy, own, inputs(pair)))):
            return what
    return ""


def differs(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape != other.shape or relative(one, other) > 1e-5


def relative(one: np.ndarray, other: np.ndarray) -> float:
    """Divide the largest difference of two arrays by their largest element."""
    return float(np.max(np.abs(one - other), initial=0.0) / max(np.max(np.abs(one)), 1e-6))
