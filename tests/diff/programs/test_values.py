"""Values are compared whatever their layout."""

import jax
import numpy as np
import pytest

from triglot.backends.layers.formulas import ACTIVATIONS
from triglot.diff.programs.catalogue.activations import is_exponential, name_function
from triglot.diff.programs.values import Core, close, in_place_of, largest_difference, layouts
from triglot.diff.programs.wide import widen

RANDOM = np.random.default_rng(0).normal(size=(2, 3, 4))


@pytest.mark.parametrize(
    "arranged",
    [
        RANDOM.transpose(2, 0, 1),
        RANDOM.reshape(2, 12),
        np.broadcast_to(RANDOM[:, :, None], (2, 3, 5, 4)),
        RANDOM * (1 + 1e-8),
    ],
    ids=["transposed", "joined", "repeated", "rounded"],
)
def test_equal_values_in_another_layout(arranged: np.ndarray) -> None:
    assert Core.of(arranged).same(Core.of(RANDOM))


@pytest.mark.parametrize("factor", [1 + 1e-5, -1.0])
def test_other_values(factor: float) -> None:
    assert not Core.of(RANDOM * factor).same(Core.of(RANDOM))


def test_a_masked_number_hides_no_difference() -> None:
    masked = np.array([-1e30, 1.0, 2.0])
    assert close(masked, np.array([-1e9, 1.0, 2.0]))
    assert not close(masked, np.array([-1e30, 1.0, 2.001]))
    assert not close(masked, np.array([1e30, 1.0, 2.0]))


def test_the_largest_difference_is_that_of_numbers_that_are_not_masked() -> None:
    masked = np.array([-np.inf, 1.0, -2.0])
    assert largest_difference(masked, np.array([-1e30, 1.5, -2.0])) == (0.5, 0.25)
    assert largest_difference(masked, masked) == (0.0, 0.0)
    assert np.isinf(largest_difference(masked, -masked)[0])
    assert np.isnan(largest_difference(masked, masked[1:])).all()


def test_layouts_permute_join_and_split_axes() -> None:
    for shape, expected in [
        ((4, 2, 3), RANDOM.transpose(2, 0, 1)),
        ((2, 12), RANDOM.transpose(0, 2, 1).reshape(2, 12)),
    ]:
        assert any(np.array_equal(arrangement, expected) for arrangement in layouts(RANDOM, shape))
    split = RANDOM.reshape(6, 4)
    assert any(np.array_equal(arrangement, RANDOM) for arrangement in layouts(split, RANDOM.shape))
    assert not list(layouts(RANDOM, (5, 5)))


def test_a_value_takes_the_place_of_a_repeated_one() -> None:
    row = np.arange(3.0)
    (found,) = in_place_of(Core.of(row), row, np.broadcast_to(np.ones(3) * row[:, None], (3, 3)))
    np.testing.assert_array_equal(found, np.broadcast_to(row[:, None], (3, 3)))


def test_constants_are_decimal_numbers() -> None:
    assert float(widen(np.float32(1e-5))) == 1e-5
    assert widen(np.asarray([1e-5], np.float32)).dtype == np.float64
    assert widen(np.int32(3)).dtype == np.int32


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_recognized(name: str) -> None:
    x = np.random.default_rng(1).normal(size=40) * 4
    with jax.enable_x64(True):
        y = np.asarray(ACTIVATIONS[name](x))
    assert name_function(x, y) == name


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x, "none"),
        (lambda x: np.where(x > 0, x, 0.3 * x), "leaky relu, slope 0.3"),
        (lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)), "elu, alpha 0.5"),
        (lambda x: x / (1 + np.exp(-0.7 * x)), "swish, beta 0.7"),
        (lambda x: 1.1 * x, None),
        (lambda x: x**3, None),
    ],
)
def test_parameters_of_activations_are_fitted(function, expected) -> None:
    x = np.random.default_rng(1).normal(size=40)
    assert name_function(x, function(x)) == expected


def test_numbers_too_large_for_the_exponential_function_are_no_logarithms() -> None:
    x = np.array([-1.0, 0.5])
    assert is_exponential(np.exp(x), x) and not is_exponential(x, x)
    assert not is_exponential(np.array([1.0, 2.0]), np.array([1e4, -1.0]))
