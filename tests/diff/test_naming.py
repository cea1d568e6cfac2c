"""Causes are ordered by what they change, and outputs in another layout are called so."""

import flax.linen as nn
import jax
import pytest

from triglot import diff_networks
from triglot.core.errors import TriglotError
from triglot.core.specs import Box

pytestmark = pytest.mark.library_promotion("norms promote")


class Two(nn.Module):
    """A norm before an activation."""

    epsilon: float = 1e-5
    bounded: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.LayerNorm(epsilon=self.epsilon, name="norm")(nn.Dense(8, name="first")(x))
        return nn.Dense(3, name="last")(nn.tanh(x) if self.bounded else nn.relu(x))


@pytest.mark.slow
def test_the_largest_cause_is_first() -> None:
    report = diff_networks(Two(), Two(1e-6, bounded=True), Box((6,)), level="quick")
    causes = [cause for cause in report.causes if cause.effect is not None]
    assert [cause.name for cause in causes] == ["activation", "norm_epsilon"]
    effects = [cause.effect or 0.0 for cause in causes]
    assert effects[0] > 0.1 > 1e-3 > effects[1] > 0
    assert report.first_difference is not None
    assert report.first_difference.max_rel < 1e-3  # the first operation stays the first


class Image(nn.Module):
    features: int = 6
    channels_first: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Conv(self.features, (3, 3), name="layer")(x)
        return y.transpose(0, 3, 1, 2) if self.channels_first else y


@pytest.mark.slow
def test_outputs_in_another_layout() -> None:
    report = diff_networks(Image(), Image(channels_first=True), Box((6, 6, 3)), level="quick")
    assert {cause.name for cause in report.causes} == {"output_layout"}
    assert "NCHW" in report.causes[0].evidence


def test_shapes_in_another_layout() -> None:
    with pytest.raises(TriglotError, match=r"NHWC.*NCHW"):
        diff_networks(Image(5), Image(5, channels_first=True), Box((6, 6, 3)))
