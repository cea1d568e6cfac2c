"""Averages that norms are tried by, from sums that are kept."""

import numpy as np
import pytest

from triglot.diff.programs.catalogue.norms import KINDS, Norm, Root, Sums, _averages


@pytest.mark.parametrize("shape", [(3, 6), (3, 4, 4, 8), (3, 8, 4, 4), (3, 5, 12)])
def test_sums_give_the_averages_of_all_norms(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(1.0, 2.0, shape)
    sums, root = Sums(x), Root.__new__(Root)  # which averages do not read
    for inner, groups, axes in _averages(shape):
        for centred, summed in KINDS:
            norm = Norm(centred, summed, inner, axes, groups, root)
            np.testing.assert_allclose(
                sums.average(norm), norm.average(x), rtol=1e-10, atol=1e-12, strict=True
            )
