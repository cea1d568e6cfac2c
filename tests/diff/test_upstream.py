"""The whole comparison names a planted cause, and nothing that follows from it in other layers."""

import itertools
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from tests.diff import networks as nets
from tests.diff.programs.downstream import (
    DOWNSTREAM,
    FIRST,
    SIZE,
    UPSTREAM,
    Part,
    Planted,
    activated,
    behind_dense,
    network,
    one,
    variants,
)
from tests.diff.programs.planted import dense, layer_norm
from triglot import diff_networks

pytestmark = pytest.mark.library_promotion("norms, attention and cells broadcast and promote")


class Matrix(nn.Module):
    """Multiplies with a matrix of its own."""

    turned: bool = False
    stopped: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        w = self.param("w", nn.initializers.normal(0.5), (SIZE, SIZE))
        w = jax.lax.stop_gradient(w) if self.stopped else w
        return jnp.tanh(x @ (w.T if self.turned else w))


def matrix(**how: Any) -> Part:
    return Part({"first": {"linen": lambda name: Matrix(name=name, **how)}}, one("first"))


def repeated(*names: str) -> Part:
    """Some dense layers, one after the other."""

    def forward(call: Any, x: jax.Array, train: bool) -> jax.Array:
        for name in names:
            x = jnp.tanh(call(name, x))
        return x

    return Part({name: dense(SIZE, SIZE) for name in names}, forward)


def drawn(std: float) -> Part:
    """A dense layer with another initializer."""
    how: Any = {"kernel_init": nn.initializers.normal(std)}
    return Part({"first": {"linen": lambda name: nn.Dense(SIZE, name=name, **how)}}, one("first"))


unscaled = {"linen": lambda name: nn.LayerNorm(epsilon=1e-5, use_scale=False, name=name)}
# Causes that the traced forward passes do not show, and some that they do.
CAUSES: dict[str, Planted] = {
    "architecture": Planted(repeated("first", "second"), repeated("first")),
    "custom_gradient": variants(FIRST, activated, {"by": jnp.tanh}, {"by": nets.halved_tanh}),
    "initializer": Planted(drawn(0.5), drawn(0.3)),
    "kernel_layout": Planted(matrix(), matrix(turned=True)),
    "missing_scale": behind_dense(layer_norm(SIZE), unscaled),
    "not_trainable": Planted(matrix(), matrix(stopped=True)),
    "stop_gradient": variants(FIRST, activated, {"by": nets.gated}, {"by": nets.stopped_gate}),
    "weight_sharing": Planted(repeated("first", "first"), repeated("first", "second")),
    **{name: UPSTREAM[name] for name in ("missing_bias", "norm_momentum", "padding", "dropout")},
}
LAYERS = ("BatchNorm", "LayerNorm", "attention", "recurrent cell", "dropout", "embedding")
MARKS = {
    ("architecture", "attention"): pytest.mark.xfail(
        reason="three branches read the missing layer, and its activation is named in two",
        strict=True,
    )
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cause", "layer"),
    [pytest.param(*pair, marks=MARKS.get(pair, ())) for pair in itertools.product(CAUSES, LAYERS)],
)
def test_only_the_planted_cause_is_named(cause: str, layer: str) -> None:
    planted, made = CAUSES[cause], partial(network, downstream=DOWNSTREAM[layer])
    first, second = (
        made("linen", upstream=part, inputs=planted.inputs) for part in (planted.one, planted.other)
    )
    report = diff_networks(first, second, planted.inputs)
    assert {named.name for named in report.causes} == {cause}
    assert (report.verdict == "different") == (cause != "initializer")
    assert not any("could not be aligned" in note for note in report.notes)
