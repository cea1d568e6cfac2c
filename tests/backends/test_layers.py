"""Every listed layer is translated right between all libraries that have it."""

import warnings
from collections.abc import Mapping
from typing import Any

import chex
import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.backends import layer_cases as cases
from tests.backends.layer_cases import Case, network
from triglot import from_equinox, from_haiku, translate
from triglot.core.errors import Guessed
from triglot.core.network import Network, Variables
from triglot.core.specs import Box

pytestmark = pytest.mark.library_promotion("norms, attention and cells broadcast and promote")


# Asymmetric sizes find a wrong shape; equal ones, in and out and in every axis, a wrong layout.
def one_bias(case: Case) -> Case:
    """Leave out Keras's GRU, whose gates have two: see test_cell_biases.py."""
    return case._replace(built={n: one for n, one in case.built.items() if n != "keras"})


CASES: dict[str, Case] = {
    "dense": cases.dense(2, 3),
    "dense, equal": cases.dense(3, 3),
    "general dense": cases.general_dense(2, 4),
    "general dense, equal": cases.general_dense(3, 3),
    "convolution 1D": cases.convolution(2, 4, (3,), stride=2),
    "convolution 1D, equal": cases.convolution(3, 3, (3,)),
    "convolution 2D": cases.convolution(2, 5, (3, 2), stride=2),
    "convolution 2D, equal": cases.convolution(3, 3, (3, 3), padding="SAME"),
    "convolution 2D, dilated": cases.convolution(3, 3, (2, 2), dilation=2),
    "convolution 2D, groups": cases.convolution(4, 6, (2, 2), groups=2),
    "convolution 3D": cases.convolution(2, 4, (3, 2, 1)),
    "convolution 3D, equal": cases.convolution(3, 3, (3, 3, 3)),
    "depthwise 1D": cases.convolution(3, 6, (2,), groups=3),
    "depthwise 2D": cases.convolution(2, 6, (3, 2), groups=2, stride=2),
    "depthwise 2D, equal": cases.convolution(3, 3, (3, 3), groups=3),
    "depthwise 3D": cases.convolution(2, 2, (2, 2, 2), groups=2),
    "transposed 1D": cases.transposed(2, 4, (3,), stride=2),
    "transposed 1D, equal": cases.transposed(3, 3, (3,)),
    "transposed 2D": cases.transposed(2, 5, (3, 2), stride=2),
    "transposed 2D, equal": cases.transposed(3, 3, (3, 3)),
    "transposed 2D, equal, stride": cases.transposed(3, 3, (3, 3), stride=3),
    "transposed 2D, equal, dilated": cases.transposed(3, 3, (3, 3), dilation=2),
    "transposed 3D": cases.transposed(2, 4, (3, 2, 1)),
    "transposed 3D, equal": cases.transposed(2, 2, (2, 2, 2)),
    "weight normalization, dense": cases.weight_norm("dense", "outputs"),
    "weight normalization, dense, inputs": cases.weight_norm("dense", "inputs"),
    "weight normalization, dense, one norm": cases.weight_norm("dense", "the kernel"),
    "weight normalization, convolution": cases.weight_norm("convolution", "outputs"),
    "weight normalization, transposed": cases.weight_norm("transposed", "outputs"),
    "weight normalization, transposed, inputs": cases.weight_norm("transposed", "inputs"),
    "weight normalization without a scale": cases.weight_norm_without_scale(2, 3),
    "embedding": cases.embedding(4, 3),
    "embedding, equal": cases.embedding(3, 3),
    "layer normalization": cases.layer_norm(4),
    "RMS normalization": cases.rms_norm(4),
    "group normalization": cases.group_norm(4, 2),
    "instance normalization": cases.group_norm(3, 3),
    "PReLU": cases.prelu(4),
    "attention": cases.attention(6, 2, 3),
    "attention, other sizes": cases.attention(4, 3, 2),
    "attention, equal": cases.attention(4, 2, 2),
    "LSTM": cases.lstm(3, 4),
    "LSTM, equal": cases.lstm(3, 3),
    "GRU": one_bias(cases.gru(3, 4)),
    "GRU, equal": one_bias(cases.gru(3, 3)),
    "simple cell": cases.simple_cell(3, 4),
    "simple cell, equal": cases.simple_cell(3, 3),
    "convolutional LSTM": cases.convolutional_lstm(2, 3),
    "convolutional LSTM, equal": cases.convolutional_lstm(3, 3),
}


def draw(shapes: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Draw multiples of 2^-10, to which Haiku's LSTM adds 1 without rounding."""
    random = np.random.default_rng(0)
    return {
        name: jnp.asarray(random.integers(-800, 801, shape.shape) / 1024, jnp.float32)
        for name, shape in shapes.items()
    }


def canonical_shapes(built: Network) -> dict[str, Any]:
    assert built.codec is not None
    params = jax.eval_shape(built.init, jax.random.key(0)).params
    return dict(sorted(jax.eval_shape(built.codec.encode, params).items()))


def outputs_and_gradients(built: Network, named: Any, x: jax.Array) -> Any:
    """Compute outputs, and gradients of a loss by the canonical arrays."""

    def loss(named: Any) -> Any:
        outputs, _ = built.apply(in_library(built, named), x)
        return jnp.sum(jnp.sin(outputs)), outputs

    (_, outputs), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(named)
    return outputs, gradients


def in_library(built: Network, named: Any) -> Variables:
    assert built.codec is not None
    state = jax.eval_shape(built.init, jax.random.key(0)).state
    return Variables(params=built.codec.decode(named), state=state)


def check_same_function(networks: Mapping[str, Network], x: jax.Array) -> None:
    """Check that networks are equal, forward and backward, and translate bit for bit."""
    shapes = [canonical_shapes(built) for built in networks.values()]
    for other in shapes:
        chex.assert_trees_all_equal_shapes(other, shapes[0])
    named = draw(shapes[0])
    found = [outputs_and_gradients(built, named, x) for built in networks.values()]
    gradients = found[0][1]
    # A softmax does not change with the bias of the keys.
    assert all(jnp.any(gradients[n] != 0) for n in named if not n.endswith("key/bias"))
    for each in found[1:]:
        chex.assert_trees_all_close(each, found[0], rtol=1e-4, atol=1e-4)
    one, *others = networks.values()
    start = in_library(one, named)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in others:
            moved = translate(start, one, other)
            chex.assert_trees_all_equal(moved, in_library(other, named))
            chex.assert_trees_all_equal(translate(moved, other, one), start)


SLOW = {
    "general dense",
    "convolution 1D",
    "convolution 2D, dilated",
    "convolution 3D",
    "depthwise 1D",
    "depthwise 3D",
    "transposed 1D",
    "transposed 2D, equal, stride",
    "transposed 3D",
    "embedding",
    "attention, other sizes",
    "GRU",
    "simple cell",
    "convolutional LSTM",
}


@pytest.mark.covering(7)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=pytest.mark.slow if name in SLOW else ())
        for name, case in CASES.items()
    ],
)
def test_a_layer_is_the_same_function_in_every_library(case: Case) -> None:
    networks = {n: network(n, case.obs_spec, [built]) for n, built in case.built.items()}
    check_same_function(networks, jax.random.normal(jax.random.key(2), (2, *case.obs_spec.shape)))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2, 5, 3), (3, 3, 3)], ids=["asymmetric", "equal"])
def test_the_libraries_own_mlp_blocks_are_one_function(sizes: tuple[int, int, int]) -> None:
    """Their layers have other names and are paired by a guess; gradients translate likewise."""
    n, width, m = sizes
    spec = Box((n,))
    source = from_haiku(lambda x: hk.nets.MLP([width, width, m])(x), spec)
    target = from_equinox(lambda key: eqx.nn.MLP(n, m, width, depth=2, key=key))
    x = jax.random.normal(jax.random.key(1), (4, n))

    def outputs_and_gradient(built: Network, variables: Variables) -> Any:
        def loss(params: Any) -> Any:
            outputs, _ = built.apply(Variables(params=params, state=variables.state), x)
            return jnp.sum(jnp.sin(outputs)), outputs

        (_, outputs), gradient = jax.value_and_grad(loss, has_aux=True)(variables.params)
        return outputs, Variables(params=gradient, state=variables.state)

    start = source.init(jax.random.key(0))
    with pytest.warns(Guessed):
        moved = translate(start, source, target)
    outputs, gradient = outputs_and_gradient(source, start)
    found, own_gradient = outputs_and_gradient(target, moved)
    chex.assert_trees_all_close(found, outputs, rtol=1e-4, atol=1e-5)
    with pytest.warns(Guessed):
        back = translate(own_gradient, target, source)
    chex.assert_trees_all_close(back.params, gradient.params, rtol=1e-4, atol=1e-5)
