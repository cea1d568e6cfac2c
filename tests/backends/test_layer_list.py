"""The list of layers is complete, and what is not on it is refused with a reason."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import chex
import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import keras
import pytest
from flax import nnx

from tests.backends.layer_cases import Built, channels_first, convolution, network, transposed
from triglot import translate
from triglot.backends.libraries import LIBRARIES
from triglot.core.errors import Guessed, TriglotError
from triglot.core.network import Network, Variables
from triglot.core.specs import Box

pytestmark = pytest.mark.library_promotion("flax's and equinox's norms broadcast")

PUBLIC = {
    "haiku": ((hk, hk.nets), hk.Module),
    "linen": ((nn,), nn.Module),
    "nnx": ((nnx,), nnx.Module),
    "equinox": ((eqx.nn,), eqx.Module),
    "keras": ((keras.layers,), keras.Layer),
}

# Classes without arrays or a formula; those that hold layers hold listed ones.
WITHOUT_PARAMETERS = {
    "haiku": "Module AvgPool MaxPool Flatten Reshape Sequential MLP MobileNetV1 ResNet ResNet18 "
    "ResNet34 ResNet50 ResNet101 ResNet152 ResNet200 SeparableDepthwiseConv2D RNNCore DeepRNN "
    "IdentityCore ResetCore",
    "linen": "Module Sequential Dropout RNN RNNCellBase Bidirectional",
    "nnx": "Module Dict List Sequential Dropout RNN RNNCellBase Bidirectional",
    "equinox": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d "
    "AdaptiveMaxPool2d AdaptiveMaxPool3d AdaptivePool AvgPool1d AvgPool2d AvgPool3d MaxPool1d "
    "MaxPool2d MaxPool3d Pool Dropout Identity Lambda MLP RotaryPositionalEmbedding Sequential "
    "Shared StateIndex StatefulLayer",
    "keras": "ActivityRegularization AdaptiveAveragePooling1D AdaptiveAveragePooling2D "
    "AdaptiveAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D "
    "Add AlphaDropout AugMix AutoContrast Average AveragePooling1D AveragePooling2D "
    "AveragePooling3D Bidirectional CategoryEncoding CenterCrop Concatenate "
    "ContrastLimitedAdaptiveHistogramEqualization Cropping1D Cropping2D Cropping3D CutMix "
    "Discretization Dot Dropout Equalization GRU GaussianDropout GaussianNoise "
    "GlobalAveragePooling1D GlobalAveragePooling3D GlobalMaxPooling1D "
    "GlobalMaxPooling2D GlobalMaxPooling3D HashedCrossing Hashing Identity InputLayer "
    "IntegerLookup LSTM Lambda Layer Masking MaxNumBoundingBoxes MaxPooling1D "
    "MaxPooling2D MaxPooling3D Maximum MelSpectrogram Minimum MixUp Multiply Permute Pipeline "
    "RNN RandAugment RandomBrightness RandomColorDegeneration RandomColorJitter "
    "RandomContrast RandomCrop RandomElasticTransform RandomErasing RandomFlip "
    "RandomGaussianBlur RandomGrayscale RandomHue RandomInvert RandomPerspective "
    "RandomPosterization RandomRotation RandomSaturation RandomSharpness RandomShear "
    "RandomTranslation RandomZoom RepeatVector Rescaling Reshape Resizing SimpleRNN "
    "Solarization SpatialDropout1D SpatialDropout2D SpatialDropout3D StackedRNNCells "
    "StringLookup Subtract TextVectorization TimeDistributed UnitNormalization UpSampling1D "
    "UpSampling2D UpSampling3D Wrapper ZeroPadding1D ZeroPadding2D ZeroPadding3D",
}

# Their arrays are state, with which `translate` refuses a network.
STATE_ONLY = {
    "haiku": "EMAParamsTree ExponentialMovingAverage SNParamsTree SpectralNorm VectorQuantizerEMA",
    "linen": "Fp8DirectDotGeneralOp Fp8DotGeneral Fp8DotGeneralOp Fp8Einsum NANOOFp8DotGeneralOp",
    "keras": "Normalization",
}


@pytest.mark.parametrize("library", PUBLIC)
def test_every_public_layer_is_on_exactly_one_list(library: str) -> None:
    modules, base = PUBLIC[library]
    public = sorted(
        {
            member.__name__ if library == "keras" else name  # Keras's have several names
            for module in modules
            for name, member in vars(module).items()
            if inspect.isclass(member) and issubclass(member, base) and name[0] != "_"
        }
    )
    others = f"{WITHOUT_PARAMETERS[library]} {STATE_ONLY.get(library, '')}".split()
    if library == "nnx" and "RoPE" in public:  # of Flax 0.12.12
        others.append("RoPE")
    if library == "keras":
        others.append("JaxLayer")  # the name of a base of every layer, so it cannot be listed
    assert sorted([*LIBRARIES[library].storage.layers, *others]) == public


def test_a_layer_is_known_or_refused_with_a_reason() -> None:
    for library in LIBRARIES.values():
        for layer in library.storage.layers.values():
            is_known = layer.parameters or layer.formula or layer.wraps
            assert bool(is_known) != bool(layer.refused)


def one(library: str, *built: Built, shape: tuple[int, ...] = (3,)) -> Network:
    return network(library, Box(shape), built)


Later: TypeAlias = Callable[[], Network]
later = partial(partial, one)


def dense(library: str) -> Network:
    make: dict[str, Callable[[Any], Any]] = {
        "haiku": lambda name: hk.Linear(3, name=name),
        "linen": lambda name: nn.Dense(3, name=name),
        "nnx": lambda rngs: nnx.Linear(3, 3, rngs=rngs),
        "equinox": lambda key: eqx.nn.Linear(3, 3, key=key),
        "keras": lambda _: keras.layers.Dense(3),
    }
    return one(library, Built(make[library]))


class CustomHaiku(hk.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ hk.get_parameter("w", (3, 3), init=hk.initializers.RandomNormal())


class CustomLinen(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.param("kernel", nn.initializers.normal(), (3, 3)).T


class CustomEquinox(eqx.Module):
    kernel: jax.Array

    def __init__(self, key: jax.Array) -> None:
        self.kernel = jax.random.normal(key, (3, 3))

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.kernel @ x


class TransposedDense(nn.Dense):
    """A subclass of a listed layer that stores its kernel in another layout."""

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        kernel = self.param("kernel", nn.initializers.normal(), (3, 3))
        return inputs @ kernel.T + self.param("bias", nn.initializers.normal(), (3,))


class TurnedDense(keras.layers.Dense):
    """A subclass that multiplies by the transposed kernel."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        kernel: Any = self.kernel
        return inputs @ kernel.value.T


def keras_gru(layer: Any, x: jax.Array) -> jax.Array:
    return layer(x, x)[0]


class Renamed(nn.Dense):
    """A subclass that computes what its base does."""


CUSTOM = {
    "haiku": later("haiku", Built(lambda name: CustomHaiku(name=name))),
    "linen": later("linen", Built(lambda name: CustomLinen(name=name))),
    "equinox": later("equinox", Built(CustomEquinox)),
}


def several(axes: Any) -> dict[str, Any]:
    return {"reduction_axes": axes, "feature_axes": axes}


STACKED = {
    "linen": later(
        "linen",
        Built(
            lambda name: nn.vmap(
                nn.Dense,
                variable_axes={"params": 1},
                split_rngs={"params": True},
                in_axes=None,  # pyright: ignore[reportArgumentType]
                axis_size=3,
            )(3, name=name)
        ),
    ),
    "equinox": later(
        "equinox",
        Built(
            lambda key: eqx.filter_vmap(lambda k: eqx.nn.Linear(3, 3, key=k))(
                jax.random.split(key, 3)
            ),
            lambda layers, x: eqx.filter_vmap(lambda layer: layer(x))(layers),
        ),
    ),
}

REFUSED: dict[str, tuple[Later, Later, str]] = {
    "a custom matrix, equal names": (
        CUSTOM["haiku"],
        CUSTOM["equinox"],
        r"from haiku 'haiku' to equinox .*the layout of 'layers_0/w' is unknown: it belongs to "
        r".*CustomHaiku, and only its author.*mapping=\{'layers_0/w': '\.layers\[0\]\.kernel'",
    ),
    "a custom matrix and a dense layer": (
        later("linen", Built(lambda name: nn.Dense(3, use_bias=False, name=name))),
        CUSTOM["equinox"],
        r"it belongs to .*CustomEquinox",
    ),
    "a subclass that computes something else": (
        partial(dense, "haiku"),
        later("linen", Built(lambda name: TransposedDense(3, name=name))),
        r"it belongs to .*TransposedDense",
    ),
    "stacked layers": (
        STACKED["linen"],
        STACKED["equinox"],
        r"stacked along another axis than the first",
    ),
    "a norm over several axes": (
        later(
            "linen",
            Built(lambda name: nn.LayerNorm(**several((-3, -2, -1)), name=name)),
            shape=(3, 3, 3),
        ),
        later("equinox", Built(lambda key: eqx.nn.LayerNorm((3, 3, 3)), channels_first)),
        r"belongs to linen's LayerNorm, but the layer normalizes or scales other axes",
    ),
    "a norm over several axes, in Equinox": (
        later("equinox", Built(lambda key: eqx.nn.LayerNorm((3, 3)), channels_first)),
        later(
            "linen",
            Built(lambda name: nn.LayerNorm(**several((-2, -1)), name=name)),
            shape=(3, 3),
        ),
        r"belongs to equinox's LayerNorm, but it has several axes",
    ),
    "a convolution and a transposed one": (
        later("haiku", convolution(3, 3, (3, 3)).built["haiku"], shape=(5, 5, 3)),
        later("linen", transposed(3, 3, (3, 3)).built["linen"], shape=(5, 5, 3)),
        r"belongs to a convolution, 'layers_0/.*' to a transposed convolution",
    ),
    "two kinds of norms": (
        later("haiku", Built(lambda name: hk.RMSNorm(-1, name=name))),
        later("linen", Built(lambda name: nn.LayerNorm(use_bias=False, name=name))),
        r"belongs to RMS normalization, 'layers_0/scale' to layer normalization",
    ),
    "weight normalization with other norms": (
        later("linen", Built(lambda name: nn.WeightNorm(nn.Dense(3, name=name)))),
        later(
            "equinox",
            Built(lambda key: eqx.nn.WeightNorm(eqx.nn.Linear(3, 3, key=key), axis=None)),
        ),
        r"weight normalization of each output, the second to .* of the whole kernel",
    ),
    "weight normalization and none": (
        later("linen", Built(lambda name: nn.WeightNorm(nn.Dense(3, name=name), use_scale=False))),
        partial(dense, "nnx"),
        r"belongs to weight normalization of each output, the second to a dense layer",
    ),
    "NNX's weight normalization and none": (
        later(
            "nnx",
            Built(
                lambda rngs: nnx.WeightNorm(nnx.Linear(3, 3, rngs=rngs), use_scale=False, rngs=rngs)
            ),
        ),
        partial(dense, "haiku"),
        r"belongs to weight normalization of each output, the second to a dense layer",
    ),
    "NNX's scales, which are no parameters": (
        later("nnx", Built(lambda rngs: nnx.WeightNorm(nnx.Linear(3, 3, rngs=rngs), rngs=rngs))),
        later("linen", Built(lambda name: nn.WeightNorm(nn.Dense(3, name=name)))),
        r"has state besides its parameters",
    ),
    "weight normalization of all arrays": (
        later(
            "linen",
            Built(lambda name: nn.WeightNorm(nn.Dense(3, name=name), variable_filter=None)),
        ),
        later("equinox", Built(lambda key: eqx.nn.WeightNorm(eqx.nn.Linear(3, 3, key=key)))),
        r"linen's WeightNorm, but it normalizes all arrays",
    ),
    "weight normalization of a custom layer": (
        later("linen", Built(lambda name: nn.WeightNorm(CustomLinen(name=name)))),
        later("equinox", Built(lambda key: eqx.nn.WeightNorm(eqx.nn.Linear(3, 3, key=key)))),
        r"linen's WeightNorm, but the layer that it wraps is not listed",
    ),
    "low-rank adaptation": (
        later("nnx", Built(lambda rngs: nnx.LoRALinear(3, 3, lora_rank=3, rngs=rngs))),
        partial(dense, "haiku"),
        r"nnx's LoRALinear: no other library has it",
    ),
    "a local convolution": (
        later("linen", Built(lambda name: nn.ConvLocal(3, (1,), name=name)), shape=(1, 3)),
        later("linen", Built(lambda name: nn.Conv(3, (1,), name=name)), shape=(1, 3)),
        r"linen's ConvLocal: no other library has it",
    ),
    "a Keras layer of einsum": (
        later("keras", Built(lambda _: keras.layers.EinsumDense("ab,bc->ac", 3))),
        partial(dense, "linen"),
        r"keras's EinsumDense: its einsum string",
    ),
    "a Keras layer that computes something else": (
        partial(dense, "haiku"),
        later("keras", Built(lambda _: TurnedDense(3))),
        r"it belongs to .*TurnedDense",
    ),
    "two GRUs with the reset gate before the product": (
        later("keras", Built(lambda _: keras.layers.GRUCell(3, reset_after=False), keras_gru)),
        later("haiku", Built(lambda name: hk.GRU(3, name=name), lambda layer, x: layer(x, x)[0])),
        r"keeps the carry where the update gate is 1.* different functions",
    ),
    "an einsum": (
        later("linen", Built(lambda name: nn.Einsum((3, 3), "...a,ba->...b", False, name=name))),
        later("nnx", Built(lambda rngs: nnx.Einsum("...a,ab->...b", (3, 3), rngs=rngs))),
        r"linen's Einsum: its einsum string",
    ),
}


@pytest.mark.covering(4)
@pytest.mark.parametrize(("source", "target", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_on_the_list_is_refused(source: Later, target: Later, words: str) -> None:
    one, other = source(), target()
    with pytest.raises(TriglotError, match=words) as caught:
        translate(one.init(jax.random.key(0)), one, other)
    assert "\n" not in str(caught.value)
    with pytest.raises(TriglotError):
        translate(other.init(jax.random.key(0)), other, one)


def test_a_custom_matrix_is_translated_as_the_mapping_says() -> None:
    source, target, x = CUSTOM["haiku"](), CUSTOM["linen"](), jnp.eye(3)
    variables = source.init(jax.random.key(0))
    name = "layers/0/kernel"
    with pytest.raises(TriglotError, match="the layout of 'layers_0/w' is unknown"):
        translate(variables, source, target, {"layers": "layers"})
    stored_alike = translate(variables, source, target, {name: name})
    chex.assert_trees_all_equal(
        jax.tree.leaves(stored_alike.params), jax.tree.leaves(variables.params)
    )
    moved = translate(variables, source, target, {name: (name, jnp.transpose)})
    chex.assert_trees_all_close(source.apply(variables, x)[0], target.apply(moved, x)[0])


def test_a_custom_matrix_goes_to_the_same_layer_elsewhere() -> None:
    source, target = CUSTOM["linen"](), one("linen", Built(lambda name: CustomLinen(name=name)))
    variables = source.init(jax.random.key(0))
    chex.assert_trees_all_equal(translate(variables, source, target), variables)


def test_a_subclass_that_computes_what_its_base_does_is_its_base() -> None:
    source, target = one("linen", Built(lambda name: Renamed(3, name=name))), dense("equinox")
    variables, x = source.init(jax.random.key(0)), jnp.eye(3)
    moved = translate(variables, source, target)
    chex.assert_trees_all_close(source.apply(variables, x)[0], target.apply(moved, x)[0])


def test_transposed_convolutions_are_guessed_right_by_shape() -> None:
    built, shape = transposed(3, 3, (3, 3)).built, (4, 3, 3)
    unnamed = Built(lambda name: hk.Conv2DTranspose(3, 3, padding="VALID"))
    source = one("haiku", unnamed, shape=shape)
    target = one("equinox", built["equinox"], shape=shape)
    variables = source.init(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (2, *shape))
    with pytest.warns(Guessed):
        moved = translate(variables, source, target)
    chex.assert_trees_all_close(
        source.apply(variables, x)[0], target.apply(moved, x)[0], rtol=1e-4, atol=1e-5
    )


NORMED = {
    "haiku": Built(
        lambda name: hk.BatchNorm(True, True, 0.9, name=name), lambda layer, x: layer(x, True)
    ),
    "linen": Built(lambda name: nn.BatchNorm(use_running_average=False, name=name)),
    "nnx": Built(lambda rngs: nnx.BatchNorm(3, rngs=rngs)),
    "equinox": Built(lambda key: eqx.nn.BatchNorm(3, "batch", mode="batch")),
    "keras": Built(lambda _: keras.layers.BatchNormalization()),
}


@pytest.mark.parametrize("library", ["haiku", "linen", "nnx", "keras"])
def test_batch_normalization_has_statistics_which_are_refused(library: str) -> None:
    source, target = one(library, NORMED[library], shape=(2, 3)), dense("equinox")
    assert source.codec is not None
    variables = source.init(jax.random.key(0))
    encoded = source.codec.encode(variables.params)
    assert {name: array.shape for name, array in encoded.items()} == {
        "layers/0/scale": (3,),
        "layers/0/bias": (3,),
    }
    chex.assert_trees_all_equal(source.codec.decode(encoded), variables.params)
    with pytest.raises(TriglotError, match="copy statistics by hand"):
        translate(variables, source, target)


@pytest.mark.slow
def test_a_separable_convolution_is_two_depthwise_ones() -> None:
    shape = (5, 4, 3)
    source = one(
        "haiku",
        Built(
            lambda name: hk.SeparableDepthwiseConv2D(  # pyright: ignore[reportPrivateImportUsage]
                2, 3, padding="VALID", name=name
            )
        ),
        shape=shape,
    )
    target = one(
        "equinox",
        Built(
            lambda key: eqx.nn.Conv2d(3, 6, (3, 1), groups=3, use_bias=False, key=key),
            channels_first,
        ),
        Built(lambda key: eqx.nn.Conv2d(6, 6, (1, 3), groups=6, key=key), channels_first),
        shape=shape,
    )
    variables = source.init(jax.random.key(0))
    place = "layers/0/depthwise/conv2/d"
    mapping = {place: "layers/0", f"{place}/1": "layers/1"}
    moved = translate(variables, source, target, mapping)
    x = jax.random.normal(jax.random.key(1), (2, *shape))

    def gradient(built: Network, variables: Variables) -> Variables:
        def loss(params: Any) -> jax.Array:
            return jnp.sum(jnp.sin(built.apply(replace(variables, params=params), x)[0]))

        return replace(variables, params=jax.grad(loss)(variables.params))

    chex.assert_trees_all_close(
        source.apply(variables, x)[0], target.apply(moved, x)[0], rtol=1e-4, atol=1e-5
    )
    expected = translate(gradient(source, variables), source, target, mapping)
    chex.assert_trees_all_close(
        gradient(target, moved).params, expected.params, rtol=1e-4, atol=1e-5
    )
