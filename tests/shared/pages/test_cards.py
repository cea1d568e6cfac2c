"""The cards at the top of the page, and the matrix of libraries."""

import math
from typing import Any

import pytest

from tests.shared.pages.sample import sample
from triglot.compare.pages.cards import Card, cards
from triglot.compare.pages.pairs import details, matrix


def found(title: str, result: dict[str, Any]) -> Card:
    """Return the card of a title."""
    (card,) = [card for card in cards(result) if card.title == title]
    return card


def small(**options: Any) -> dict[str, Any]:
    return sample(num_updates=5, **options)


def test_equal_libraries_are_identical() -> None:
    card = found("Identical?", small(identical=True))
    assert (card.value, card.level) == ("Yes", "identical")
    assert "all four" in card.meaning and "5 updates" in card.meaning
    assert found("Largest difference", small(identical=True)).value == "0"
    assert found("Return difference", small(identical=True)).value == "0"


def test_the_first_difference_is_named() -> None:
    card = found("Identical?", small())
    assert (card.value, card.detail) == ("No", "from update 1")
    assert "Flax NNX and Equinox differ first at update 1 of 5" in card.meaning
    assert "actor/torso/0/kernel and 11 more" in card.meaning


def test_a_difference_of_metrics_alone_is_named() -> None:
    result = small()
    place = result["identity"]["first_difference"]
    metric = {**place, "metric": "loss", "leaf": None, "num_differing": 1, "backends": ["nnx"]}
    result["identity"] |= {"first_difference": None, "first_metric_difference": metric}
    assert (
        "Flax NNX differs first at update 1 of 5, in loss." in found("Identical?", result).meaning
    )


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (2.0**-24, "at most one float32 rounding step at 1.0 (1.2e-7)"),
        (2.0**-13, "1,024 times the float32 rounding step"),
        (math.inf, "infinite or NaN"),
    ],
)
def test_the_largest_difference_is_put_in_rounding_steps(size: float, words: str) -> None:
    result = small(backends=("haiku", "equinox"))
    result["pairs"][0]["max_abs_param_difference"] = size
    assert words in found("Largest difference", result).meaning


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((-4.0, 5.0), "lies within the margin of ±10.0"),
        ((11.0, 20.0), "lies outside the margin"),
        ((5.0, 15.0), "reaches beyond the margin"),
    ],
)
def test_the_return_is_put_against_the_margin(bounds: tuple[float, float], words: str) -> None:
    result = small(backends=("haiku", "equinox"))
    mean = sum(bounds) / 2
    difference = {"mean": mean, "low": bounds[0], "high": bounds[1]}
    result["pairs"][0] |= {"margin": 10.0, "return_difference": difference}
    card = found("Return difference", result)
    assert words in card.meaning and "Haiku minus Equinox" in card.meaning
    assert card.value.startswith("+")


def test_the_return_is_put_against_the_margin_by_the_interval_that_decides() -> None:
    result = small(backends=("haiku", "equinox"))
    difference = {"mean": 0.5, "low": -11.0, "high": 11.0}
    tests = {"equivalence_interval": [-9.0, 9.0], "returns_level": "equivalent"}
    result["pairs"][0] |= {"margin": 10.0, "return_difference": difference, **tests}
    card = found("Return difference", result)
    assert "lies within the margin" in card.meaning
    assert (card.level, card.detail) == ("equivalent", "[-9.00, +9.00] at 90 %")
    result["pairs"][0]["returns_level"] = "different"
    assert found("Return difference", result).detail == "[-11.0, +11.0] at 95 %"


def test_few_seeds_are_not_judged() -> None:
    card = found("Return difference", small(num_seeds=3))
    assert "Fewer than 5 seeds are not tested." in card.meaning
    assert not card.level and not card.detail


def test_the_speed_says_when_it_cannot_tell() -> None:
    result = small()
    assert found("Slowest against fastest", result).value == "1.45 ×"
    for name, stages in result["cost"]["backends"].items():
        stages["steps_per_second"] |= {"low": 1.0, "high": 1e9}
        assert name in result["backends"]
    result["cost"]["noise"]["noisy"] = True
    meaning = found("Slowest against fastest", result).meaning
    assert "Their intervals overlap." in meaning and "The machine was busy." in meaning


def test_without_measured_costs_no_library_is_called_slow() -> None:
    card = found("Slowest against fastest", {**small(), "cost": None})
    assert card.value == "–" and "were not measured: --repetitions 5" in card.meaning


@pytest.mark.parametrize("part", ["pairs", "identity"])
def test_what_is_absent_has_no_card(part: str) -> None:
    result = small()
    titles = {card.title for card in cards(result)}
    assert {card.title for card in cards({**result, part: None})} < titles


def test_the_matrix_has_parameters_above_and_returns_below() -> None:
    rows = matrix(small())
    assert [name for name, _ in rows] == ["haiku", "linen", "nnx", "equinox"]
    cells = {name: dict(zip([n for n, _ in rows], row, strict=True)) for name, row in rows}
    assert cells["haiku"]["linen"].text == "identical"
    assert cells["haiku"]["equinox"].text == "6.7e-4"
    assert cells["haiku"]["equinox"].second == "from update 1"
    assert cells["haiku"]["haiku"].text == ""


def test_a_return_below_the_diagonal_is_the_row_minus_the_column() -> None:
    cell = matrix(small(backends=("haiku", "equinox")))[1][1][0]
    assert (cell.text, cell.second) == ("-42.0", "[-49.0, -35.0]")
    assert cell.title == "Equinox minus Haiku"


def test_the_largest_difference_is_described_first() -> None:
    described = details(small())
    assert described[0][0]["backends"] == ["haiku", "equinox"]
    assert "haiku" not in described[-1][0]["backends"] or "nnx" in described[-1][0]["backends"]
    _, facts = described[0]
    assert facts["Operation in Haiku"] == "dot_general (haiku/linear.py:42, torso/0)"
    assert not details(small(identical=True))


def test_the_part_of_the_update_is_described() -> None:
    result = small()
    for pair in result["pairs"]:
        if pair["first_difference"]:
            pair["first_difference"]["operation"]["part"] = "optimizer"
    assert details(result)[0][1]["Part of the update"] == "optimizer"
    assert "Part of the update" not in details(small())[0][1]
