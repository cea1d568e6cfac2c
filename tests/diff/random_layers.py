"""Networks with each random layer that a library ships, between two dense layers."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.core.specs import Box

SPEC = Box((4, 6))  # positions and channels
RATE, KEEP, STD = 0.25, 0.75, 0.5
ALPHA = -1.6732632423543772 * 1.0507009873554805

# The axes of a batch along which all elements share a mask.
SHARED = {"element": (), "channel": (1,), "example": (1, 2), "batch": (0, 1, 2)}


def mask_shape(shape: tuple[int, ...], kind: str) -> tuple[int, ...]:
    return tuple(1 if axis in SHARED[kind] else size for axis, size in enumerate(shape))


def of_function(draw: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """Build the network of plain functions, whose layer is `draw(x, key)`."""

    def init(key: Any) -> Any:
        shapes = {"first": 6, "last": 2}
        return {
            name: {"kernel": jax.random.normal(key, (6, size)), "bias": jnp.zeros(size)}
            for name, size in shapes.items()
        }

    def apply(params: Any, x: Any, key: Any, train: bool) -> Any:
        x = x @ params["first"]["kernel"] + params["first"]["bias"]
        x = draw(x, key) if train else x
        return x @ params["last"]["kernel"] + params["last"]["bias"]

    return init, apply


def dropped(x: Any, key: Any, kind: str) -> Any:
    keep = jax.random.bernoulli(key, KEEP, mask_shape(x.shape, kind))
    return jnp.where(keep, x / KEEP, 0.0)


def alpha_dropped(x: Any, key: Any, kind: str) -> Any:
    keep = jax.random.uniform(key, mask_shape(x.shape, kind)) >= RATE
    scale = (KEEP * (1 + RATE * ALPHA**2)) ** -0.5
    return jnp.where(keep, x, ALPHA) * scale - scale * ALPHA * RATE


def in_linen(draw: Callable[[Any, Any, bool], Any]) -> Any:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool) -> Any:
            x = draw(self, nn.Dense(6, name="first")(x), train)
            return nn.Dense(2, name="last")(x)

    return Net()


def in_nnx(build: Callable[[Any], Any]) -> Any:
    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.first, self.last = nnx.Linear(6, 6, rngs=rngs), nnx.Linear(6, 2, rngs=rngs)
            self.layer = build(rngs)

        def __call__(self, x: Any) -> Any:
            return self.last(self.layer(self.first(x)))

    return Net


def in_haiku(draw: Callable[[Any], Any]) -> Any:
    def net(x: Any, is_training: bool) -> Any:
        x = hk.Linear(6, name="first")(x)
        return hk.Linear(2, name="last")(draw(x) if is_training else x)

    return net


def in_equinox(layer: Any) -> Any:
    class Net(eqx.Module):
        first: Any
        last: Any
        layer: Any

        def __init__(self, key: Any) -> None:
            one, other = jax.random.split(key)
            self.first, self.last = eqx.nn.Linear(6, 6, key=one), eqx.nn.Linear(6, 2, key=other)
            self.layer = layer

        def __call__(self, x: Any, key: Any = None) -> Any:
            x = self.layer(jax.vmap(self.first)(x), key=key)
            return jax.vmap(self.last)(x)

    return Net


class PathDropout(eqx.Module):
    """Drop whole examples, as stochastic depth does."""

    inference: bool = False

    def __call__(self, x: Any, key: Any = None) -> Any:
        return x if self.inference else dropped(x[None], key, "example")[0]


def in_keras(build: Callable[[Any], Any]) -> Any:
    from triglot.backends.keras.importing import import_keras

    keras = import_keras()

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = keras.layers.Dense(6), keras.layers.Dense(2)
            self.layer = build(keras.layers)

        def call(self, x: Any, training: bool = False) -> Any:
            return self.last(self.layer(self.first(x), training=training))

    return Net


def in_torch(build: Callable[[Any], Any]) -> Any:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 2)
            self.layer = build(torch)

        def forward(self, x: Any) -> Any:
            return self.last(self.layer(self.first(x)))

    return Net


def by_channel(torch: Any, layer: Any) -> Any:
    """Apply a layer that reads `[B, channels, positions]`."""

    class Turned(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return self.layer(x.transpose(1, 2)).transpose(1, 2)

    return Turned()


def torch_function(torch: Any, draw: Callable[[Any], Any]) -> Any:
    class Drawn(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return draw(x) if self.training else x

    return Drawn()


def _linen(kind: str) -> Any:
    return lambda: in_linen(
        lambda module, x, train: nn.Dropout(
            RATE, broadcast_dims=SHARED[kind], deterministic=not train
        )(x)
    )


def _linen_noise(module: Any, x: Any, train: bool) -> Any:
    return x + STD * jax.random.normal(module.make_rng("noise"), x.shape) if train else x


def _nnx(kind: str) -> Any:
    return lambda: in_nnx(lambda rngs: nnx.Dropout(RATE, broadcast_dims=SHARED[kind], rngs=rngs))


def _haiku(kind: str) -> Any:
    axes = SHARED[kind]
    return lambda: in_haiku(lambda x: hk.dropout(hk.next_rng_key(), RATE, x, axes))


def _torch_path(torch: Any, x: Any) -> Any:
    return x * torch.bernoulli(torch.full((x.shape[0], 1, 1), KEEP)) / KEEP


# By kind and library; networks of one kind have the same distribution.
LAYERS: dict[tuple[str, str], Callable[[], Any]] = {
    **{(kind, "linen"): _linen(kind) for kind in SHARED},
    **{(kind, "nnx"): _nnx(kind) for kind in SHARED},
    **{(kind, "haiku"): _haiku(kind) for kind in SHARED},
    **{
        (kind, "jax"): lambda kind=kind: of_function(lambda x, key: dropped(x, key, kind))
        for kind in SHARED
    },
    ("element", "equinox"): lambda: in_equinox(eqx.nn.Dropout(RATE)),
    ("example", "equinox"): lambda: in_equinox(PathDropout()),
    ("element", "keras"): lambda: in_keras(lambda layers: layers.Dropout(RATE)),
    ("channel", "keras"): lambda: in_keras(lambda layers: layers.SpatialDropout1D(RATE)),
    ("example", "keras"): lambda: in_keras(
        lambda layers: layers.Dropout(RATE, noise_shape=(None, 1, 1))
    ),
    ("batch", "keras"): lambda: in_keras(
        lambda layers: layers.Dropout(RATE, noise_shape=(1, 1, 1))
    ),
    ("element", "torch"): lambda: in_torch(lambda torch: torch.nn.Dropout(RATE)),
    ("channel", "torch"): lambda: in_torch(
        lambda torch: by_channel(torch, torch.nn.Dropout1d(RATE))
    ),
    ("example", "torch"): lambda: in_torch(
        lambda torch: torch_function(torch, lambda x: _torch_path(torch, x))
    ),
    ("noise", "linen"): lambda: in_linen(_linen_noise),
    ("noise", "jax"): lambda: of_function(lambda x, key: x + STD * jax.random.normal(key, x.shape)),
    ("noise", "keras"): lambda: in_keras(lambda layers: layers.GaussianNoise(STD)),
    ("noise", "torch"): lambda: in_torch(
        lambda torch: torch_function(torch, lambda x: x + STD * torch.randn(x.shape))
    ),
    ("factor", "jax"): lambda: of_function(
        lambda x, key: x * (1 + (RATE / KEEP) ** 0.5 * jax.random.normal(key, x.shape))
    ),
    ("factor", "keras"): lambda: in_keras(lambda layers: layers.GaussianDropout(RATE)),
    ("alpha", "jax"): lambda: of_function(lambda x, key: alpha_dropped(x, key, "element")),
    ("alpha", "keras"): lambda: in_keras(lambda layers: layers.AlphaDropout(RATE)),
    ("alpha", "torch"): lambda: in_torch(lambda torch: torch.nn.AlphaDropout(RATE)),
    ("channel alpha", "jax"): lambda: of_function(lambda x, key: alpha_dropped(x, key, "channel")),
    ("channel alpha", "torch"): lambda: in_torch(
        lambda torch: by_channel(torch, torch.nn.FeatureAlphaDropout(RATE))
    ),
    ("slope", "jax"): lambda: of_function(
        lambda x, key: jnp.where(x < 0, x * jax.random.uniform(key, x.shape, minval=0.1), x)
    ),
}
