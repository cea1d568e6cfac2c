"""Random networks: the verdict for each shipped layer against each other, and for keys."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.covering import pairwise
from tests.diff.random_layers import LAYERS, SPEC, of_function
from tests.extras import skip_missing
from triglot.core.specs import Box
from triglot.diff.compare import diff_networks
from triglot.diff.measures.distributions import LEVEL, compare_samples, two_samples
from triglot.diff.report import DIFFERENT, EQUIVALENT, IDENTICAL, Report

pytestmark = pytest.mark.library_promotion("layers of several libraries broadcast and promote")


def compared(one: Any, other: Any, spec: Box = SPEC) -> Report:
    return diff_networks(one, other, spec, level="quick", names=("one", "other"))


def causes(report: Report) -> set[str]:
    return {cause.name for cause in report.causes}


def table() -> list[Any]:
    """Pair each kind with each kind, each library with each library, and each kind in all."""
    kinds = [list(group) for _, group in itertools.groupby(sorted(LAYERS), lambda each: each[0])]
    alike = [pair for kind in kinds for pair in itertools.pairwise(kind)]
    pairs = itertools.combinations_with_replacement(LAYERS, 2)
    covering = [(case[:2], case[2:]) for case in pairwise((*one, *other) for one, other in pairs)]
    return [
        pytest.param(*pair, id=" - ".join(map(" ".join, pair)))
        for pair in dict.fromkeys((*alike, *covering))
    ]


@pytest.mark.covering(999)
@pytest.mark.parametrize(("one", "other"), table())
def test_layers_of_one_kind_are_equal_and_no_others(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    for library in {"torch", "keras"} & {one[1], other[1]}:
        skip_missing(library) if library == "torch" else pytest.importorskip("keras")
    report = compared(LAYERS[one](), LAYERS[other]())
    assert (report.verdict == DIFFERENT) == (one[0] != other[0]), report.notes


def bernoulli(key: Any, shape: Any, keep: float = 0.7) -> Any:
    return jax.random.bernoulli(key, keep, shape) / keep


def two_masks(x: Any, first: Any, second: Any) -> Any:
    return jnp.tanh(x * bernoulli(first, x.shape)) * bernoulli(second, x.shape)


def in_turn(x: Any, key: Any) -> Any:
    return two_masks(x, *jax.random.split(key))


def layer_order_note(x: Any, key: Any) -> Any:
    second, first = jax.random.split(key)
    later = bernoulli(second, x.shape)
    return jnp.tanh(x * bernoulli(first, x.shape)) * later


def one_key(x: Any, key: Any) -> Any:
    return two_masks(x, key, key)


def large_numbers(x: Any, key: Any) -> Any:
    first, second = jax.random.split(key)
    masks = [(jax.random.uniform(k, x.shape) >= 0.3) / 0.7 for k in (first, second)]
    return jnp.tanh(x * masks[0]) * masks[1]


WEIGHTS = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)


def before_product(x: Any, key: Any) -> Any:
    return (x * bernoulli(key, x.shape)) @ WEIGHTS


def after_product(x: Any, key: Any) -> Any:
    return (x @ WEIGHTS) * bernoulli(key, x.shape)


def rows_before(x: Any, key: Any) -> Any:
    return (x * bernoulli(key, (len(x), 1, 1))) @ WEIGHTS


def rows_after(x: Any, key: Any) -> Any:
    return (x @ WEIGHTS) * bernoulli(jax.random.fold_in(key, 1), (len(x), 1, 1))


def skipped(rate: float) -> Callable[[Any, Any], Any]:
    """Skip a layer by a branch, which another draw takes."""

    def layer(x: Any, key: Any) -> Any:
        is_kept = jax.random.bernoulli(key, 1 - rate)
        return x + jax.lax.cond(is_kept, lambda x: x @ WEIGHTS, jnp.zeros_like, x)

    return layer


def transposed(x: Any, key: Any) -> Any:
    """Draw in another layout."""
    first, second = jax.random.split(key)
    turned = jnp.swapaxes(x, 1, 2)
    return jnp.swapaxes(two_masks(turned, first, second), 1, 2)


SAME = {
    "order of draws": (in_turn, layer_order_note),
    "where a number is large": (in_turn, large_numbers),
    "layout": (in_turn, transposed),
    "rows before and after a product": (rows_before, rows_after),
    "a branch": (skipped(0.3), lambda x, key: skipped(0.3)(x, jax.random.fold_in(key, 1))),
}
OTHERS: dict[str, tuple[Any, Any, set[str] | None]] = {
    "one key": (in_turn, one_key, {"key_reuse"}),
    "before and after a product": (before_product, after_product, None),
    "a branch": (skipped(0.3), skipped(0.4), None),
}


@pytest.mark.covering(9)
@pytest.mark.parametrize("name", SAME)
def test_the_same_function_of_random_draws_is_equivalent(name: str) -> None:
    one, other = SAME[name]
    report = compared(of_function(one), of_function(other))
    assert report.verdict in (IDENTICAL, EQUIVALENT), report.notes


@pytest.mark.covering(3)
@pytest.mark.parametrize("name", OTHERS)
def test_another_function_of_random_draws_is_different(name: str) -> None:
    one, other, expected = OTHERS[name]
    report = compared(of_function(one), of_function(other))
    assert report.verdict == DIFFERENT
    assert expected is None or causes(report) == expected


class Block(nn.Module):
    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        x = nn.relu(nn.Dense(6)(x))
        return x + nn.Dropout(0.3, deterministic=not train)(x), None


class Stacked(nn.Module):
    split: bool = True
    remat: bool = False

    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        step: Any = nn.remat(Block, static_argnums=(2,)) if self.remat else Block
        split: Any = {"params": True, "dropout": self.split}
        axes: Any = {"variable_axes": {"params": 0}, "in_axes": nn.broadcast}
        return nn.scan(step, split_rngs=split, length=3, **axes)()(x, train)[0]


@pytest.mark.slow
def test_one_mask_in_all_layers_is_not_one_for_each() -> None:
    report = compared(Stacked(), Stacked(split=False))
    assert (report.verdict, causes(report)) == (DIFFERENT, {"key_reuse"})
    assert compared(Stacked(), Stacked(remat=True)).verdict != DIFFERENT


class TwoDropouts(eqx.Module):
    linear: Any
    dropout: Any = eqx.nn.Dropout(0.5)
    is_split: bool = True

    def __call__(self, x: Any, key: Any = None) -> Any:
        one = other = key
        if key is not None and self.is_split:
            one, other = jax.random.split(key)
        x = self.dropout(jax.nn.relu(self.linear(x)), key=one)
        return x + self.dropout(jnp.sin(x), key=other)


@pytest.mark.slow
def test_one_key_for_two_dropouts_is_named() -> None:
    def build(is_split: bool) -> Any:
        return lambda key: TwoDropouts(eqx.nn.Linear(6, 6, key=key), is_split=is_split)

    report = compared(build(True), build(False), Box((6,)))
    (cause,) = report.causes
    assert (report.verdict, cause.name) == (DIFFERENT, "key_reuse")
    assert "test_random_layers.py" in cause.where


@pytest.mark.slow
def test_running_statistics_of_a_random_network_are_compared() -> None:
    class Net(nn.Module):
        momentum: float

        @nn.compact
        def __call__(self, x: Any, train: bool) -> Any:
            x = nn.Dropout(0.3, deterministic=not train)(nn.Dense(6)(x))
            norm = nn.BatchNorm(use_running_average=not train, momentum=self.momentum)
            return nn.Dense(2)(norm(x))

    report = compared(Net(0.9), Net(0.99), Box((6,)))
    assert (report.verdict, causes(report)) == (DIFFERENT, {"norm_momentum"})
    assert compared(Net(0.9), Net(0.9), Box((6,))).verdict == IDENTICAL


def test_atoms_are_equal_up_to_rounding() -> None:
    random = np.random.default_rng(0)
    one, other = (random.choice([0.0, 1.0], 2000) for _ in range(2))
    assert two_samples(one, other * np.float32(1 + 1e-7)) > LEVEL
    assert two_samples(one, other * 1.01) < LEVEL


def test_no_alarm_without_a_difference() -> None:
    random = np.random.default_rng(1)
    for _ in range(20):
        one, other = (random.standard_t(3, (2000, 8)) * (random.random((2000, 1)) < 0.3)
                      for _ in range(2))  # fmt: skip
        p_value, num_tests = compare_samples(one, other)
        assert p_value > LEVEL / num_tests


def test_elements_that_vary_alike_are_equal_up_to_rounding() -> None:
    random = np.random.default_rng(3)
    masks = random.choice([0.0, 1.0], (2, 2000, 1))
    one, other = masks * np.asarray([0.3, -1.7]) + random.normal(size=(2, 2000, 2)) * [[[0, 1e-8]]]
    p_value, num_tests = compare_samples(one, other)
    assert p_value > LEVEL / num_tests


def test_a_correlation_is_found() -> None:
    one, other = np.random.default_rng(2).normal(size=(2, 2000, 2))
    other[:, 1] = 0.4 * other[:, 0] + np.sqrt(1 - 0.4**2) * other[:, 1]
    p_value, num_tests = compare_samples(one, other)
    assert p_value < LEVEL / num_tests


def drop_path(numbers: str, scaled: bool = True) -> Any:
    def draw(x: Any, key: Any) -> Any:
        shape = (len(x) if numbers == "per sample" else 1, 1, 1)
        kept = jax.random.bernoulli(key, 0.75, shape).astype(x.dtype)
        return x + jnp.tanh(x) * (kept / 0.75 if scaled else kept)

    return of_function(draw)


@pytest.mark.covering(9)
@pytest.mark.parametrize(
    ("other", "evidence"),
    [
        (drop_path("per batch"), "one number per batch"),
        (drop_path("per sample", scaled=False), "not scaled"),
    ],
    ids=["per batch", "unscaled"],
)
def test_stochastic_depth_is_named(other: Any, evidence: str) -> None:
    report = compared(drop_path("per sample"), other)
    assert report.verdict == DIFFERENT
    assert [cause.name for cause in report.causes] == ["stochastic_depth"], report
    assert evidence in report.causes[0].evidence
    assert "test_random_layers.py:" in report.causes[0].where


def test_equal_stochastic_depth_has_no_false_positive() -> None:
    report = compared(drop_path("per sample"), drop_path("per sample"))
    assert report.verdict in (IDENTICAL, EQUIVALENT) and not report.causes, report
