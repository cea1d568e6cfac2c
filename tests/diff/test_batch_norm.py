"""Running statistics of batch normalization: their momentum, their start, and how they are used."""

from typing import Any

import pytest

from tests.diff.programs import families as f
from triglot import diff_networks

pytestmark = pytest.mark.library_promotion("norms broadcast and promote")

EMA = {"mode": "ema"}  # Equinox's running average, by which it normalizes in training too


@pytest.mark.covering(10)
@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        (("linen", {}), ("nnx", {"momentum": 0.99}), {"norm_momentum"}),
        (("equinox", {}), ("equinox", {"momentum": 0.99}), {"norm_momentum"}),
        (("equinox", EMA), ("equinox", {**EMA, "momentum": 0.99}), {"norm_momentum"}),
        (("equinox", {}), ("equinox", EMA), {"norm_statistics"}),
        (("equinox", EMA), ("linen", {}), {"norm_statistics"}),
        (
            ("haiku", {"momentum": 0.8}),
            ("equinox", EMA),
            {"norm_statistics", "norm_momentum"},
        ),
        # Equinox's "batch" corrects the bias of a variance that it starts at 1.
        (("equinox", {}), ("linen", {}), {"norm_momentum"}),
        (("haiku", {}), ("equinox", {}), {"norm_momentum"}),
        (("linen", {}), ("nnx", {}), set()),
        (("equinox", EMA), ("equinox", EMA), set()),
    ],
)
def test_what_differs_is_named(one: Any, other: Any, names: set[str]) -> None:
    networks = [f.batch_norm(library, **how) for library, how in (one, other)]
    report = diff_networks(networks[0], networks[1], f.FEATURES)
    assert {cause.name for cause in report.causes} - {"initializer"} == names
    assert (report.verdict == "different") == bool(names)
    assert (report.first_difference is None) == (not names)
