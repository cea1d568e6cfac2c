"""The port of `my_linen.cnn` to NNX."""

import jax
from flax import nnx


class CNN(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(4, 8, (8, 8), strides=4, padding="VALID", rngs=rngs)
        self.out = nnx.Linear(20 * 20 * 8, 6, rngs=rngs)

    def __call__(self, obs: jax.Array) -> jax.Array:
        x = jax.nn.relu(self.conv(obs))
        return self.out(x.reshape(len(x), -1))
