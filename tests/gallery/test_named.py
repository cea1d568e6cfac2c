"""`diff` finds nothing in clean pairs of the gallery, and names and locates the planted bugs."""

from typing import Any

import pytest

from tests.gallery import pair as gallery
from tests.gallery.worker import compare
from triglot.diff.measures.effort import QUICK, STANDARD

PAIRS = gallery.find_pairs()
SOON = {"nerf": ("without_pi",)}  # the others are slow

pytestmark = pytest.mark.library_promotion("layers and attention of the libraries mix dtypes")


def cases() -> list[Any]:
    """Parametrise over all bugs."""
    found = []
    for pair in PAIRS.values():
        for bug in pair.bugs:
            marks = [] if bug.name in SOON.get(pair.name, ()) else [pytest.mark.slow]
            found.append(pytest.param(pair.name, bug.name, marks=marks))
    return found


@pytest.mark.parametrize(("name", "bug"), cases())
def test_a_bug_is_named_and_located_without_false_positives(name: str, bug: str) -> None:
    row = compare(name, bug, STANDARD)
    assert row["found"] and row["named"] and row["located"], row["causes"]
    assert row["false"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_clean_pairs_are_equal_without_false_positives(name: str) -> None:
    row = compare(name, level=QUICK)
    assert row["verdict"] in ("identical", "equivalent") and row["false"] == [], row["causes"]


def test_the_quick_cases_exist() -> None:
    for name, bugs in SOON.items():
        assert {*bugs} <= {bug.name for bug in PAIRS[name].bugs}
