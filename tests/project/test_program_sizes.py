"""The benchmark of program sizes counts what was compiled."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # benchmarks are not installed

from benchmarks.program_sizes import Case, num_equations, sizes  # noqa: E402


def test_equations_of_nested_jaxprs_count() -> None:
    def twice(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 2, lambda _, x: jnp.sin(x) * 2.0, x)

    # The scan, with the product, the sine and the counter inside it.
    assert num_equations(jax.make_jaxpr(twice)(1.0).jaxpr) == 4


def test_each_program_of_a_training_has_a_row() -> None:
    found = list(sizes(Case("q_learning", "gridworld:3x3", {"rollout_length": 4}), "linen"))
    assert [name for name, *_ in found] == ["init", "train", "evaluate"]
    assert all(instructions > equations > 10 for _, equations, instructions, *_ in found)
    assert all(python > 0 and xla > 0 for *_, python, xla in found)
