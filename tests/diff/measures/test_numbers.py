"""Distances between arrays, and rounding against a difference of the functions."""

import numpy as np
import pytest

from triglot.diff.measures.numbers import distance

ONE = np.array([1.0, -2.0], np.float32)


def test_equal_arrays_have_no_distance() -> None:
    assert distance({"a": ONE}, {"a": ONE.copy()}) == (True, 0.0, 0.0, "")


@pytest.mark.parametrize(
    "other", [np.array([1.0, -2.0], np.float64), np.array([1.0, np.nextafter(-2, 0, dtype="f4")])]
)
def test_another_dtype_or_bit_is_not_identical(other: np.ndarray) -> None:
    assert not distance({"a": ONE}, {"a": other}).identical


def test_minus_zero_differs_in_bits_only() -> None:
    zero = np.zeros(1, np.float32)
    assert distance({"a": zero}, {"a": -zero}) == (False, 0.0, 0.0, "")


def test_a_difference_is_relative_to_its_array() -> None:
    separate = distance({"a": ONE, "b": ONE * 100}, {"a": ONE, "b": ONE * 100 + 1})
    assert separate == (False, 1.0, pytest.approx(1 / 200, rel=1e-2), "b")


def test_gradients_are_relative_to_the_largest() -> None:
    one = {"a": ONE, "zero": np.array([1e-9], np.float32)}
    other = {"a": ONE, "zero": np.array([-1e-9], np.float32)}
    assert distance(one, other).max_rel == pytest.approx(2)
    assert distance(one, other, together=True).max_rel == pytest.approx(1e-9)


def test_nan_equals_nan_and_nothing_else() -> None:
    nan = np.array([np.nan, -2.0], np.float32)
    assert distance({"a": nan}, {"a": nan.copy()}).identical
    assert distance({"a": nan}, {"a": ONE}).max_abs == np.inf
