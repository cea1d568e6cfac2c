"""A training state moved between libraries: weights, targets and moments, without rounding."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.export.small_runs import seed_of, small_run
from triglot.core.errors import TriglotError
from triglot.core.learner import LearnerState
from triglot.core.types import types_by_path
from triglot.runs.identity import learned
from triglot.runs.resume.moving import translate_agent_state


def learners(state: Any) -> list[LearnerState]:
    leaves = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, LearnerState))
    return [leaf for leaf in leaves if isinstance(leaf, LearnerState)]


def sorted_numbers(tree: Any) -> np.ndarray:
    """List all numbers of a tree, sorted, since layouts only reorder them."""
    return np.sort(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]))


def first_moments(opt_state: Any) -> list[Any]:
    leaves = jax.tree.leaves(opt_state, is_leaf=lambda node: hasattr(node, "mu"))
    return [leaf.mu for leaf in leaves if hasattr(leaf, "mu")]


@pytest.mark.covering(24)
@pytest.mark.parametrize("arithmetic", ["native", "leaf_order"])
@pytest.mark.parametrize("target", ["nnx", "equinox"])
@pytest.mark.parametrize("kind", ["continuous", "images", "lstm", "dueling", "twins"])
def test_a_state_is_translated_without_rounding(kind: str, target: str, arithmetic: str) -> None:
    first, second = (small_run(kind, backend, arithmetic) for backend in ("haiku", target))
    state = seed_of(first, 1)
    moved = translate_agent_state(state, first.agent, second.agent)
    assert types_by_path(moved) == types_by_path(seed_of(second, 1))
    networks = [run.agent.network for run in (first, second)]
    one, other = (
        network.codec.encode(learned(each).params)  # pyright: ignore
        for network, each in zip(networks, (state, moved), strict=True)
    )
    jax.tree.map(np.testing.assert_array_equal, one, other)
    # Haiku adds 1 to the forget gate in its forward pass; a moment has no such constant.
    for before, after in zip(learners(state), learners(moved), strict=True):
        np.testing.assert_array_equal(
            sorted_numbers(before.opt_state), sorted_numbers(after.opt_state)
        )
    if hasattr(state, "target"):
        np.testing.assert_array_equal(sorted_numbers(state.target), sorted_numbers(moved.target))
    back = translate_agent_state(moved, second.agent, first.agent)
    rounding = 2.5e-7 if kind == "lstm" else 0.0  # of the forget bias
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0.0, atol=rounding), state, back
    )


@pytest.mark.slow
def test_moments_keep_the_place_of_their_parameter() -> None:
    first, second = (small_run("images", backend, "native") for backend in ("haiku", "equinox"))
    state = seed_of(first, 0)
    (learner,) = learners(state)
    (mu,) = first_moments(learner.opt_state)
    codecs = [run.agent.network.codec for run in (first, second)]
    moved = learners(translate_agent_state(state, first.agent, second.agent))[0].opt_state
    (own,) = first_moments(moved)
    one, other = codecs[0].encode(mu), codecs[1].encode(own)  # pyright: ignore
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.slow
def test_cells_that_differ_are_refused() -> None:
    first, second = (small_run("gru", backend, "native") for backend in ("haiku", "nnx"))
    with pytest.raises(TriglotError, match="They compute different functions"):
        translate_agent_state(seed_of(first, 0), first.agent, second.agent)


def test_what_depends_on_the_library_elsewhere_is_refused() -> None:
    first, second = (small_run("discrete", backend, "native") for backend in ("haiku", "equinox"))
    state = seed_of(first, 0)
    odd = {"state": state, "more": jnp.ones(3)}
    with pytest.raises(TriglotError, match="depends on the library in a way that is not known: "):
        translate_agent_state(odd, first.agent, second.agent)
