"""Pairs of networks: with a planted difference, with several, and with none."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from tests.diff.programs import families as f
from tests.diff.programs.planted import centred_norm, group_norm, rms_norm, sides
from triglot.core.network import Network, Variables
from triglot.diff.programs import Explanation, explain
from triglot.diff.types import Side

SHAPES: dict[str, Any] = {
    "features": (5,),
    "images": (6, 6, 2),
    "tokens": (4, 6),
}


@dataclass(frozen=True)
class Case:
    """Two networks and the causes planted in them; `moved`: after an update of their state."""

    one: Callable[[], Network]
    other: Callable[[], Network]
    causes: tuple[str, ...] = ()
    inputs: str = "features"
    train: bool = False
    moved: bool = False
    carry: tuple[str, ...] = ("hidden",)

    def explain(self) -> Explanation:
        keys = iter(jax.random.split(jax.random.key(7), 8))
        if self.inputs == "cell":
            inputs: Any = tuple(jax.random.normal(next(keys), (3, n)) for n in (3, 4, 4))
        elif self.inputs == "recurrent":
            carry = {part: jax.random.normal(next(keys), (3, 4)) for part in self.carry}
            inputs = (jax.random.normal(next(keys), (3, 5)), {"critic": carry})
        else:
            inputs = jax.random.normal(next(keys), (4, *SHAPES[self.inputs]))
        one, other = sides(self.one(), self.other())
        if self.moved:
            one, other = updated(one, 2 * inputs), updated(other, 2 * inputs)
        return explain(one, other, inputs, train=self.train, key=next(keys))


def updated(side: Side, inputs: Any) -> Side:
    """Let a network update its state in training."""
    _, state = side.network.apply(side.variables, inputs, key=jax.random.key(0), train=True)
    return replace(side, variables=Variables(params=side.variables.params, state=state))


def pair(family: Any, one: tuple[str, dict], other: tuple[str, dict], *causes: str, **how) -> Case:
    return Case(
        lambda: family(one[0], **one[1]), lambda: family(other[0], **other[1]), causes, **how
    )


def two_sums(x: jax.Array) -> jax.Array:
    """Normalize over all tokens and features, not over the features."""
    mean = jnp.mean(x, (-2, -1), keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), (-2, -1), keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5)


def one_sum(x: jax.Array) -> jax.Array:
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5)


def unit_length(axis: int) -> Callable[[jax.Array], jax.Array]:
    """Divide by the L2 norm."""

    def apply(x: jax.Array) -> jax.Array:
        return x / jnp.sqrt(jnp.sum(jnp.square(x), axis, keepdims=True) + 1e-5)

    return apply


def moved(*axes: int) -> Callable[[jax.Array], jax.Array]:
    """Reorder the last three axes."""

    def apply(x: jax.Array) -> jax.Array:
        lead = tuple(range(x.ndim - 3))
        return jnp.transpose(x, (*lead, *(len(lead) + axis for axis in axes)))

    return apply


def shifted(low: int, high: int) -> list[tuple[int, int]]:
    return [(low, high), (low, high)]


pool = {"pool": f.global_mean, "size": 3}
PLANTED: dict[str, Case] = {
    "epsilon haiku linen": pair(f.mlp, ("haiku", {}), ("linen", {"epsilon": 1e-6}), "norm_epsilon"),
    "epsilon nnx equinox": pair(f.mlp, ("nnx", {"epsilon": 1e-3}), ("equinox", {}), "norm_epsilon"),
    "epsilon rms": pair(
        f.mlp,
        ("linen", {"norm": rms_norm}),
        ("equinox", {"norm": rms_norm, "epsilon": 1e-3}),
        "norm_epsilon",
    ),
    "epsilon batch norm": pair(
        f.batch_norm, ("linen", {}), ("nnx", {"epsilon": 1e-3}), "norm_epsilon", train=True
    ),
    "axis": pair(
        f.attention,
        ("haiku", {"activation": one_sum}),
        ("equinox", {"activation": two_sums}),
        "norm_axis",
        inputs="tokens",
    ),
    "axis within linen": pair(
        f.attention,
        ("linen", {"activation": two_sums}),
        ("linen", {"activation": one_sum}),
        "norm_axis",
        inputs="tokens",
    ),
    "axis of an L2 norm": pair(
        f.attention,
        ("nnx", {"activation": unit_length(-1)}),
        ("haiku", {"activation": unit_length(-2)}),
        "norm_axis",
        inputs="tokens",
    ),
    "epsilon outside the root": pair(
        f.mlp,
        ("linen", {"norm": rms_norm, "activation": f.inside}),
        ("nnx", {"norm": rms_norm, "activation": f.outside}),
        "norm_epsilon",
    ),
    "rms norm": pair(
        f.mlp,
        ("haiku", {"norm": centred_norm}),
        ("equinox", {"norm": rms_norm}),
        "norm_kind",
    ),
    "rms norm first": pair(
        f.mlp,
        ("nnx", {"norm": rms_norm}),
        ("linen", {"norm": centred_norm}),
        "norm_kind",
    ),
    "rms norm within linen": pair(
        f.mlp,
        ("linen", {"norm": centred_norm}),
        ("linen", {"norm": rms_norm}),
        "norm_kind",
    ),
    "group norm": pair(f.mlp, ("linen", {}), ("nnx", {"norm": group_norm}), "norm_kind"),
    "group norm first": pair(f.mlp, ("haiku", {"norm": group_norm}), ("linen", {}), "norm_kind"),
    "instance norm": pair(
        f.cnn,
        ("linen", {"activation": f.instance_norm, "channels": 4, "size": 144}),
        ("equinox", {"activation": f.two_groups, "channels": 4, "size": 144}),
        "norm_kind",
        inputs="images",
    ),
    "momentum": pair(
        f.batch_norm, ("linen", {}), ("nnx", {"momentum": 0.99}), "norm_momentum", train=True
    ),
    "momentum equinox": pair(
        f.batch_norm, ("equinox", {"momentum": 0.8}), ("linen", {}), "norm_momentum", train=True
    ),
    "momentum of what normalizes": pair(
        f.batch_norm,
        ("equinox", {"mode": "ema"}),
        ("equinox", {"mode": "ema", "momentum": 0.99}),
        "norm_momentum",
        train=True,
        moved=True,
    ),
    "running average": pair(
        f.batch_norm,
        ("equinox", {}),
        ("equinox", {"mode": "ema"}),
        "norm_statistics",
        train=True,
        moved=True,
    ),
    "running average, first": pair(
        f.batch_norm,
        ("equinox", {"mode": "ema"}),
        ("linen", {}),
        "norm_statistics",
        train=True,
        moved=True,
    ),
    "running average and momentum": pair(
        f.batch_norm,
        ("haiku", {"momentum": 0.8}),
        ("equinox", {"mode": "ema"}),
        "norm_statistics",
        "norm_momentum",
        train=True,
        moved=True,
    ),
    "start of the statistics": pair(
        f.batch_norm,
        ("equinox", {}),
        ("linen", {}),
        "norm_momentum",  # of the mean and of the variance
        "norm_momentum",
        moved=True,
    ),
    "bias correction": pair(
        f.batch_norm, ("haiku", {}), ("linen", {}), "norm_momentum", train=True
    ),
    "gelu": pair(
        f.mlp,
        ("haiku", {"activation": jax.nn.gelu}),
        ("equinox", {"activation": f.exact_gelu}),
        "activation",
    ),
    "gelu within nnx": pair(
        f.mlp,
        ("nnx", {"activation": f.exact_gelu}),
        ("nnx", {"activation": jax.nn.gelu}),
        "activation",
    ),
    "leaky slope": pair(
        f.mlp,
        ("linen", {"activation": f.leaky(0.01)}),
        ("nnx", {"activation": f.leaky(0.2)}),
        "activation",
    ),
    "relu elu": pair(f.mlp, ("linen", {}), ("equinox", {"activation": jax.nn.elu}), "activation"),
    "silu tanh": pair(
        f.mlp,
        ("haiku", {"activation": jax.nn.silu}),
        ("nnx", {"activation": jnp.tanh}),
        "activation",
    ),
    "missing relu": pair(f.mlp, ("haiku", {}), ("linen", {"activation": f.identity}), "activation"),
    "missing tanh at the end": pair(
        f.mlp, ("haiku", {}), ("equinox", {"after": jnp.tanh}), "activation"
    ),
    "same valid": pair(
        f.cnn,
        ("haiku", {"padding": "SAME", **pool}),
        ("linen", {"padding": "VALID", **pool}),
        "padding",
        inputs="images",
    ),
    "padding side": pair(
        f.cnn,
        ("linen", {"padding": "SAME", "stride": 2, "size": 27}),
        ("equinox", {"padding": ((1, 0), (1, 0)), "stride": 2, "size": 27}),
        "padding",
        inputs="images",
    ),
    "padding of a pool": pair(
        f.cnn,
        ("nnx", {"pool": f.max_pool("SAME"), "size": 3}),
        ("equinox", {"pool": f.max_pool("VALID"), "size": 3}),
        "padding",
        inputs="images",
    ),
    "dilation": pair(
        f.cnn,
        ("haiku", {**pool}),
        ("nnx", {"dilation": 2, "padding": ((1, 1), (1, 1)), **pool}),
        "dilation",
        inputs="images",
    ),
    "flatten": pair(
        f.cnn,
        ("linen", {}),
        ("equinox", {"flatten": moved(2, 0, 1)}),
        "flatten_order",
        inputs="images",
    ),
    "flatten within haiku": pair(
        f.cnn,
        ("haiku", {}),
        ("haiku", {"flatten": moved(1, 0, 2)}),
        "flatten_order",
        inputs="images",
    ),
    "gru of haiku and linen": pair(
        f.zoo,
        ("haiku", {"cell": "gru"}),
        ("linen", {"cell": "gru"}),
        "gru_variant",  # the reset gate
        "gru_variant",  # the update gate
        inputs="recurrent",
    ),
    "gru reset": pair(
        f.gru, ("equinox", {"reset": "before"}), ("nnx", {}), "gru_variant", inputs="cell"
    ),
    "gru update": pair(
        f.gru, ("haiku", {}), ("linen", {"keep_old": False}), "gru_variant", inputs="cell"
    ),
    "forget bias": pair(
        f.lstm, ("haiku", {"forget": 1.0}), ("equinox", {}), "lstm_forget_bias", inputs="cell"
    ),
    "gate order": pair(
        f.lstm, ("linen", {}), ("nnx", {"order": "igfo"}), "lstm_forget_bias", inputs="cell"
    ),
    "gate order, sigmoids": pair(
        f.lstm, ("linen", {}), ("equinox", {"order": "figo"}), "lstm_forget_bias", inputs="cell"
    ),
    "dropout rate": pair(
        f.dropout, ("haiku", {"rate": 0.1}), ("linen", {"rate": 0.2}), "dropout", train=True
    ),
    "dropout rate, nnx": pair(
        f.dropout, ("nnx", {"rate": 0.5}), ("equinox", {"rate": 0.25}), "dropout", train=True
    ),
    "dropout in evaluation": pair(
        f.dropout, ("haiku", {"rate": 0.1, "always": True}), ("equinox", {"rate": 0.1}), "dropout"
    ),
    "attention scale": pair(
        f.attention, ("haiku", {}), ("nnx", {"scale": 6**-0.5}), "attention_scale", inputs="tokens"
    ),
    "attention scale missing": pair(
        f.attention,
        ("equinox", {"scale_first": True}),
        ("linen", {"scale": None}),
        "attention_scale",
        inputs="tokens",
    ),
    "attention mask": pair(
        f.attention,
        ("haiku", {"mask": f.causal}),
        ("equinox", {}),
        "attention_mask",
        inputs="tokens",
    ),
    "attention masks": pair(
        f.attention,
        ("nnx", {"mask": f.causal}),
        ("linen", {"mask": f.no_self}),
        "attention_mask",
        inputs="tokens",
    ),
    "dtype": pair(f.mlp, ("haiku", {}), ("equinox", {"activation": f.in_half}), "dtype"),
    "dtype of a layer": pair(f.mlp, ("linen", {"first": f.half_dense}), ("haiku", {}), "dtype"),
    "dtype within nnx": pair(f.mlp, ("nnx", {}), ("nnx", {"first": f.half_dense}), "dtype"),
    "precision": pair(f.mlp, ("haiku", {"activation": f.rounded}), ("linen", {}), "precision"),
    "axis of a softmax": pair(
        f.mlp,
        ("haiku", {"activation": lambda x: jax.nn.softmax(x, -1)}),
        ("nnx", {"activation": lambda x: jax.nn.softmax(x, 0)}),
        "softmax_axis",
    ),
    "axis of a mean": pair(
        f.mlp,
        ("linen", {"activation": lambda x: x + jnp.max(x, 1, keepdims=True)}),
        ("haiku", {"activation": lambda x: x + jnp.max(x, 0, keepdims=True)}),
        "reduction_axis",
    ),
    "maximum instead of a mean": pair(
        f.mlp,
        ("linen", {"activation": lambda x: x + jnp.sum(x, 1, keepdims=True)}),
        ("nnx", {"activation": lambda x: x + jnp.max(x, 1, keepdims=True)}),
        "pooling",
    ),
    "range of a clip": pair(
        f.mlp,
        ("haiku", {"activation": lambda x: jnp.clip(x, -0.2, 0.3)}),
        ("linen", {"activation": lambda x: jnp.clip(x, -0.2, 0.4)}),
        "clip_range",
    ),
    "exchanged operands": pair(
        f.mlp,
        ("nnx", {"activation": lambda x: jnp.cos(x) / (2 + x * x)}),
        ("haiku", {"activation": lambda x: (2 + x * x) / jnp.cos(x)}),
        "operand_order",
    ),
    "a factor": pair(f.mlp, ("linen", {}), ("equinox", {"after": lambda x: 1.1 * x}), "constant"),
    "an offset": pair(
        f.mlp, ("haiku", {"after": lambda x: x + 0.5}), ("nnx", {}), "operation_missing"
    ),
    "unknown reversal": pair(
        f.mlp, ("haiku", {}), ("linen", {"after": lambda x: x[..., ::-1]}), "operation_differs"
    ),
    "a square in addition": pair(
        f.attention,
        ("nnx", {}),
        ("linen", {"activation": lambda x: x + x**2}),
        "operation_missing",
        inputs="tokens",
    ),
}
SEVERAL: dict[str, Case] = {
    "rms norm with another epsilon, and gelu": pair(
        f.mlp,
        ("haiku", {"norm": centred_norm, "activation": jax.nn.gelu}),
        ("nnx", {"norm": rms_norm, "activation": f.exact_gelu, "epsilon": 1e-3}),
        "norm_kind",
        "norm_epsilon",
        "activation",
    ),
    "epsilon and gelu": pair(
        f.mlp,
        ("haiku", {"activation": jax.nn.gelu}),
        ("equinox", {"activation": f.exact_gelu, "epsilon": 1e-3}),
        "norm_epsilon",
        "activation",
    ),
    "epsilon and a factor": pair(
        f.mlp,
        ("linen", {"epsilon": 1e-3}),
        ("nnx", {"after": lambda x: 1.1 * x}),
        "norm_epsilon",
        "constant",
    ),
    "scale and mask": pair(
        f.attention,
        ("haiku", {"mask": f.causal}),
        ("equinox", {"scale": 0.3}),
        "attention_scale",
        "attention_mask",
        inputs="tokens",
    ),
    "padding side and activation": pair(
        f.cnn,
        ("linen", {"padding": "SAME", "stride": 2, "size": 27}),
        ("equinox", {"padding": ((1, 0), (1, 0)), "stride": 2, "size": 27, "activation": jnp.tanh}),
        "padding",
        "activation",
        inputs="images",
    ),
    "activation and flatten": pair(
        f.cnn,
        ("nnx", {"activation": jax.nn.elu}),
        ("haiku", {"flatten": moved(2, 0, 1)}),
        "activation",
        "flatten_order",
        inputs="images",
    ),
    "forget bias and update": pair(
        f.lstm,
        ("haiku", {"forget": 1.0}),
        ("linen", {"squash": jax.nn.relu}),
        "lstm_forget_bias",
        "activation",
        inputs="cell",
    ),
    "epsilon and momentum": pair(
        f.batch_norm,
        ("linen", {}),
        ("nnx", {"epsilon": 1e-3, "momentum": 0.99}),
        "norm_epsilon",
        "norm_momentum",
        train=True,
    ),
    "epsilon and dtype": pair(
        f.mlp,
        ("linen", {}),
        ("equinox", {"activation": f.in_half, "epsilon": 1e-3}),
        "norm_epsilon",
        "dtype",
    ),
    "scale and activation": pair(
        f.attention,
        ("linen", {"activation": jnp.tanh}),
        ("nnx", {"scale": None}),
        "attention_scale",
        "activation",
        inputs="tokens",
    ),
}
CLEAN: dict[str, Case] = {
    "mlp": pair(f.mlp, ("haiku", {}), ("equinox", {})),
    "mlp linen nnx": pair(f.mlp, ("linen", {}), ("nnx", {})),
    "zoo": pair(f.zoo, ("haiku", {}), ("nnx", {})),
    "cnn": pair(f.cnn, ("linen", {}), ("equinox", {}), inputs="images"),
    "cnn haiku nnx": pair(
        f.cnn,
        ("haiku", {"stride": 2, "size": 27}),
        ("nnx", {"stride": 2, "size": 27}),
        inputs="images",
    ),
    "pool": pair(
        f.cnn,
        ("haiku", {"pool": f.max_pool("SAME"), "size": 3}),
        ("equinox", {"pool": f.max_pool("SAME"), "size": 3}),
        inputs="images",
    ),
    "attention": pair(
        f.attention,
        ("haiku", {"mask": f.causal}),
        ("equinox", {"mask": f.causal, "scale_first": True}),
        inputs="tokens",
    ),
    "lstm": pair(
        f.zoo,
        ("haiku", {"cell": "lstm"}),
        ("equinox", {"cell": "lstm"}),
        inputs="recurrent",
        carry=("cell", "hidden"),
    ),
    "lstm linen nnx": pair(
        f.zoo,
        ("linen", {"cell": "lstm"}),
        ("nnx", {"cell": "lstm"}),
        inputs="recurrent",
        carry=("cell", "hidden"),
    ),
    "gru": pair(
        f.zoo, ("linen", {"cell": "gru"}), ("equinox", {"cell": "gru"}), inputs="recurrent"
    ),
    "dropout": pair(f.dropout, ("haiku", {"rate": 0.5}), ("equinox", {"rate": 0.5}), train=True),
    "dropout linen nnx": pair(
        f.dropout, ("linen", {"rate": 0.2}), ("nnx", {"rate": 0.2}), train=True
    ),
    "batch norm": pair(f.batch_norm, ("linen", {}), ("nnx", {}), train=True),
    "batch norm equinox": pair(f.batch_norm, ("linen", {}), ("equinox", {}), train=True),
    "running averages": pair(
        f.batch_norm, ("equinox", {"mode": "ema"}), ("equinox", {"mode": "ema"}), moved=True
    ),
}
GPU: dict[str, Case] = {
    "precision of a product": pair(
        f.mlp, ("equinox", {}), ("nnx", {"first": f.low_precision_dense}), "precision"
    ),
}
# Each cause once; the others are slow tests.
QUICK = {
    "epsilon haiku linen",
    "axis within linen",
    "axis of an L2 norm",
    "epsilon outside the root",
    "rms norm",
    "group norm first",
    "momentum",
    "momentum of what normalizes",
    "running average",
    "gelu",
    "leaky slope",
    "missing relu",
    "padding side",
    "padding of a pool",
    "flatten",
    "gru reset",
    "forget bias",
    "gate order",
    "dropout rate",
    "attention scale",
    "attention mask",
    "dtype",
    "precision",
    "axis of a softmax",
    "axis of a mean",
    "maximum instead of a mean",
    "range of a clip",
    "exchanged operands",
    "a factor",
    "unknown reversal",
    "epsilon and gelu",
    "scale and mask",
    "activation and flatten",
    "mlp",
    "cnn",
    "attention",
    "dropout linen nnx",
}
