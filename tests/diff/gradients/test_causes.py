"""Networks with equal outputs and other gradients: the rule of differentiation is named."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.diff.programs import families as f
from tests.diff.programs.planted import sides
from triglot.diff.gradients.causes import (
    Explained,
    explain_gradients,
    first_backward_difference,
)
from triglot.diff.measures.subject import Subject

pytestmark = pytest.mark.library_promotion("norms broadcast and promote")

INPUTS = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
TARGET = np.random.default_rng(1).normal(size=(4, 3))
KEY = jax.random.key(0)
stop = jax.lax.stop_gradient

Function = Callable[[jax.Array], jax.Array]


def gate(x: jax.Array) -> jax.Array:
    return jnp.tanh(x) * jax.nn.sigmoid(x)


def stopped_gate(x: jax.Array) -> jax.Array:
    return jnp.tanh(x) * stop(jax.nn.sigmoid(x))


def rounded(x: jax.Array) -> jax.Array:
    return jnp.round(4 * x) / 4


@jax.custom_vjp
def straight_through(x: jax.Array) -> jax.Array:
    return rounded(x)


straight_through.defvjp(lambda x: (rounded(x), None), lambda _, g: (g,))


def straight_through_by_stopping(x: jax.Array) -> jax.Array:
    return x + stop(rounded(x) - x)


@jax.custom_vjp
def clipped_gradient(x: jax.Array) -> jax.Array:
    return x


clipped_gradient.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.01, 0.01),))


@jax.custom_jvp
def halved(x: jax.Array) -> jax.Array:
    return jnp.tanh(x)


@halved.defjvp
def _halved_jvp(primals: Any, tangents: Any) -> Any:
    return halved(*primals), 0.5 * tangents[0]


def in_a_scan(function: Function) -> Function:
    """Apply a function to each row, in a jitted function, in a condition, in a scan."""

    def row(carry: Any, x: jax.Array) -> Any:
        x = jax.lax.cond(jnp.ones(()) > 0, jax.jit(function), jnp.cos, x)
        return carry, x

    return lambda x: jax.lax.scan(row, (), x)[1]


def twice_stopped(x: jax.Array) -> jax.Array:
    return jnp.tanh(stop(jax.nn.sigmoid(stop(x)))) + x


def not_stopped(x: jax.Array) -> jax.Array:
    return jnp.tanh(jax.nn.sigmoid(x)) + x


@dataclass(frozen=True)
class Case:
    """The activations of two networks, their libraries, and the causes of other gradients."""

    one: Function
    other: Function
    causes: tuple[str, ...]
    libraries: tuple[str, str] = ("linen", "nnx")

    def sides(self) -> Any:
        first, second = self.libraries
        return sides(f.mlp(first, activation=self.one), f.mlp(second, activation=self.other))

    def subjects(self) -> tuple[Subject, Subject]:
        one, other = (
            Subject(**vars(side), batches={4: INPUTS}, outputs=(("output", 0),), targets=(TARGET,))
            for side in self.sides()
        )
        return one, other

    def explain(self) -> Explained | None:
        return explain_gradients(self.subjects(), KEY, train=False)


PLANTED: dict[str, Case] = {
    "activation stopped": Case(gate, stopped_gate, ("stop_gradient",), ("haiku", "equinox")),
    "layers stopped": Case(lambda x: stop(gate(x)), gate, ("not_trainable",), ("nnx", "haiku")),
    "stopped in a scan": Case(in_a_scan(gate), in_a_scan(stopped_gate), ("stop_gradient",)),
    "stopped twice": Case(twice_stopped, not_stopped, ("stop_gradient", "stop_gradient")),
    "straight-through, by a rule": Case(rounded, straight_through, ("custom_gradient",)),
    "straight-through, by stopping": Case(
        straight_through_by_stopping, rounded, ("stop_gradient",), ("equinox", "linen")
    ),
    "another derivative": Case(jnp.tanh, halved, ("custom_gradient",), ("haiku", "linen")),
    "another derivative in a scan": Case(
        in_a_scan(halved), in_a_scan(jnp.tanh), ("custom_gradient",)
    ),
    "two derivatives": Case(
        lambda x: clipped_gradient(jnp.tanh(x)), halved, ("custom_gradient", "custom_gradient")
    ),
    "a derivative and a stop": Case(
        lambda x: halved(x) * jax.nn.sigmoid(x), stopped_gate, ("custom_gradient", "stop_gradient")
    ),
    "a derivative beside relu's": Case(
        lambda x: jax.nn.relu(clipped_gradient(x)), jax.nn.relu, ("custom_gradient",)
    ),
}


SLOW = ("straight-through, by a rule", "another derivative in a scan", "a derivative beside relu's")


@pytest.mark.covering(4)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=pytest.mark.slow if name in SLOW else ())
        for name, case in PLANTED.items()
    ],
)
def test_the_rule_is_named(case: Case) -> None:
    explanation = case.explain()
    assert explanation is not None
    assert sorted(cause.name for cause in explanation.causes) == sorted(case.causes)
    for cause in explanation.causes:
        assert "tests/diff/gradients/test_causes.py:" in cause.where
        assert "both networks have equal gradients" in cause.evidence
    assert any(explanation.operations)


def test_a_rule_of_both_networks_is_not_named() -> None:
    case = Case(lambda x: stopped_gate(halved(x)), lambda x: stopped_gate(jnp.tanh(x)), ())
    explanation = case.explain()
    assert explanation is not None
    (cause,) = explanation.causes
    assert cause.name == "custom_gradient" and "halved at " in cause.evidence
    assert explanation.operations[0] is not None and explanation.operations[1] is None


def test_the_parameters_without_a_gradient_are_listed() -> None:
    explanation = PLANTED["layers stopped"].explain()
    assert explanation is not None
    (cause,) = explanation.causes
    assert "layers/first/bias, layers/first/kernel, layers/norm/bias and 1 more" in cause.evidence


def unsafe_root(x: jax.Array) -> jax.Array:
    return jnp.where(x > 0, jnp.sqrt(x), 0.0)


def safe_root(x: jax.Array) -> jax.Array:
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)


def test_what_no_rule_explains_is_located() -> None:
    case = Case(safe_root, unsafe_root, ())
    assert case.explain() is None
    one, other = case.subjects()
    options: Any = {"train": False, "key": KEY}
    difference = first_backward_difference(one, other, **options)
    assert difference is not None
    places = [side.source for side in (difference.one, difference.other) if side is not None]
    assert places and all("tests/diff/gradients/test_causes.py:" in place for place in places)
    assert first_backward_difference(one, one, **options) is None
