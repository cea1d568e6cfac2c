"""The traced programs name a planted cause, and nothing that follows from it in other layers."""

import itertools
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import pytest

from tests.diff.programs.downstream import DOWNSTREAM, SPEC, UPSTREAM, network
from tests.diff.programs.planted import sides
from triglot.diff.findings import causes_of
from triglot.diff.measures.numbers import EVALUATION, TRAINING
from triglot.diff.programs import explain

pytestmark = pytest.mark.library_promotion("norms, attention and cells broadcast and promote")


Pair = tuple[str, str]


def table() -> list[Any]:
    """Pair each cause with several kinds of layers behind it, and each kind with several causes."""
    quick = set(zip(UPSTREAM, itertools.cycle(DOWNSTREAM), strict=False))
    quick |= {("padding", "BatchNorm"), ("padding, another size", "BatchNorm")}
    cubes = pytest.mark.xfail(
        reason="gelu computes x^3, and so does a planted function, of another value", strict=True
    )
    names = ("operation_differs", "activation"), ("unknown", "activation")
    marks = dict.fromkeys(names, (pytest.mark.slow, cubes))
    return [
        pytest.param(*pair, marks=() if pair in quick else marks.get(pair, pytest.mark.slow))
        for pair in one_in(3, itertools.product(UPSTREAM, DOWNSTREAM), {*quick, *marks})
    ]


def one_in(step: int, pairs: Iterable[Pair], always: set[Pair]) -> list[Pair]:
    """Choose one in `step` pairs, scattered over both axes, and those of `always`."""
    table = list(pairs)
    first, second = (list(dict.fromkeys(axis)) for axis in zip(*table, strict=True))
    return [
        pair
        for pair in table
        if (first.index(pair[0]) + second.index(pair[1])) % step == 0 or pair in always
    ]


@pytest.mark.covering(12)
@pytest.mark.parametrize(("cause", "layer"), table())
def test_only_the_planted_cause_is_named(cause: str, layer: str) -> None:
    planted, behind = UPSTREAM[cause], DOWNSTREAM[layer]
    one = network("linen", planted.one, behind, planted.inputs)
    other = network("nnx", planted.other, behind, planted.inputs)
    assert named(one, other, planted.inputs) == {cause.partition(",")[0]}


def pairs() -> list[Any]:
    """Pair each cause with several behind it."""
    behind = [cause for cause, planted in UPSTREAM.items() if planted.inputs == SPEC]
    behind.remove("unknown")  # shown only where nothing else is known
    quick = set(zip(UPSTREAM, itertools.cycle(behind[3:] + behind[:3]), strict=False))
    quick.add(("padding", "norm_momentum"))
    tanh = pytest.mark.xfail(
        reason="gelu computes a tanh, and so does the layer behind the missing bias", strict=True
    )
    negation = pytest.mark.xfail(
        reason="exact gelu negates its input, and so does the function before it", strict=True
    )
    marks = {
        ("activation", "missing_bias"): (pytest.mark.slow, tanh),
        ("operation_differs", "activation"): (pytest.mark.slow, negation),
    }
    return [
        pytest.param(*pair, marks=() if pair in quick else marks.get(pair, pytest.mark.slow))
        for pair in one_in(4, itertools.product(UPSTREAM, behind), {*quick, *marks})
        if pair[0] != "unknown"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("cause", "second"), pairs())
def test_two_causes_are_both_named(cause: str, second: str) -> None:
    planted, behind = UPSTREAM[cause], UPSTREAM[second]
    one = network("linen", planted.one, behind.one, planted.inputs)
    other = network("linen", planted.other, behind.other, planted.inputs)
    assert named(one, other, planted.inputs) == {cause.partition(",")[0], second}


def named(one: Any, other: Any, spec: Any) -> set[str]:
    """Name the causes of both modes."""
    first, second = sides(one, other, lambda name: name.removeprefix("layers/"))
    state = jax.tree.leaves(second.variables.state)
    is_random = any(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in state)
    inputs = np.random.default_rng(0).normal(size=(4, *spec.shape)).astype(np.float32)
    modes = (EVALUATION, TRAINING)
    key = jax.random.key(0)
    explanations = {
        mode: explain(first, second, inputs, train=mode == TRAINING, key=key) for mode in modes
    }
    with_state = bool(state) and not is_random
    _, causes = causes_of(
        explanations,
        modes,
        with_state=with_state,
        labels=(first.label, second.label),
        finished=lambda mode: None,
    )
    return {cause.name for cause in causes}
