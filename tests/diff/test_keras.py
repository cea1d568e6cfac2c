"""A Keras network beside one of another library: causes have Keras's layers and lines."""

from typing import Any

import flax.linen as nn
import jax
import pytest

from triglot import Box, diff_networks

keras = pytest.importorskip("keras", reason="the extra keras is not installed")
layers = keras.layers


class Keras(keras.Model):
    def __init__(self, activation: str, epsilon: float) -> None:
        super().__init__()
        self.first = layers.Dense(8, activation=activation)
        self.norm = layers.LayerNormalization(epsilon=epsilon)
        self.out = layers.Dense(2)

    def call(self, x: Any) -> Any:
        return self.out(self.norm(self.first(x)))


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.LayerNorm(name="norm")(nn.gelu(nn.Dense(8, name="first")(x)))
        return nn.Dense(2, name="out")(x)


def tanh_gelu(x: Any) -> Any:
    return keras.activations.gelu(x, approximate=True)


@pytest.mark.covering(3)
@pytest.mark.parametrize(
    ("activation", "epsilon", "causes"),
    [
        pytest.param(tanh_gelu, 1e-6, set(), id="equal"),
        pytest.param("gelu", 1e-6, {"activation"}, id="the exact gelu"),
        pytest.param(tanh_gelu, 1e-3, {"norm_epsilon"}, id="Keras's own epsilon"),
    ],
)
def test_planted_differences_are_found(activation: Any, epsilon: float, causes: set[str]) -> None:
    report = diff_networks(lambda: Keras(activation, epsilon), Linen(), Box((4,)))
    assert {cause.name for cause in report.causes} - {"initializer"} == causes
    assert (report.verdict == "different") == bool(causes)
