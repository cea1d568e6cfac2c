"""Networks of random layers compute the same after translation, or are refused."""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.backends import layer_cases as cases
from tests.backends.layer_cases import Built, Case, network
from tests.properties import examples
from triglot import translate
from triglot.core.errors import Guessed, TriglotError
from triglot.core.network import Network, Variables
from triglot.core.specs import Box

pytestmark = pytest.mark.library_promotion("norms, attention and cells broadcast and promote")

LIBRARIES = ("haiku", "linen", "nnx", "equinox")
IMAGE = (4, 3)
WINDOWS = ((2, 2), (3, 2), (3, 3))

Layer = Callable[[int, int, tuple[int, int]], Case]  # of channels in and out, and a window

ON_IMAGES: dict[str, Layer] = {
    "convolution": lambda n, m, window: cases.convolution(n, m, window, padding="SAME"),
    "depthwise": lambda n, m, window: cases.convolution(n, n, window, groups=n, padding="SAME"),
    "transposed": cases.transposed,
    "group norm": lambda n, m, window: cases.group_norm(n, n),
}
ON_VECTORS: dict[str, Layer] = {
    "dense": lambda n, m, window: cases.dense(n, m),
    "layer norm": lambda n, m, window: cases.layer_norm(n),
    "RMS norm": lambda n, m, window: cases.rms_norm(n),
    "LSTM": lambda n, m, window: cases.lstm(n, m),
}


class Plan(NamedTuple):
    """A random architecture: convolutional layers, then layers on vectors."""

    channels: int
    on_images: list[tuple[str, int, tuple[int, int]]]
    on_vectors: list[tuple[str, int]]
    variant: int  # of the several layers of a library that compute the same
    pair: tuple[str, str]


sizes = st.sampled_from([2, 3])
plans = st.builds(
    Plan,
    sizes,
    st.lists(
        st.tuples(st.sampled_from(sorted(ON_IMAGES)), sizes, st.sampled_from(WINDOWS)), max_size=3
    ),
    st.lists(st.tuples(st.sampled_from(sorted(ON_VECTORS)), sizes), min_size=1, max_size=3),
    st.integers(0, 2),
    st.sampled_from([(a, b) for a in LIBRARIES for b in LIBRARIES if a != b]),
)


def build(library: str, plan: Plan, *, named: bool = True) -> Network:
    """Build a plan's network."""
    layers: list[Built] = []
    shape = (*IMAGE, plan.channels)

    def add(case: Case, flatten: bool) -> None:
        nonlocal shape
        variants = [built for name, built in case.built.items() if name.split()[0] == library]
        chosen = variants[plan.variant % len(variants)]
        layers.append(after_flattening(library, chosen) if flatten else chosen)
        last = network(library, Box(shape), [layers[-1]])
        outputs = jax.eval_shape(
            lambda: last.apply(last.init(jax.random.key(0)), jnp.zeros((1, *shape)))[0]
        )
        shape = outputs.shape[1:]

    for kind, size, window in plan.on_images:
        add(ON_IMAGES[kind](shape[-1], size, window), flatten=False)
    for kind, size in plan.on_vectors:
        add(ON_VECTORS[kind](math.prod(shape), size, (1, 1)), flatten=True)
    return network(library, Box((*IMAGE, plan.channels)), layers, named=named)


def after_flattening(library: str, built: Built) -> Built:
    def flat(layer: Any, x: jax.Array) -> jax.Array:
        return built.call(layer, x.ravel() if library == "equinox" else x.reshape(x.shape[0], -1))

    return built._replace(call=flat)


def drawn(built: Network) -> Variables:
    """Draw parameters, multiples of 2^-10, to which Haiku's LSTM adds 1 without rounding."""
    start = jax.eval_shape(built.init, jax.random.key(0))
    leaves, treedef = jax.tree.flatten(start.params)
    random = np.random.default_rng(0)
    numbers = [
        jnp.asarray(random.integers(-800, 801, leaf.shape) / 1024, jnp.float32) for leaf in leaves
    ]
    return Variables(params=treedef.unflatten(numbers), state=start.state)


def check_same_outputs(plan: Plan, source: Network, target: Network, pair: Any) -> None:
    x = jax.random.normal(jax.random.key(2), (2, *IMAGE, plan.channels))
    expected, found = (
        jax.jit(lambda v, built=built: built.apply(v, x)[0])(variables)
        for built, variables in zip((source, target), pair, strict=True)
    )
    chex.assert_trees_all_close(expected, found, rtol=1e-3, atol=1e-3)


@examples(1, 60, plan=plans)
def test_there_and_back_is_the_same_bit_for_bit(plan: Plan) -> None:
    source, target = (build(library, plan) for library in plan.pair)
    variables = drawn(source)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moved = translate(variables, source, target)
        chex.assert_trees_all_equal(translate(moved, target, source), variables)
    check_same_outputs(plan, source, target, (variables, moved))


@pytest.mark.slow
@examples(4, 60, plan=plans)
def test_layers_of_other_names_are_guessed_right_or_refused(plan: Plan) -> None:
    source, target = (build(library, plan, named=False) for library in plan.pair)
    variables = drawn(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Guessed)
        try:
            moved = translate(variables, source, target)
        except TriglotError:
            return
    check_same_outputs(plan, source, target, (variables, moved))
