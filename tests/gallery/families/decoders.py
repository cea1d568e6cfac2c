"""Encoders and decoders of images: U-Net, an autoencoder with resizing, VAE, VQ."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp

from triglot.backends.keras.importing import import_keras
from triglot.core.specs import Box

from ..pair import Bug, Pair

keras = import_keras()
kl = keras.layers


def keras_unet(width=8, image=16):
    """Ronneberger et al. 2015, with transposed convolutions; a functional model."""

    def double(x, width):
        for _ in range(2):
            x = kl.Conv2D(width, 3, padding="same", activation="relu")(x)
        return x

    inputs = keras.Input((image, image, 3))
    first = double(inputs, width)
    second = double(kl.MaxPooling2D()(first), 2 * width)  # counterpart: mean_pooling
    x = double(kl.MaxPooling2D()(second), 4 * width)
    for skip, size in ((second, 2 * width), (first, width)):
        x = kl.Conv2DTranspose(size, 3, 2, padding="same")(x)  # counterpart: up_bias, crop
        x = double(kl.Concatenate()([skip, x]), size)  # counterpart: skip_last
    return keras.Model(inputs, kl.Conv2D(2, 1)(x))


class LinenUNet(nn.Module):
    width: int = 8
    image: int = 16
    bug: str = ""

    @nn.compact
    def __call__(self, x):
        def double(x, width):
            for _ in range(2):
                x = nn.relu(nn.Conv(width, (3, 3))(x))
            return x

        def up(x, width):
            # Keras crops the last row and column.
            bias = self.bug != "up_bias"  # planted: up_bias
            layer = nn.ConvTranspose(
                width, (3, 3), (2, 2), "VALID", use_bias=bias, transpose_kernel=True
            )
            y = layer(x)  # planted: up_bias, crop
            return y[:, 1:, 1:] if self.bug == "crop" else y[:, :-1, :-1]  # planted: crop

        pool = nn.avg_pool if self.bug == "mean_pooling" else nn.max_pool  # planted: mean_pooling
        first = double(x, self.width)
        second = double(pool(first, (2, 2), (2, 2)), 2 * self.width)  # planted: mean_pooling
        x = double(pool(second, (2, 2), (2, 2)), 4 * self.width)  # planted: mean_pooling
        for skip, size in ((second, 2 * self.width), (first, self.width)):
            x = up(x, size)
            parts = [x, skip] if self.bug == "skip_last" else [skip, x]  # planted: skip_last
            x = double(jnp.concatenate(parts, -1), size)  # planted: skip_last
        return nn.Conv(2, (1, 1))(x)


class LinenAutoencoder(nn.Module):
    """Convolutions and bilinear resizing (Odena et al. 2016)."""

    widths: tuple[int, ...] = (8, 16)

    @nn.compact
    def __call__(self, image):
        x = image
        for width in self.widths:
            x = nn.relu(nn.Conv(width, (3, 3), (2, 2))(x))
        for width in self.widths[::-1]:
            size = (len(x), 2 * x.shape[1], 2 * x.shape[2], x.shape[3])
            x = jax.image.resize(x, size, "bilinear")  # counterpart: corners, nearest
            x = nn.relu(nn.Conv(width, (3, 3))(x))
        x = nn.Conv(3, (3, 3))(x)
        return jnp.clip(x, 0.0, 1.0)  # counterpart: minus_one


class EquinoxAutoencoder(eqx.Module):
    encoder: list[eqx.nn.Conv2d]
    decoder: list[eqx.nn.Conv2d]
    bug: str = eqx.field(static=True)

    def __init__(self, widths, bug, key):
        keys = iter(jax.random.split(key, 2 * len(widths) + 1))
        self.encoder, self.decoder, self.bug, inputs = [], [], bug, 3
        for width in widths:
            conv = eqx.nn.Conv2d(inputs, width, 3, 2, "SAME", key=next(keys))
            self.encoder.append(conv)
            inputs = width
        for width in (*widths[::-1], 3):
            self.decoder.append(eqx.nn.Conv2d(inputs, width, 3, padding=1, key=next(keys)))
            inputs = width

    def resized(self, x):
        size = (len(x), 2 * x.shape[1], 2 * x.shape[2])
        if self.bug == "corners":
            for axis in (1, 2):
                x = align_corners(x, size[axis], axis)  # planted: corners
            return x
        method = "nearest" if self.bug == "nearest" else "bilinear"  # planted: nearest
        return jax.image.resize(x, size, method)  # planted: nearest, corners

    def __call__(self, image):
        x = jnp.moveaxis(image, -1, 0)
        for conv in self.encoder:
            x = jax.nn.relu(conv(x))
        for conv in self.decoder[:-1]:
            x = jax.nn.relu(conv(self.resized(x)))  # planted: corners, nearest
        x = jnp.moveaxis(self.decoder[-1](x), 0, -1)
        least = -1.0 if self.bug == "minus_one" else 0.0  # planted: minus_one
        return jnp.clip(x, least, 1.0)  # planted: minus_one


def align_corners(x, size, axis):
    """Interpolate so that the first and last pixels stay where they are."""
    places = jnp.linspace(0.0, x.shape[axis] - 1.0, size)
    low = jnp.clip(jnp.floor(places).astype(jnp.int32), 0, x.shape[axis] - 2)
    share = (places - low).reshape([-1 if each == axis else 1 for each in range(x.ndim)])
    before, after = jnp.take(x, low, axis), jnp.take(x, low + 1, axis)
    return (1 - share) * before + share * after  # planted: corners


def equinox_autoencoder(widths=(8, 16), bug=""):
    return lambda key: EquinoxAutoencoder(widths, bug, key)


def haiku_vae(width=8, latents=4, image=8):
    """Kingma & Welling 2014; it decodes the mean, and draws nothing."""

    def network(images):
        x = images
        for size in (width, 2 * width):
            x = jax.nn.relu(hk.Conv2D(size, 3, 2)(x))
        x = hk.Linear(2 * latents, name="moments")(hk.Flatten()(x))  # counterpart: vae_flatten
        mean, log_variance = jnp.split(x, 2, -1)
        log_variance = jnp.clip(log_variance, -10.0, 2.0)
        std = jnp.exp(0.5 * log_variance)  # counterpart: variance, softplus
        side = image // 4
        x = jax.nn.relu(hk.Linear(side * side * 2 * width, name="decode")(mean))
        x = x.reshape(-1, side, side, 2 * width)
        for size in (width, 3):
            x = hk.Conv2DTranspose(size, 4, 2)(jax.nn.relu(x))
        return jax.nn.sigmoid(x), mean, std  # counterpart: no_sigmoid

    return network


class LinenVAE(nn.Module):
    width: int = 8
    latents: int = 4
    image: int = 8
    bug: str = ""

    @nn.compact
    def __call__(self, images):
        x = images
        for size in (self.width, 2 * self.width):
            x = nn.relu(nn.Conv(size, (3, 3), (2, 2))(x))
        if self.bug == "vae_flatten":
            x = x.transpose(0, 3, 1, 2)  # planted: vae_flatten
        x = nn.Dense(2 * self.latents)(x.reshape(len(x), -1))  # planted: vae_flatten
        mean, log_variance = jnp.split(x, 2, -1)
        log_variance = jnp.clip(log_variance, -10.0, 2.0)
        factor = 1.0 if self.bug == "variance" else 0.5  # planted: variance
        std = jnp.exp(factor * log_variance)  # planted: variance, softplus
        if self.bug == "softplus":
            std = nn.softplus(factor * log_variance)  # planted: softplus
        side = self.image // 4
        x = nn.relu(nn.Dense(side * side * 2 * self.width)(mean))
        x = x.reshape(-1, side, side, 2 * self.width)
        for size in (self.width, 3):
            x = nn.ConvTranspose(size, (4, 4), (2, 2))(nn.relu(x))
        x = x if self.bug == "no_sigmoid" else nn.sigmoid(x)  # planted: no_sigmoid
        return x, mean, std  # planted: no_sigmoid


class LinenVQ(nn.Module):
    """Van den Oord et al. 2017: the nearest code, whose gradient is passed straight through."""

    codes: int = 6
    width: int = 8

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(nn.relu(nn.Dense(2 * self.width)(x)))
        book = self.param("book", nn.initializers.normal(1.0), (self.codes, self.width))
        distances = jnp.sum((x[..., None, :] - book) ** 2, -1)  # counterpart: inner_product
        nearest = book[jnp.argmin(distances, -1)]  # counterpart: inner_product
        quantized = x + jax.lax.stop_gradient(nearest - x)  # counterpart: no_gradient
        commitment = jnp.mean((x - jax.lax.stop_gradient(nearest)) ** 2, -1)  # counterpart: moved
        codes = jnp.mean((jax.lax.stop_gradient(x) - nearest) ** 2, -1)
        x = nn.Dense(4)(nn.relu(nn.Dense(2 * self.width)(quantized)))
        return x, codes + 0.25 * commitment


class EquinoxVQ(eqx.Module):
    layers: list[eqx.nn.Linear]
    book: jax.Array
    bug: str = eqx.field(static=True)

    def __init__(self, codes, width, bug, key):
        keys = jax.random.split(key, 5)
        sizes = [(5, 2 * width), (2 * width, width), (width, 2 * width), (2 * width, 4)]
        layers = zip(sizes, keys[1:], strict=True)
        self.layers = [eqx.nn.Linear(*size, key=each) for size, each in layers]
        self.book = jax.random.normal(keys[0], (codes, width))
        self.bug = bug

    def __call__(self, x):
        x = self.layers[1](jax.nn.relu(self.layers[0](x)))
        if self.bug == "inner_product":
            chosen = jnp.argmax(self.book @ x)  # planted: inner_product
        else:
            chosen = jnp.argmin(jnp.sum((x - self.book) ** 2, -1))
        nearest = self.book[chosen]  # planted: inner_product
        stopped = jax.lax.stop_gradient
        passed = x + stopped(nearest - x)
        passed = nearest if self.bug == "no_gradient" else passed  # planted: no_gradient
        codes = jnp.mean((stopped(x) - nearest) ** 2)
        target = nearest if self.bug == "moved" else stopped(nearest)  # planted: moved
        commitment = jnp.mean((x - target) ** 2)  # planted: moved
        x = self.layers[2](passed)  # planted: no_gradient
        return self.layers[3](jax.nn.relu(x)), codes + 0.25 * commitment


def equinox_vq(codes=6, width=8, bug=""):
    return lambda key: EquinoxVQ(codes, width, bug, key)


PAIRS = (
    Pair(
        name="unet",
        source="Ronneberger et al. 2015",
        libraries=("keras", "linen"),
        one=keras_unet,
        other=LinenUNet,
        inputs=lambda image=16, **_: Box((image, image, 3)),
        bugs=(
            Bug("up_bias", ("missing_bias",), "no biases in the transposed convolutions"),
            Bug("crop", ("padding",), "crops the first row and column, not the last"),
            Bug(
                "skip_last",
                ("concatenation",),
                "joins the skip connection last",
            ),
            Bug("mean_pooling", ("pooling",), "averages where the original takes the maximum"),
        ),
        sizes={"paper": {"width": 64, "image": 256}},
    ),
    Pair(
        name="autoencoder",
        source="Odena et al. 2016",
        libraries=("linen", "equinox"),
        one=LinenAutoencoder,
        other=equinox_autoencoder,
        inputs=Box((16, 16, 3)),
        bugs=(
            Bug("corners", ("bilinear_resize",), "resizes with aligned corners"),
            Bug("nearest", ("upsampling", "bilinear_resize"), "repeats the nearest pixel"),
            Bug("minus_one", ("clip_range",), "clips at -1, not at 0"),
        ),
    ),
    Pair(
        name="vae",
        source="Kingma & Welling 2014",
        libraries=("haiku", "linen"),
        one=haiku_vae,
        other=LinenVAE,
        inputs=lambda image=8, **_: Box((image, image, 3)),
        bugs=(
            Bug("vae_flatten", ("flatten_order",), "flattens channels first"),
            Bug("variance", ("constant",), "returns the variance for the standard deviation"),
            Bug("softplus", ("activation",), "softplus for exp"),
            Bug("no_sigmoid", ("activation",), "leaves out the sigmoid of the pixels"),
        ),
    ),
    Pair(
        name="vq",
        source="van den Oord et al. 2017",
        libraries=("linen", "equinox"),
        one=LinenVQ,
        other=equinox_vq,
        inputs=Box((5,)),
        bugs=(
            Bug("no_gradient", ("stop_gradient",), "passes no gradient straight through"),
            Bug("moved", ("stop_gradient",), "lets the commitment loss move the codes"),
            Bug("inner_product", ("operation_differs",), "chooses by the inner product"),
        ),
    ),
)
