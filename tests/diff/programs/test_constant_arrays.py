"""Tables of constants that differ are named, and products of data are no resize."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.core.specs import Box
from triglot.diff.compare import diff_networks

HEIGHT, WIDTH, DIM = 3, 3, 8


def angles(both_axes: bool) -> np.ndarray:
    """Return the angles of rows, and of columns or of rows again."""
    frequencies = 1 / 100 ** (np.arange(0, 4, 2) / 4)
    place = np.arange(HEIGHT * WIDTH)
    rows, columns = (axis[:, None] * np.tile(frequencies, 2) for axis in divmod(place, WIDTH))
    return np.concatenate([rows, columns if both_axes else rows], -1).astype(np.float32)


class Rotary(nn.Module):
    """One head of attention with rotary embeddings of images."""

    both_axes: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        query, key, value = (nn.Dense(DIM, name=name)(x) for name in ("query", "key", "value"))
        table = angles(self.both_axes)

        def rotated(tokens: jax.Array) -> jax.Array:
            first, second = jnp.split(tokens, 2, -1)
            turned = jnp.concatenate([-second, first], -1)
            return tokens * np.cos(table)[None] + turned * np.sin(table)[None]

        logits = rotated(query) @ rotated(key).swapaxes(-1, -2) / np.float32(DIM**0.5)
        return nn.Dense(4, name="out")(nn.softmax(logits) @ value)


@pytest.mark.library_promotion("Linen's Dense and arrays of NumPy")
def test_tables_of_positions_that_differ_are_the_cause() -> None:
    report = diff_networks(
        Rotary(both_axes=True), Rotary(both_axes=False), Box((HEIGHT * WIDTH, 6)), level="quick"
    )
    [cause] = report.causes
    assert cause.name == "constant" and f"{DIM}]" in cause.evidence
