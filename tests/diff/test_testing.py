"""A test of a port fails with the report."""

import pytest

from tests.diff import networks as nets
from triglot import TriglotError, assert_same_function


@pytest.mark.slow
def test_equal_functions_pass() -> None:
    report = assert_same_function(nets.haiku_mlp, nets.equinox_mlp, nets.INPUTS, max_ulps=64)
    assert report.verdict in ("identical", "equivalent")
    assert any("left out at level 'quick'" in note for note in report.notes)


def test_another_function_fails_with_the_report() -> None:
    with pytest.raises(AssertionError, match="missing_bias"):
        assert_same_function(nets.haiku_mlp, nets.haiku_without_bias, nets.INPUTS)


@pytest.mark.slow
def test_a_bound_on_rounding_is_kept() -> None:
    one, other = nets.haiku_leaky(0.01), nets.haiku_leaky(0.01 + 1e-9)
    with pytest.raises(TriglotError, match="max_ulps must be at least 0, got -1"):
        assert_same_function(one, other, nets.INPUTS, max_ulps=-1)
    report = assert_same_function(nets.haiku_mlp, nets.equinox_mlp, nets.INPUTS)
    if report.verdict == "equivalent":
        with pytest.raises(AssertionError, match="units in the last place apart, 0 are allowed"):
            assert_same_function(nets.haiku_mlp, nets.equinox_mlp, nets.INPUTS, max_ulps=0)
