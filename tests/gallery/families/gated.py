"""DenseNet, squeeze-and-excitation, highway network, dropout."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.core.specs import Box

from ..pair import Bug, Pair


class LinenDenseNet(nn.Module):
    """Huang et al. 2017, with bottlenecks, and transitions that halve the channels."""

    growth: int = 4
    layers: tuple[int, ...] = (2, 2)

    @nn.compact
    def __call__(self, x, train: bool):
        def activated(x):
            return nn.relu(nn.BatchNorm(not train, momentum=0.9)(x))

        def conv(x, width, size):
            return nn.Conv(width, (size, size), use_bias=False)(x)

        x = conv(x, 2 * self.growth, 3)
        for stage, count in enumerate(self.layers):
            if stage:
                x = conv(activated(x), x.shape[-1] // 2, 1)  # counterpart: norm_last
                x = nn.avg_pool(x, (2, 2), (2, 2))  # counterpart: max_transition, norm_last
            for _ in range(count):
                y = conv(activated(conv(activated(x), 4 * self.growth, 1)), self.growth, 3)
                x = jnp.concatenate([x, y], -1)  # counterpart: new_first
        return nn.Dense(10)(activated(x).mean((1, 2)))


class NNXNormConv(nnx.Module):
    """Normalization, ReLU, convolution."""

    def __init__(self, inputs, outputs, size, late, rngs):
        width = outputs if late else inputs  # planted: norm_last
        self.norm = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)
        self.conv = nnx.Conv(inputs, outputs, (size, size), use_bias=False, rngs=rngs)
        self.late = late

    def __call__(self, x):
        if self.late:
            return nnx.relu(self.norm(self.conv(x)))  # planted: norm_last
        return self.conv(nnx.relu(self.norm(x)))


class NNXDenseNet(nnx.Module):
    def __init__(self, growth, layers, bug, rngs):
        width = 2 * growth
        self.stem = nnx.Conv(3, width, (3, 3), use_bias=False, rngs=rngs)
        self.stages, self.transitions, self.bug = nnx.List(), nnx.List(), bug
        for stage, count in enumerate(layers):
            if stage:
                late = bug == "norm_last"
                self.transitions.append(NNXNormConv(width, width // 2, 1, late, rngs))
                width //= 2
            stages = nnx.List()
            for _ in range(count):
                first = NNXNormConv(width, 4 * growth, 1, False, rngs)
                stages.append(nnx.List([first, NNXNormConv(4 * growth, growth, 3, False, rngs)]))
                width += growth
            self.stages.append(stages)
        self.norm = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)
        self.fc = nnx.Linear(width, 10, rngs=rngs)

    def __call__(self, x):
        x = self.stem(x)
        pool = nnx.max_pool if self.bug == "max_transition" else nnx.avg_pool
        for stage, layers in enumerate(self.stages):
            if stage:
                x = pool(self.transitions[stage - 1](x), (2, 2), (2, 2))  # planted: max_transition
            for first, second in layers:
                y = second(first(x))
                joined = [y, x] if self.bug == "new_first" else [x, y]  # planted: new_first
                x = jnp.concatenate(joined, -1)  # planted: new_first
        return self.fc(nnx.relu(self.norm(x)).mean((1, 2)))


def nnx_densenet(growth=4, layers=(2, 2), bug=""):
    return lambda rngs: NNXDenseNet(growth, layers, bug, rngs)


class LinenSqueeze(nn.Module):
    """Hu et al. 2018: residual blocks whose channels are scaled by what their means say."""

    width: int = 16
    blocks: int = 2

    @nn.compact
    def __call__(self, image):
        x = nn.Conv(self.width, (3, 3))(image)
        for _ in range(self.blocks):
            y = nn.relu(nn.GroupNorm(4)(nn.Conv(self.width, (3, 3))(x)))
            y = nn.GroupNorm(4)(nn.Conv(self.width, (3, 3))(y))
            squeezed = y.mean((1, 2), keepdims=True)  # counterpart: squeeze_input, squeeze_max
            gate = nn.Dense(self.width)(nn.relu(nn.Dense(self.width // 4)(squeezed)))
            y = y * nn.sigmoid(gate)  # counterpart: hard_sigmoid
            x = nn.relu(x + y)
        return nn.Dense(10)(x.mean((1, 2)))


def haiku_squeeze(width=16, blocks=2, bug=""):
    def norm(x):
        return hk.GroupNorm(4, eps=1e-6)(x)

    def network(image):
        x = hk.Conv2D(width, 3)(image)
        for _ in range(blocks):
            y = jax.nn.relu(norm(hk.Conv2D(width, 3)(x)))
            y = norm(hk.Conv2D(width, 3)(y))
            source = x if bug == "squeeze_input" else y  # planted: squeeze_input
            squeezed = source.mean((1, 2), keepdims=True)  # planted: squeeze_input, squeeze_max
            if bug == "squeeze_max":
                squeezed = y.max((1, 2), keepdims=True)  # planted: squeeze_max
            gate = hk.Linear(width)(jax.nn.relu(hk.Linear(width // 4)(squeezed)))
            activation = jax.nn.hard_sigmoid if bug == "hard_sigmoid" else jax.nn.sigmoid
            y = y * activation(gate)  # planted: hard_sigmoid
            x = jax.nn.relu(x + y)
        return hk.Linear(10)(x.mean((1, 2)))

    return network


def haiku_highway(width=16, layers=3):
    def network(obs):
        x = hk.Linear(width, name="inputs")(obs)
        for index in range(layers):
            y = jnp.tanh(hk.Linear(width, name=f"transform_{index}")(x))
            gate = jax.nn.sigmoid(hk.Linear(width, name=f"gate_{index}")(x))  # counterpart: gate_of
            x = gate * y + (1 - gate) * x  # counterpart: gate_swapped, uncoupled
        return hk.Linear(4, name="out")(x)

    return network


class EquinoxHighway(eqx.Module):
    inputs: eqx.nn.Linear
    transforms: list[eqx.nn.Linear]
    gates: list[eqx.nn.Linear]
    out: eqx.nn.Linear
    bug: str = eqx.field(static=True)

    def __init__(self, width, layers, bug, key):
        keys = jax.random.split(key, 2 * layers + 2)
        self.inputs = eqx.nn.Linear(6, width, key=keys[0])
        self.transforms = [eqx.nn.Linear(width, width, key=each) for each in keys[2 : layers + 2]]
        self.gates = [eqx.nn.Linear(width, width, key=each) for each in keys[layers + 2 :]]
        self.out = eqx.nn.Linear(width, 4, key=keys[1])
        self.bug = bug

    def __call__(self, obs):
        x = self.inputs(obs)
        for transform, gating in zip(self.transforms, self.gates, strict=True):
            y = jnp.tanh(transform(x))
            source = y if self.bug == "gate_of" else x  # planted: gate_of
            gate = jax.nn.sigmoid(gating(source))  # planted: gate_of
            if self.bug == "gate_swapped":
                x = (1 - gate) * y + gate * x  # planted: gate_swapped
            elif self.bug == "uncoupled":
                x = gate * y + x  # planted: uncoupled
            else:
                x = gate * y + (1 - gate) * x
        return self.out(x)


def equinox_highway(width=16, layers=3, bug=""):
    return lambda key: EquinoxHighway(width, layers, bug, key)


class LinenDropout(nn.Module):
    """Srivastava et al. 2014: a share of the hidden units is dropped in training."""

    width: int = 16

    @nn.compact
    def __call__(self, obs, train: bool):
        x = obs
        for _ in range(2):
            x = nn.relu(nn.Dense(self.width)(x))
            x = nn.Dropout(0.2, deterministic=not train)(x)  # counterpart: rate, unscaled, never
        return nn.Dense(3)(x)


def haiku_dropout(width=16, bug=""):
    def dropped(x):
        rate = 0.8 if bug == "rate" else 0.2  # planted: rate
        if bug == "unscaled":
            kept = jax.random.bernoulli(hk.next_rng_key(), 1 - rate, x.shape)
            return jnp.where(kept, x, 0.0)  # planted: unscaled
        return hk.dropout(hk.next_rng_key(), rate, x)  # planted: rate

    def network(obs, is_training):
        x = obs
        for _ in range(2):
            x = jax.nn.relu(hk.Linear(width)(x))
            if is_training and bug != "never":  # planted: never
                x = dropped(x)  # planted: rate, unscaled, never
        return hk.Linear(3)(x)

    return network


PAIRS = (
    Pair(
        name="densenet",
        source="Huang et al. 2017",
        libraries=("linen", "nnx"),
        one=LinenDenseNet,
        other=nnx_densenet,
        inputs=Box((8, 8, 3)),
        bugs=(
            Bug(
                "new_first",
                ("concatenation",),
                "puts new features before the old ones",
            ),
            Bug("max_transition", ("pooling",), "max-pools in the transition"),
            Bug("norm_last", ("operation_order",), "normalizes after the transition's convolution"),
        ),
    ),
    Pair(
        name="squeeze_excitation",
        source="Hu et al. 2018",
        libraries=("linen", "haiku"),
        one=LinenSqueeze,
        other=haiku_squeeze,
        inputs=Box((8, 8, 3)),
        bugs=(
            Bug(
                "squeeze_input",
                ("operand_source", "residual_source"),
                "squeezes the block's input, not its output",
            ),
            Bug("squeeze_max", ("pooling",), "squeezes by the max"),
            Bug("hard_sigmoid", ("activation",), "hard sigmoid for sigmoid"),
        ),
    ),
    Pair(
        name="highway",
        source="Srivastava et al. 2015",
        libraries=("haiku", "equinox"),
        one=haiku_highway,
        other=equinox_highway,
        inputs=Box((6,)),
        bugs=(
            Bug(
                "gate_of",
                ("operand_source", "residual_source"),
                "computes the gate from the transformed input",
            ),
            Bug("gate_swapped", ("operand_order",), "swaps gate and 1 - gate"),
            Bug("uncoupled", ("operation_missing",), "adds the whole input, without 1 - gate"),
        ),
    ),
    Pair(
        name="dropout",
        source="Srivastava et al. 2014",
        libraries=("linen", "haiku"),
        one=LinenDropout,
        other=haiku_dropout,
        inputs=Box((6,)),
        bugs=(
            Bug("rate", ("dropout",), "takes the share to keep for the rate"),
            Bug("unscaled", ("dropout",), "does not scale what is kept"),
            Bug("never", ("dropout",), "drops nothing in training"),
        ),
    ),
)
