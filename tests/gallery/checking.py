"""What two networks compute at equal weights, without the whole of `diff`."""

import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.gallery.pair import Pair
from triglot.backends.pairing.stacks import align_stacks
from triglot.core.network import Network, Variables
from triglot.core.types import PyTree
from triglot.diff.inputs import batch_of
from triglot.diff.loading import load_network
from triglot.diff.pairing.pair import pair_parameters
from triglot.diff.pairing.use_order import Uses, read_uses

BATCH = 3


@functools.cache
def networks(pair: Pair) -> tuple[Network, Network]:
    """Lift both clean networks."""
    one, other = (load_network(made(), pair.spec()) for made in (pair.one, pair.other))
    return align_stacks(one, other)


@functools.cache
def inputs(pair: Pair) -> PyTree:
    """Draw a small batch."""
    return batch_of(pair.spec(), BATCH, jax.random.key(1))


@functools.cache
def weights(pair: Pair) -> tuple[Variables, Variables]:
    """Put equal weights into both clean networks; biases and scales differ from 0 and 1."""
    both, batch = networks(pair), inputs(pair)
    starts = [starting(each) for each in both]

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
    shapes = jax.eval_shape(both[1].require_codec("").encode, starts[1].params)
    drawn = {}
    for each in found.pairs:
        drawn[each.one] = draw(each.one, found.one[each.one].shape)
    moved = {each.other: drawn[each.one].reshape(shapes[each.other].shape) for each in found.pairs}
    one, other = (
        Variables(
            params=jax.tree.map(jnp.asarray, network.require_codec("").decode(named)),
            state=start.state,
        )
        for network, start, named in zip(both, starts, (drawn, moved), strict=True)
    )
    return one, other


def starting(network: Network) -> Variables:
    """Return a network's initial state, and shapes in place of its parameters."""
    key = jax.random.key(0)
    expected = jax.eval_shape(network.init, key)
    state = jax.jit(lambda: network.init(key).state)() if jax.tree.leaves(expected.state) else ()
    return Variables(params=expected.params, state=state or expected.state)


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw a parameter, about as large as an initial one."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    noise = random.standard_normal(shape)
    if len(shape) < 2:
        noise = 0.1 * noise + name.endswith("scale")
    else:
        noise /= np.prod(shape[:-1]) ** 0.5
    return noise.astype(np.float32)


def evaluated(network: Network, variables: Variables, batch: PyTree) -> list[np.ndarray]:
    """Compute the outputs in evaluation."""
    found = jax.jit(lambda v: network.apply(v, batch)[0])(variables)
    return list(map(np.asarray, jax.tree.leaves(found)))


def trained(network: Network, variables: Variables, batch: PyTree) -> list[np.ndarray]:
    """Compute outputs and state of a call in training, and gradients of their squares."""

    def loss(params: PyTree) -> Any:
        own = Variables(params=params, state=variables.state)
        moved = network.apply(own, batch, key=jax.random.key(2), train=True)
        return sum(jnp.mean(leaf**2) for leaf in jax.tree.leaves(moved[0])), moved

    found = jax.jit(jax.grad(loss, has_aux=True))(variables.params)
    return list(map(np.asarray, jax.tree.leaves(found)))


def moved(network: Network, variables: Variables, batch: PyTree) -> list[np.ndarray]:
    """Compute outputs and state of a call in training; the state by size, then by value."""
    found = jax.jit(lambda v: network.apply(v, batch, key=jax.random.key(2), train=True))(variables)
    outputs, state = (list(map(np.asarray, jax.tree.leaves(tree))) for tree in found)
    statistics = [leaf for leaf in state if leaf.dtype.kind == "f"]
    statistics.sort(key=lambda leaf: (leaf.size, float(leaf.mean())))
    return [*outputs, *statistics]


def largest_difference(pair: Pair) -> float:
    """Compare both clean networks at equal weights.

    Returns:
      The largest relative difference of outputs in evaluation and, if they have running statistics,
      of outputs and statistics after a call in training.
    """
    both, found = weights(pair), 0.0
    for compute in (evaluated, moved) if jax.tree.leaves(both[0].state) else (evaluated,):
        one, other = compute(networks(pair)[0], both[0], inputs(pair)), expected_of(pair, compute)
        assert [array.shape for array in one] == [array.shape for array in other]
        assert np.std(one[0]) > 1e-4, "the outputs are nearly constant"
        found = max(found, *map(relative, one, other))
    return found


@functools.cache
def expected_of(pair: Pair, compute: Callable[..., list[np.ndarray]]) -> list[np.ndarray]:
    """Return what the clean second network computes."""
    return compute(networks(pair)[1], weights(pair)[1], inputs(pair))


def effect(pair: Pair, bug: str) -> str:
    """Say what a bug changes of the second network: parameters, outputs, training, or nothing.

    Both hold the same canonical weights, so that another layout of a library's layer is no change.
    """
    variables, codec = weights(pair)[1], networks(pair)[1].require_codec("")
    buggy = load_network(pair.other(bug=bug), pair.spec())
    expected = jax.eval_shape(buggy.init, jax.random.key(0))
    named = codec.encode(variables.params)
    shapes = jax.eval_shape(buggy.require_codec("").encode, expected.params)
    state = jax.tree.leaves(variables.state), jax.tree.leaves(expected.state)
    if shapes_of(named) != shapes_of(shapes) or len(state[0]) != len(state[1]):
        return "parameters"
    own = Variables(
        params=buggy.require_codec("").decode(named),
        state=jax.tree.unflatten(jax.tree.structure(expected.state), state[0]),
    )
    for what, compute in (("outputs", evaluated), ("training", trained)):
        if any(map(differs, expected_of(pair, compute), compute(buggy, own, inputs(pair)))):
            return what
    return ""


def shapes_of(named: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in named.items()}


def differs(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape != other.shape or relative(one, other) > 3e-6


def relative(one: np.ndarray, other: np.ndarray) -> float:
    """Divide the largest difference of two arrays by their largest element."""
    return float(np.max(np.abs(one - other), initial=0.0) / max(np.max(np.abs(one)), 1e-6))
