"""Scans that batch what does not depend on the carry: plain scans up to rounding."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jex
from jax.interpreters import mlir

from triglot.core.tracing.batched import scan_batched
from triglot.core.tracing.hoist import scan_keys
from triglot.core.tracing.jaxprs import ends_of_scan

STEPS, ROWS, WIDTH = 5, 3, 4
Step = Callable[[dict[str, jax.Array], jax.Array, dict[str, jax.Array]], tuple[jax.Array, Any]]


def cell(weights: dict[str, jax.Array], carry: jax.Array, row: dict[str, jax.Array]) -> tuple:
    """A torso, a cell whose kernels are joined, and a head."""
    features = jnp.tanh(row["x"] @ weights["torso"])
    joined = jnp.concatenate([weights["recurrent"], weights["recurrent"] * 2.0], axis=1)
    gates = jnp.split(features @ joined + jnp.where(row["first"], 0.0, carry) @ joined, 2, axis=1)
    carry = jax.nn.sigmoid(gates[0]) * jnp.tanh(gates[1])
    return carry, carry @ weights["head"]


def passed_on(weights: dict[str, jax.Array], carry: jax.Array, row: dict[str, jax.Array]) -> tuple:
    """Outputs of each kind: a row, the carry before, one of the rows only, a constant."""
    outputs = (row["x"], carry, row["x"] * 2.0, weights["head"] + 1.0, 3.0)
    return carry + row["x"] @ weights["torso"], outputs


def branching(weights: dict[str, jax.Array], carry: jax.Array, row: dict[str, jax.Array]) -> tuple:
    """A conditional of the row stays in the loop, with what it alone needs of the carry."""
    more = jax.lax.cond(row["first"][0, 0], lambda: carry @ weights["head"], lambda: row["x"])
    left = weights["torso"] @ jnp.sin(carry).T  # a product with the constant on its left
    return carry + left.T, more


CASES: list[Step] = [cell, passed_on, branching]


def given() -> tuple[dict[str, jax.Array], jax.Array, dict[str, jax.Array]]:
    keys = jax.random.split(jax.random.key(0), 5)
    names = ("torso", "recurrent", "head")
    weights = {
        name: jax.random.normal(key, (WIDTH, WIDTH)) for name, key in zip(names, keys, strict=False)
    }
    first = jnp.zeros((STEPS, ROWS, 1), bool).at[2, 1].set(True)
    rows = {"x": jax.random.normal(keys[3], (STEPS, ROWS, WIDTH)), "first": first}
    return weights, jax.random.normal(keys[4], (ROWS, WIDTH)), rows


def loss(scan: Any, step: Step) -> Callable[..., tuple[jax.Array, Any]]:
    def run(weights: Any, carry: jax.Array, rows: Any) -> tuple[jax.Array, Any]:
        found = scan(lambda carry, row: step(weights, carry, row), carry, rows)
        sums = [jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(found)]
        return jnp.stack(sums).sum(), found

    return jax.value_and_grad(run, argnums=(0, 1), has_aux=True)


@pytest.mark.covering(3)
@pytest.mark.parametrize("step", CASES, ids=lambda step: step.__name__)
def test_values_and_gradients_equal_those_of_a_plain_scan(step: Step) -> None:
    weights, carry, rows = given()
    plain = jax.jit(loss(jax.lax.scan, step))(weights, carry, rows)
    ours = jax.jit(loss(scan_batched, step))(weights, carry, rows)
    assert jax.tree.structure(plain) == jax.tree.structure(ours)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), plain, ours)


def test_seeds_are_vmapped() -> None:
    one = given()
    two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1]]), one)
    together = jax.jit(jax.vmap(loss(scan_batched, cell)))(*two)
    alone = jax.jit(loss(scan_batched, cell))(*one)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-5), together, alone)


def scans(jaxpr: Any) -> list[Any]:
    found = [equation for equation in jaxpr.eqns if equation.primitive.name == "scan"]
    for equation in jaxpr.eqns:
        found += [e for inner in jex.jaxprs_in_params(equation.params) for e in scans(inner)]
    return found


def products(equation: Any) -> int:
    def count(jaxpr: Any) -> int:
        inner = [j for e in jaxpr.eqns for j in jex.jaxprs_in_params(e.params)]
        own = [equation.primitive.name for equation in jaxpr.eqns].count("dot_general")
        return own + sum(map(count, inner))

    return count(equation.params["jaxpr"].jaxpr)


def test_only_the_recurrent_product_stays_in_the_loops() -> None:
    """One product forward and one backward, and no sum of a kernel's gradients."""
    forward, backward = scans(jax.make_jaxpr(loss(scan_batched, cell))(*given()).jaxpr)
    assert [products(forward), products(backward)] == [1, 1]
    first, last = ends_of_scan(backward.params)
    carried = backward.params["jaxpr"].in_avals[first:last]
    assert max(aval.size for aval in carried) < WIDTH * 2 * WIDTH


def test_values_above_the_limit_stay_in_the_loop() -> None:
    weights, carry, rows = given()

    def in_loop(max_bytes: int) -> int:
        jaxpr = jax.make_jaxpr(
            lambda weights: scan_batched(
                lambda carry, row: cell(weights, carry, row), carry, rows, max_bytes=max_bytes
            )
        )(weights)
        return products(scans(jaxpr.jaxpr)[0])

    each = STEPS * ROWS * WIDTH * 4
    assert [in_loop(each - 1), in_loop(each), in_loop(2 * each)] == [4, 2, 1]


def primitive_without_a_batching_rule() -> jex.Primitive:
    doubled = jex.Primitive("doubled")
    doubled.def_abstract_eval(lambda aval: aval)
    rule = mlir.lower_fun(lambda number: number * 2.0, multiple_results=False)
    mlir.register_lowering(doubled, rule)
    return doubled


@pytest.mark.parametrize("scan", [scan_batched, scan_keys])
def test_a_primitive_without_a_batching_rule_runs_step_by_step(scan: Any) -> None:
    doubled = primitive_without_a_batching_rule()

    def step(carry: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        drawn = doubled.bind(jax.random.uniform(key))
        return carry + drawn, drawn

    keys = jax.random.split(jax.random.key(0), STEPS)
    plain, ours = (jax.jit(s, static_argnums=0)(step, 0.0, keys) for s in (jax.lax.scan, scan))
    jax.tree.map(np.testing.assert_array_equal, plain, ours)
