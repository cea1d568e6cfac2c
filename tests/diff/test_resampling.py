"""Arrays of another size: the kernel of a resize, its antialiasing, and pooling."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot import diff_networks
from triglot.core.specs import Box

pytestmark = pytest.mark.library_promotion("layers of the libraries mix ranks")


def cubic(length: int, size: int, a: float) -> jax.Array:
    """Return the weights of a cubic kernel whose edges are repeated, as PyTorch's are."""
    weights = np.zeros((size, length), np.float32)
    for row in range(size):
        place = (row + 0.5) * length / size - 0.5
        for column in range(int(np.floor(place)) - 1, int(np.floor(place)) + 3):
            d = abs(place - column)
            near = (a + 2) * d**3 - (a + 3) * d**2 + 1
            far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
            weights[row, min(max(column, 0), length - 1)] += near if d <= 1 else far
    return jnp.asarray(weights)


class Resized(nn.Module):
    """A layer, an image `[B, 7, 7, 4]` of another size, and a layer."""

    kind: str = "linear"
    size: int = 3

    def resize(self, x: jax.Array) -> jax.Array:
        length, shape = x.shape[1], (x.shape[0], self.size, self.size, x.shape[3])
        if self.kind == "torch_cubic":
            rows = cubic(length, self.size, -0.75)
            return jnp.einsum("ia,jb,nabc->nijc", rows, rows, x)
        if self.kind == "equinox":
            pool = eqx.nn.AdaptiveAvgPool2d(self.size)
            return jax.vmap(lambda y: pool(y.transpose(2, 0, 1)).transpose(1, 2, 0))(x)
        if self.kind == "windows":
            return nn.avg_pool(x, (3, 3), strides=(2, 2))
        method, _, aliased = self.kind.partition(" ")
        return jax.image.resize(x, shape, method, antialias=not aliased)

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.resize(jnp.tanh(nn.Dense(4, name="first")(x)))
        return nn.Dense(2, name="last")(jnp.tanh(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        (Resized("linear aliased"), Resized("linear"), "antialiasing"),
        (Resized("cubic"), Resized("cubic aliased"), "antialiasing"),
        (Resized("torch_cubic", 10), Resized("cubic", 10), "cubic_coefficient"),
        (Resized("linear", 10), Resized("cubic", 10), "upsampling"),
        (Resized("windows"), Resized("equinox"), "adaptive_pooling"),
    ],
)
def test_the_form_is_named(one: Any, other: Any, name: str) -> None:
    report = diff_networks(one, other, Box((7, 7, 4)), level="quick")
    assert report.verdict == "different"
    assert {cause.name for cause in report.causes} - {"precision"} == {name}


def test_equal_forms_are_no_difference() -> None:
    one, other = Resized("linear", 10), Resized("linear aliased", 10)
    report = diff_networks(one, other, Box((7, 7, 4)), level="quick")
    assert report.verdict in ("equivalent", "identical")
