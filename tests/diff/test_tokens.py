"""Inputs that are integers: each value occurs, and the traced examples are those that differ."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot import diff_networks
from triglot.core.specs import Box, Discrete
from triglot.diff.inputs import batch_of

KEY = jax.random.key(0)
PADDING = 7


@pytest.mark.covering(2)
@pytest.mark.parametrize(
    ("spec", "size", "values"),
    [
        (Box((5,), "int32", 0, 19), 4, set(range(20))),
        (Box((5,), "int32", 3, 4), 2, {3, 4}),
        (Discrete(8), 8, set(range(8))),
        (Box((5,), "int32", 0, 999), 4, set(range(10))),
    ],
)
def test_each_value_occurs(spec: Box | Discrete, size: int, values: set[int]) -> None:
    batch = np.asarray(batch_of(spec, size, KEY))
    assert batch.shape == (size, *getattr(spec, "shape", ()))
    assert values <= set(batch.ravel().tolist())
    if isinstance(spec, Box):
        assert batch.min() >= spec.low and batch.max() <= spec.high


class Tokens(nn.Module):
    """Embeddings of tokens and of positions, which may skip padding."""

    skips: bool = True
    special: float = 2.0

    @nn.compact
    def __call__(self, ids: jax.Array) -> jax.Array:
        mask = (ids != PADDING).astype(jnp.int32)
        positions = jnp.cumsum(mask, 1) * mask if self.skips else jnp.arange(ids.shape[1]) + 1
        positions = jnp.broadcast_to(positions, ids.shape)
        x = nn.Embed(200, 8, name="word")(ids)
        x = jnp.where((ids == PADDING)[..., None], self.special * x, x)
        return nn.Dense(4, name="head")(x + nn.Embed(9, 8, name="position")(positions))


INPUTS = Box((6,), "int32", 0, 199)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("port", "name"),
    [(Tokens(skips=False), "padding_positions"), (Tokens(special=3.0), "constant")],
)
def test_a_token_that_few_examples_have(port: Tokens, name: str) -> None:
    report = diff_networks(Tokens(), port, INPUTS)
    assert report.verdict == "different"
    assert {cause.name for cause in report.causes} == {name}
    assert report.first_difference is not None


def test_equal_networks_of_tokens() -> None:
    assert diff_networks(Tokens(), Tokens(), INPUTS).verdict == "identical"
