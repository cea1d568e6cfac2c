"""Spectral normalization of all libraries: equal functions agree, others are named."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from tests.extras import skip_missing
from triglot import diff_networks
from triglot.backends.translate import translate
from triglot.core.errors import TriglotError
from triglot.core.network import Variables
from triglot.core.specs import Box
from triglot.diff.loading import load_network

pytestmark = [
    pytest.mark.library_promotion("layers of the libraries mix ranks"),
    pytest.mark.filterwarnings("ignore:.*spectral_norm. is deprecated:FutureWarning"),
]
SIZE, WIDTH = 6, 5


def in_torch(steps: int = 1, eps: float = 1e-12, *, hook: bool = False, plain: bool = False) -> Any:
    import torch

    class Normed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(4, SIZE), torch.nn.Linear(WIDTH, 2)
            self.normed = torch.nn.Linear(SIZE, WIDTH)
            add = torch.nn.utils.spectral_norm
            if not hook:
                add = torch.nn.utils.parametrizations.spectral_norm
            if not plain:
                add(self.normed, n_power_iterations=steps, eps=eps)

        def forward(self, x: Any) -> Any:
            return self.last(torch.tanh(self.normed(torch.tanh(self.first(x)))))

    return Normed


def of_images(library: str) -> Any:
    """Build a normalized convolution of images `[2, 6, 6]`."""
    if library == "equinox":
        return Convolved
    import torch

    class InTorch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            convolution = torch.nn.Conv2d(2, 3, 3)
            self.normed = torch.nn.utils.parametrizations.spectral_norm(convolution)
            self.last = torch.nn.Linear(3 * 4 * 4, 2)

        def forward(self, x: Any) -> Any:
            return self.last(torch.tanh(self.normed(x)).flatten(1))

    return InTorch


class Convolved(eqx.Module):
    normed: eqx.nn.SpectralNorm
    last: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        convolution = eqx.nn.Conv2d(2, 3, 3, key=keys[0])
        self.normed = eqx.nn.SpectralNorm(convolution, "weight", key=keys[1])
        self.last = eqx.nn.Linear(3 * 4 * 4, 2, key=keys[2])

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        x, state = self.normed(x, state)
        return self.last(jnp.tanh(x).ravel()), state


class InLinen(nn.Module):
    steps: int = 1
    eps: float = 1e-12
    plain: bool = False

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x, layer = jnp.tanh(nn.Dense(SIZE, name="first")(x)), nn.Dense(WIDTH, name="normed")
        if self.plain:
            x = layer(x)
        else:
            norm = nn.SpectralNorm(layer, n_steps=self.steps, epsilon=self.eps)
            x = norm(x, update_stats=train)
        return nn.Dense(2, name="last")(jnp.tanh(x))


class InNNX(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(4, SIZE, rngs=rngs)
        self.normed = nnx.SpectralNorm(nnx.Linear(SIZE, WIDTH, rngs=rngs), rngs=rngs)
        self.last = nnx.Linear(WIDTH, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(jnp.tanh(self.normed(jnp.tanh(self.first(x)))))


class InEquinox(eqx.Module):
    first: eqx.nn.Linear
    normed: eqx.nn.SpectralNorm
    last: eqx.nn.Linear

    def __init__(self, key: jax.Array, steps: int = 1) -> None:
        keys = jax.random.split(key, 4)
        self.first = eqx.nn.Linear(4, SIZE, key=keys[0])
        layer = eqx.nn.Linear(SIZE, WIDTH, key=keys[1])
        self.normed = eqx.nn.SpectralNorm(layer, "weight", steps, key=keys[2])
        self.last = eqx.nn.Linear(WIDTH, 2, key=keys[3])

    def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        x, state = self.normed(jnp.tanh(self.first(x)), state)
        return self.last(jnp.tanh(x)), state


def in_keras(steps: int = 1) -> Any:
    import keras

    class Normed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = keras.layers.Dense(SIZE), keras.layers.Dense(2)
            layer = keras.layers.Dense(WIDTH)
            self.normed = keras.layers.SpectralNormalization(layer, power_iterations=steps)

        def call(self, x: Any, training: bool = False) -> Any:
            x = self.normed(keras.ops.tanh(self.first(x)), training=training)
            return self.last(keras.ops.tanh(x))

    return Normed


def in_haiku(eps: float, *, in_evaluation: bool = True) -> Callable[..., jax.Array]:
    def network(x: jax.Array, is_training: bool) -> jax.Array:
        x = jnp.tanh(hk.Linear(SIZE, name="first")(x))
        w = hk.get_parameter("w", (SIZE, WIDTH), init=hk.initializers.RandomNormal())
        b = hk.get_parameter("b", (WIDTH,), init=jnp.zeros)
        normed = hk.SpectralNorm(eps)(w, update_stats=is_training)
        x = x @ (normed if in_evaluation or is_training else w) + b[None]
        return hk.Linear(2, name="last")(jnp.tanh(x))

    return network


VECTOR, IMAGE = Box((4,)), Box((2, 6, 6))
ITERATIONS, MISSING, EPSILON = {"power_iterations"}, {"spectral_norm"}, {"norm_epsilon"}
CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], Box, set[str]]] = {
    "torch and equinox": (in_torch, lambda: InEquinox, VECTOR, set()),
    "linen and nnx": (InLinen, lambda: InNNX, VECTOR, set()),
    "haiku and linen": (lambda: in_haiku(1e-12), InLinen, VECTOR, set()),
    "convolutions": (lambda: of_images("torch"), lambda: of_images("equinox"), IMAGE, set()),
    "keras and haiku": (in_keras, lambda: in_haiku(1e-12, in_evaluation=False), VECTOR, set()),
    "more steps in keras": (in_keras, lambda: in_keras(3), VECTOR, ITERATIONS),
    "keras and linen": (in_keras, InLinen, VECTOR, MISSING),
    "keras and torch": (in_keras, in_torch, VECTOR, MISSING | ITERATIONS),
    # PyTorch's and Equinox's iterate in training only, Flax's and Haiku's in evaluation too.
    "torch and linen": (in_torch, InLinen, VECTOR, ITERATIONS),
    "equinox and nnx": (lambda: InEquinox, lambda: InNNX, VECTOR, ITERATIONS),
    # The parametrization starts with the vector of the inputs, the hook with that of the outputs.
    "two of torch": (in_torch, lambda: in_torch(hook=True), VECTOR, ITERATIONS),
    "more steps": (InLinen, lambda: InLinen(steps=3), VECTOR, ITERATIONS),
    "more steps in torch": (lambda: in_torch(2), lambda: InEquinox, VECTOR, ITERATIONS),
    "without": (in_torch, lambda: in_torch(plain=True), VECTOR, MISSING),
    "without it first": (lambda: InLinen(plain=True), lambda: InNNX, VECTOR, MISSING),
    "haiku's own epsilon": (lambda: in_haiku(1e-4), InLinen, VECTOR, EPSILON),
    "another epsilon": (InLinen, lambda: InLinen(eps=1e-3), VECTOR, EPSILON),
}


@pytest.mark.covering(13)
@pytest.mark.parametrize("case", CASES)
def test_spectral_norm(case: str) -> None:
    one, other, spec, names = CASES[case]
    if "torch" in case or case in ("convolutions", "without"):
        skip_missing("torch")
    if "keras" in case:
        skip_missing("keras")
    report = diff_networks(one(), other(), spec, level="quick")
    assert {cause.name for cause in report.causes} == names, report
    assert (report.verdict == "different") == bool(names), report
    assert report.pairing.is_complete
    assert not any(pair.transposed for pair in report.pairing.pairs)


# What the state of each holds: both singular vectors, one and the divisor, or one.
KEEPING: dict[str, tuple[Callable[[], Any], str]] = {
    "torch": (in_torch, "both"),
    "torch hook": (lambda: in_torch(hook=True), "both"),
    "equinox": (lambda: InEquinox, "both"),
    "linen": (InLinen, "one"),
    "nnx": (lambda: InNNX, "one"),
    "keras": (in_keras, "training"),
}


@pytest.mark.covering
@pytest.mark.parametrize(
    "case", list(itertools.permutations(KEEPING, 2)), ids=lambda case: " to ".join(case)
)
def test_weights_are_translated_where_the_function_stays(case: tuple[str, str]) -> None:
    networks = []
    for library in case:
        if library.split()[0] in ("torch", "keras"):
            skip_missing(library.split()[0])
        networks.append(load_network(KEEPING[library][0](), VECTOR))
    source, target = networks
    inputs = jax.random.normal(jax.random.key(0), (5, 4))
    start = source.init(jax.random.key(1))
    _, state = source.apply(start, inputs, key=jax.random.key(2), train=True)
    variables = Variables(params=start.params, state=state)
    if KEEPING[case[0]][1] != KEEPING[case[1]][1]:
        with pytest.raises(TriglotError, match="spectral normalization"):
            translate(variables, source, target)
        return
    moved = translate(variables, source, target)
    outputs, _ = target.apply(moved, inputs)
    assert jnp.allclose(outputs, source.apply(variables, inputs)[0], atol=1e-6)


@pytest.mark.slow
def test_gradients_and_steps_agree() -> None:
    report = diff_networks(InLinen(), InNNX, VECTOR)
    assert report.verdict != "different", report
