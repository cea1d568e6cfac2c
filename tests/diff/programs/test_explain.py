"""Each planted cause is named, and no other; equal networks have none."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from tests.diff.programs import families as f
from tests.diff.programs.cases import CLEAN, GPU, PLANTED, QUICK, SEVERAL, Case
from tests.diff.programs.planted import sides
from triglot.core.errors import TriglotError
from triglot.diff.programs import explain
from triglot.diff.programs.places import operation
from triglot.diff.programs.recording import record_both

pytestmark = pytest.mark.library_promotion("norms, attention and cells broadcast and promote")


def marked(cases: Mapping[str, Case]) -> Iterable[Any]:
    """Mark the cases that the quick tests leave out."""
    return [
        pytest.param(case, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, case in cases.items()
    ]


@pytest.mark.covering(20)
@pytest.mark.parametrize("case", marked({**PLANTED, **SEVERAL}))
def test_planted_causes_are_named(case: Case) -> None:
    explanation = case.explain()
    assert sorted({cause.name for cause in explanation.causes}) == sorted(set(case.causes))
    assert len(explanation.causes) == len(case.causes)
    assert all(cause.where and cause.evidence for cause in explanation.causes)
    if case.causes != ("norm_momentum",):  # the outputs are equal, the new state is not
        assert explanation.first_difference is not None
        assert explanation.first_difference.max_abs > 0
        assert not explanation.first_difference.compiled_only


@pytest.mark.parametrize("case", marked(CLEAN))
def test_nothing_is_named_in_equal_networks(case: Case) -> None:
    explanation = case.explain()
    assert explanation.first_difference is None
    assert not explanation.causes


@pytest.mark.skipif(jax.default_backend() == "cpu", reason="CPU has one precision of products")
@pytest.mark.parametrize("case", marked(GPU))
def test_precision_of_a_product(case: Case) -> None:
    assert {cause.name for cause in case.explain().causes} == {"precision"}


def test_evidence_has_the_numbers_and_the_line() -> None:
    one, other = f.mlp("haiku", epsilon=1e-5), f.mlp("linen", epsilon=1e-3)
    explanation = explained(*sides(one, other))
    assert explanation.first_difference is not None and explanation.first_difference.one is not None
    assert explanation.first_difference.one.name == "add"
    assert explanation.first_difference.one.scope == "norm"
    file, line = explanation.first_difference.one.source.rsplit(":", 1)
    assert file == "tests/diff/programs/planted.py" and line.isdigit()
    (cause,) = explanation.causes
    assert "epsilon 1e-05 in haiku A, 0.001 in linen B" in cause.evidence
    assert "haiku A: add of norm" in cause.where and "linen B: add of Linen/norm" in cause.where


def test_the_line_is_the_library_s_in_a_network_of_the_zoo() -> None:
    one, other = sides(f.zoo("nnx"), f.zoo("linen"))
    inputs = np.ones((2, 5), np.float32)
    options: Any = {"train": False, "key": jax.random.key(0)}
    tape, _ = record_both(one, other, inputs, **options)
    step = next(step for step in tape.steps if step.name == "dot_general")
    described = operation(tape, step.results[0])
    assert described.source.startswith("flax/nnx/nn/linear.py:")
    assert described.scope == "Linear (critic/torso/0/kernel)"


def test_a_missing_bias_is_named() -> None:
    explanation = explained(*sides(f.mlp("linen", first=f.dense_without_bias), f.mlp("nnx")))
    assert [cause.name for cause in explanation.causes] == ["missing_bias"]
    assert "layers/first/bias of nnx B" in explanation.causes[0].evidence


def test_networks_without_codec_or_with_other_outputs_are_refused() -> None:
    one, other = sides(f.mlp("nnx"), f.mlp("linen"))
    nameless = replace(other, network=replace(other.network, codec=None))
    with pytest.raises(TriglotError, match=r"the linen network .* has no codec"):
        explained(one, nameless)
    cell, gru = (
        replace(sides(network, network)[0], names={}) for network in (f.lstm("nnx"), f.gru("nnx"))
    )
    inputs = tuple(np.ones((2, n), np.float32) for n in (3, 4, 4))
    with pytest.raises(TriglotError, match="gives 3 outputs and nnx A 2"):
        explain(cell, gru, inputs, train=False, key=jax.random.key(0))


def explained(one: Any, other: Any) -> Any:
    inputs = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    return explain(one, other, inputs, train=False, key=jax.random.key(0))
