"""Plain JAX's built-in networks, made from a `NetworkSpec`, with parameters by canonical name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.nn.initializers import Initializer, constant, ones, orthogonal, zeros

from ...core.network import Network, Statistic
from ...core.networks.architecture import (
    BATCH_NORM_EPSILON,
    BATCH_NORM_MOMENTUM,
    LAYER_NORM_EPSILON,
    Head,
    NetworkSpec,
    RecurrentCell,
    Table,
)
from ...core.networks.inputs import POOL_SIZE, POOL_STRIDE, Convolution, concatenated
from ...core.networks.noise import dropped, of_layer, sigma_start
from ...core.types import Key, PyTree, abstract_key
from ..calling import InitialCarry, example_arguments
from ..cells import LSTM_GATES
from ..naming import normalize_separators
from ..table.zoo import zoo as table_zoo
from ..zoo.initializers import kernel_initializer
from ..zoo.lifting import activated, inputs_of, lift_zoo, values_of
from .layers import leaf_of
from .network import lift

Arrays: TypeAlias = dict[str, jax.Array]
Read: TypeAlias = Callable[[str, tuple[int, ...], Initializer], jax.Array]
Declared: TypeAlias = dict[str, tuple[tuple[int, ...], Initializer]]


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network whose parameters are stored by canonical name in the canonical layout."""
    if isinstance(spec.torso, Table):
        return replace(table_zoo(spec, name), backend="jax")
    init, apply = make(spec)

    def build(*, name: str, initial_carry: InitialCarry | None = None) -> Network:
        network = lift(init, apply, inputs_of(spec), name, initial_carry, partial(leaf_of, spec))
        state = jax.eval_shape(network.init, abstract_key()).state
        return replace(network, statistics=tuple(map(Statistic, sorted(state))))

    return lift_zoo(build, spec, name)


def make(spec: NetworkSpec) -> tuple[Callable[..., PyTree], Callable[..., PyTree]]:
    """Return the functions of a network.

    Returns:
      `init(key) -> (params, state)`, and `apply(params, state, *inputs, train) -> (outputs, state)`
      of batches `[B, ...]`; the state holds the running statistics.
    """

    def init(key: Key) -> tuple[Arrays, Arrays]:
        params, statistics = _declared(spec)
        keys = jax.random.split(key, len(params))
        return _drawn(params, keys), _drawn(statistics, keys[: len(statistics)])

    def apply(params: Arrays, state: Arrays, *inputs: PyTree, train: bool) -> tuple[PyTree, Arrays]:
        layers = _Layers(spec, _reader(params), _reader(state), train)
        outputs = layers(*inputs)
        return outputs, {**state, **layers.moved}

    return init, apply


def _reader(arrays: Mapping[str, jax.Array]) -> Read:
    return lambda name, *_: arrays[normalize_separators(name)]


def _declared(spec: NetworkSpec) -> tuple[Declared, Declared]:
    """List the shape and the initializer of each parameter and of each running statistic."""
    declared: tuple[Declared, Declared] = {}, {}

    def declaring(into: Declared) -> Read:
        def declare(name: str, shape: tuple[int, ...], init: Initializer) -> jax.Array:
            into[normalize_separators(name)] = shape, init
            return jnp.zeros(shape)

        return declare

    def forward() -> PyTree:
        example = example_arguments(inputs_of(spec), spec.cell and spec.cell.initial_carry)
        params, statistics = map(declaring, declared)
        return _Layers(spec, params, statistics, False)(*example)

    jax.eval_shape(forward)
    return declared


def _drawn(declared: Declared, keys: jax.Array) -> Arrays:
    pairs = zip(declared.items(), keys, strict=True)
    return {name: init(key, shape, jnp.float32) for (name, (shape, init)), key in pairs}


@dataclass(frozen=True)
class _Layers:
    """The layers of a network in one call.

    Attributes:
      spec: the network.
      param: `param(name, shape, initializer)` reads a parameter.
      statistic: reads a running statistic likewise.
      train: whether batch normalization takes the batch's statistics.
      moved: the new running statistics, of a call in training.
    """

    spec: NetworkSpec
    param: Read
    statistic: Read
    train: bool
    moved: Arrays = field(default_factory=dict)

    def __call__(self, *inputs: PyTree) -> PyTree:
        spec = self.spec
        observations, more = spec.split(inputs)
        if spec.cell is None:
            return self._heads(self._torso(spec.parts(observations), more), more)
        features = self._torso(spec.parts(observations), {})
        features, carry = self._cell(features, more, spec.cell)
        return self._heads(features, {}), carry

    def _torso(self, parts: Sequence[jax.Array], noise: Mapping[str, jax.Array]) -> jax.Array:
        torso = self.spec.layers
        convolution = partial(self._convolution, layers=self.spec.convolutions)
        flat = []

        def norm(features: jax.Array, index: int) -> jax.Array:
            return self._norm(features, f"norm/{index}")

        for features, path in zip(parts, self.spec.paths, strict=True):
            if torso.normalize_inputs:
                features = self._norm(features, "norm/input")
            features = path.convolved(
                features, convolution, self._activated, norm, self._activation, _pooled
            )
            flat.append(features.reshape((features.shape[0], -1)))
        features = concatenated(flat)
        for index, width in enumerate(torso.hidden_sizes, self.spec.num_convolutions):
            features = self._dense(features, width, torso.scale, f"torso_{index}", noise)
            features = dropped(features, self.spec, noise, f"torso_{index}")
            features = self._activated(features, index)
        return features

    def _convolution(
        self, features: jax.Array, index: int, layers: Sequence[tuple[int, Convolution]]
    ) -> jax.Array:
        (channels, convolution), name = layers[index], f"torso_{index}"
        shape, init = (
            (convolution.size, convolution.size, channels, convolution.channels),
            self.spec.layers.scale,
        )
        kernel = self.param(f"{name}/kernel", shape, kernel_initializer(init))
        layouts, strides = ("NHWC", "HWIO", "NHWC"), (convolution.stride, convolution.stride)
        features = jax.lax.conv_general_dilated(
            features, kernel, strides, convolution.padding, dimension_numbers=layouts
        )
        return (
            features + self.param(f"{name}/bias", (convolution.channels,), zeros)[None, None, None]
        )

    def _linear(
        self, features: jax.Array, size: int, init: Initializer, bias: Initializer, name: str
    ) -> jax.Array:
        kernel = self.param(f"{name}/kernel", (features.shape[-1], size), init)
        return features @ kernel + self.param(f"{name}/bias", (size,), bias)[None]

    def _dense(
        self,
        features: jax.Array,
        size: int,
        scale: float | None,
        name: str,
        noise: Mapping[str, jax.Array],
    ) -> jax.Array:
        init, start = kernel_initializer(scale), self.spec.noise
        if start is None:
            return self._linear(features, size, init, zeros, name)
        sigma = constant(sigma_start(start, features.shape[-1]))
        before, after = of_layer(noise, name, features.shape[-1])
        mean = self._linear(features, size, init, zeros, f"{name}/mu")
        return mean + after * self._linear(before * features, size, sigma, sigma, f"{name}/sigma")

    @property
    def _activation(self) -> Callable[[jax.Array], jax.Array]:
        return getattr(jax.nn, self.spec.layers.activation)

    def _activated(self, features: jax.Array, index: int) -> jax.Array:
        norm = partial(self._norm, name=f"norm/{index}")
        return activated(self.spec.layers, features, self._activation, norm)

    def _norm(self, features: jax.Array, name: str) -> jax.Array:
        kind, shape = self.spec.layers.normalization, (features.shape[-1],)
        if kind == "none":
            return features
        if kind == "layer":
            mean, var = _moments(features, (-1,))
            epsilon = LAYER_NORM_EPSILON
        else:
            mean, var = self._statistics(features, name)
            epsilon = BATCH_NORM_EPSILON
        features = (features - mean) * jax.lax.rsqrt(var + epsilon)
        scale, bias = (
            self.param(f"{name}/scale", shape, ones),
            self.param(f"{name}/bias", shape, zeros),
        )
        axes = tuple(range(features.ndim - 1))
        return features * jnp.expand_dims(scale, axes) + jnp.expand_dims(bias, axes)

    def _statistics(self, features: jax.Array, name: str) -> tuple[jax.Array, jax.Array]:
        """Return the mean and the variance of batch normalization; training moves them."""
        axes, shape = tuple(range(features.ndim - 1)), features.shape[-1:]
        mean = self.statistic(f"{name}/mean", shape, zeros)
        var = self.statistic(f"{name}/var", shape, ones)
        if not self.train:
            return jnp.expand_dims(mean, axes), jnp.expand_dims(var, axes)
        batch = _moments(features, axes)
        for part, old, new in zip(("mean", "var"), (mean, var), batch, strict=True):
            moved = BATCH_NORM_MOMENTUM * old + (1.0 - BATCH_NORM_MOMENTUM) * new.reshape(shape)
            self.moved[normalize_separators(f"{name}/{part}")] = moved
        return batch

    def _cell(
        self, features: jax.Array, carry: Arrays, cell: RecurrentCell
    ) -> tuple[jax.Array, Arrays]:
        hidden, size = carry["hidden"], (cell.size,)

        def product(inputs: jax.Array, part: str) -> jax.Array:
            init = orthogonal() if part.startswith("recurrent") else kernel_initializer(None)
            return inputs @ self.param(f"cell/{part}/kernel", (inputs.shape[-1], *size), init)

        def bias(part: str) -> jax.Array:
            return self.param(f"cell/{part}/bias", size, zeros)[None]

        def both(gate: str) -> jax.Array:
            added = product(features, f"input/{gate}") + product(hidden, f"recurrent/{gate}")
            return added + bias(gate)

        if cell.kind == "lstm":
            i, f, g, o = map(both, LSTM_GATES)
            memory = jax.nn.sigmoid(f) * carry["cell"] + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
            return hidden, {"hidden": hidden, "cell": memory}
        reset, update = jax.nn.sigmoid(both("r")), jax.nn.sigmoid(both("z"))
        inner = product(hidden, "recurrent/n") + bias("recurrent/n")
        new = jnp.tanh(product(features, "input/n") + bias("n") + reset * inner)
        hidden = (1.0 - update) * new + update * hidden
        return hidden, {"hidden": hidden}

    def _heads(self, features: jax.Array, noise: Mapping[str, jax.Array]) -> Arrays:
        heads = sorted(self.spec.heads)
        return {name: self._head(features, name, head, noise) for name, head in heads}

    def _head(
        self, features: jax.Array, name: str, head: Head, noise: Mapping[str, jax.Array]
    ) -> jax.Array:
        def dense(size: int, suffix: str = "") -> jax.Array:
            return self._dense(features, size, head.scale, f"head_{name}{suffix}", noise)

        if head.size is not None and (start := head.state_independent) is not None:
            bias = self.param(f"head_{name}/bias", (head.size,), constant(start))
            return jnp.broadcast_to(bias, (features.shape[0], head.size))
        return values_of(head, dense)


def _pooled(features: jax.Array) -> jax.Array:
    window, strides = (1, POOL_SIZE, POOL_SIZE, 1), (1, POOL_STRIDE, POOL_STRIDE, 1)
    return jax.lax.reduce_window(features, -jnp.inf, jax.lax.max, window, strides, "SAME")


def _moments(features: jax.Array, axes: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    mean = features.mean(axes, keepdims=True)
    return mean, jnp.square(features - mean).mean(axes, keepdims=True)
