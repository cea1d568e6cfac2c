"""A pair's level follows from bits, outputs and returns; the ladder says what a rung explains."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triglot.compare.assemble import _judge
from triglot.compare.results import Record
from triglot.compare.rungs import rung_named
from triglot.compare.verdict.causes import divergence
from triglot.compare.verdict.overall import ladder, margin_of, verdict
from triglot.compare.verdict.pairs import Pair, judge_together
from triglot.runs.identity import PREFIX

NUM_UPDATES = 4


def a_record(returns: list[float], change: float = 0.0, output_change: float = 0.0) -> Record:
    """Make the results of a training of one parameter array.

    Args:
      returns: one per seed.
      change: of the final parameters.
      output_change: of the outputs at the start, relative.
    """
    seeds = len(returns)
    params = np.ones((seeds, 3), np.float32) + np.float32(change)
    prints = np.zeros((seeds, NUM_UPDATES), np.uint32)
    if change:
        prints[:, 1:] += 1
    curve = np.tile(np.array([np.nan, 1, 2, 3], np.float32), (seeds, 1))
    outputs = np.full((seeds, 2), 1 + output_change, np.float32)
    start = {"params/w": np.ones((seeds, 3), np.float32), "outputs/y": outputs}
    return Record(
        facts={"final_returns": returns, "num_updates": NUM_UPDATES, "steps_per_update": 10},
        history=[{"episode_return": curve, f"{PREFIX}w": prints}],
        snapshots={0: start, NUM_UPDATES: {"params/w": params, "outputs/y": outputs}},
        probe={"params/w": np.ones(3, np.float32), "outputs/y": outputs[0]},
        params={"w": params},
    )


def judged(one: Record, other: Record, rung: str = "weights", margin: float = 1.0) -> dict:
    pair = Pair(
        names=("haiku", "equinox"), records=(one, other), rung=rung_named(rung), margin=margin
    )
    return pair.judge()


NEAR = [10.0, 10.1, 9.9, 10.0, 10.05]
FAR = [30.0, 31.0, 29.0, 30.5, 30.0]
NOISY = [1.0, 30.0, 5.0, 22.0, 9.0]


@pytest.mark.parametrize(
    ("other", "level", "words"),
    [
        (a_record(NEAR), "identical", "are bitwise identical over 4 updates"),
        (a_record(NEAR, 1e-6), "equivalent", "the final returns of all seeds are equal"),
        (a_record([r + 0.1 for r in NEAR], 1e-6), "equivalent", "within the margin of ±1.00"),
        (a_record(FAR, 1e-6), "different", "not within the margin of ±1.00"),
        (
            a_record(NOISY, 1e-6),
            "inconclusive",
            "seeds do not decide whether it is within the margin",
        ),
        (a_record(NEAR, 1e-6, output_change=0.01), "different", "compute different functions"),
        (a_record([*NEAR[:4], float("nan")], 1e-6), "different", "return is NaN or infinite"),
    ],
)
def test_the_level_of_a_pair(other: Record, level: str, words: str) -> None:
    found = judged(a_record(NEAR), other)
    assert found["level"] == level
    assert words in found["sentence"]
    assert found["identical"] == (level == "identical")


@pytest.mark.parametrize(
    ("output_change", "found", "names", "level"),
    [
        (0.0, True, ["update"], "different"),
        (0.0, False, ["compilation"], "equivalent"),
        (2.0**-20, True, ["update", "summation_order"], "different"),
        (2.0**-20, False, ["summation_order"], "equivalent"),
        (0.01, True, ["network"], "different"),
    ],
)
def test_a_cause_in_the_update_is_searched_where_the_parts_are_equal(
    output_change: float, found: bool, names: list[str], level: str
) -> None:
    asked = []

    def update_cause(*, functions_only: bool) -> dict[str, str] | None:
        asked.append(functions_only)
        cause = {"name": "update", "where": "the loss", "evidence": "a", "part": "update"}
        return cause if found else None

    pair = Pair(
        names=("haiku", "equinox"),
        records=(a_record(NEAR), a_record(NEAR, 1e-6, output_change)),
        rung=rung_named("weights"),
        margin=1.0,
        update_cause=update_cause,
    ).judge()
    assert [cause["name"] for cause in pair["causes"]] == names
    assert pair["level"] == level
    assert ("the algorithms compute different updates" in pair["sentence"]) == ("update" in names)
    # Where the parts round differently, so does the update.
    assert asked == ([] if names == ["network"] else [output_change > 0])


def of_four(returns: list[list[float]], **how: Any) -> list[dict[str, Any]]:
    """Judge the pairs of libraries with these returns; equal returns are of identical ones."""
    known = []
    for index, own in enumerate(returns):
        first = returns.index(own)
        known.append(a_record(own, 1e-6 * first if first else 0.0))
        assert index >= first
    return judge_together(
        [
            Pair(
                names=(f"library {i}", f"library {j}"),
                records=(known[i], known[j]),
                rung=rung_named("weights"),
                margin=how.get("margin", 1.0),
            )
            for i, j in itertools.combinations(range(len(known)), 2)
        ]
    )


RNG = np.random.default_rng(5)
CHANCE = [(10 + RNG.normal(0, 3, 10)).tolist() for _ in range(3)]
# Differs from the first by 2 on average: p = 0.02 for this pair alone.
CHANCE.append([r + 2 + d for r, d in zip(CHANCE[0], np.tile([-2.25, 2.25], 5), strict=True)])


def test_different_is_corrected_for_the_number_of_pairs() -> None:
    alone = of_four([CHANCE[0], CHANCE[3]])[0]
    assert alone["level"] == "different"
    assert (alone["num_tests"], alone["corrected_p_value"]) == (1, alone["difference_p_value"])
    among = of_four(CHANCE)[2]
    assert among["num_tests"] == 6
    assert among["difference_p_value"] == alone["difference_p_value"] < 0.05
    assert among["corrected_p_value"] == pytest.approx(6 * alone["difference_p_value"])
    assert among["level"] == "inconclusive"
    assert "corrected for 6 tests" in among["sentence"]
    assert among["return_difference"] == alone["return_difference"], "the interval is of one pair"


def test_identical_pairs_are_no_tests_and_identical_libraries_are_one() -> None:
    found = of_four([CHANCE[0], CHANCE[0], CHANCE[0], CHANCE[3]])
    assert [pair["num_tests"] for pair in found] == [0, 0, 1, 0, 1, 1]
    assert [pair["level"] for pair in found] == [
        "identical", "identical", "different", "identical", "different", "different",
    ]  # fmt: skip
    assert found[0]["corrected_p_value"] is None


def test_the_environments_of_a_rung_are_judged_together() -> None:
    """Each environment gets its own pairs back, with p-values over all."""
    records = {
        env: {
            "haiku": a_record(CHANCE[0]),
            "linen": a_record(own, 1e-6),
            "nnx": a_record(own, 1e-6),
        }
        for env, own in (("a", CHANCE[1]), ("b", CHANCE[3]))
    }
    finished: Any = SimpleNamespace(
        options=SimpleNamespace(margin=1.0), bounds={"a": None, "b": None}, operations=None
    )
    found = _judge(finished, records, rung_named("weights"))
    assert [len(pairs) for pairs in found.values()] == [3, 3]
    assert found["b"][0]["backends"] == ["haiku", "linen"]
    assert found["b"][0]["num_tests"] == found["a"][0]["num_tests"] == 2
    alone = of_four([CHANCE[0], CHANCE[3]])[0]["difference_p_value"]
    assert found["b"][0]["corrected_p_value"] == pytest.approx(2 * alone)


def test_equivalence_is_not_corrected() -> None:
    near = [(np.full(10, 10.0) + RNG.normal(0, 0.1, 10)).tolist() for _ in range(4)]
    assert {pair["level"] for pair in of_four(near)} == {"equivalent"}


def test_few_seeds_are_never_judged_by_their_returns() -> None:
    found = judged(a_record([10.0, 10.0]), a_record([10.5, 10.5], 1e-6))
    assert found["level"] == "inconclusive"
    assert "over 2 seeds; at least 5 are needed" in found["sentence"]
    assert found["return_difference"]["low"] is None


def test_too_few_seeds_are_told_how_many_would_do() -> None:
    spread = [10.0, 14.0, 6.0, 12.0, 8.0]
    other = [14.0, 6.0, 12.0, 8.0, 10.0]
    found = judged(a_record(spread), a_record(other, 1e-6), margin=5.0)
    assert found["level"] == "inconclusive"
    assert found["seeds_needed"] > 5
    assert f"about {found['seeds_needed']:,} are needed" in found["sentence"]


def test_a_difference_grows_over_updates() -> None:
    found = divergence(a_record(NEAR), a_record(NEAR, 0.5, output_change=0.25))
    assert found["updates"] == [0, NUM_UPDATES]
    assert found["params_abs"] == [0, 0.5] and found["outputs_abs"] == [0.25, 0.25]
    assert found["return_abs"] == [None, 0]


def test_an_infinite_parameter_is_an_infinite_difference() -> None:
    found = divergence(a_record(NEAR), a_record(NEAR, float("inf")))
    assert found["params_abs"][-1] == np.inf


@pytest.mark.parametrize(
    ("arguments", "margin"),
    [((500.0, 20.0, None), 24.0), ((-150.0, -1250.0, None), 55.0), ((3.0, 0.0, 7.0), 7.0)],
)
def test_the_margin_is_a_share_of_what_was_learned(arguments: Any, margin: float) -> None:
    assert margin_of(*arguments) == pytest.approx(margin)


def test_nothing_learned_leaves_a_margin() -> None:
    assert margin_of(20.0, 20.0, None) > 0


def test_the_verdict_is_the_worst_pair() -> None:
    same, apart = (
        judged(a_record(NEAR), a_record(NEAR)),
        judged(a_record(NEAR), a_record(FAR, 1e-6)),
    )
    found = verdict([same, apart], ["haiku", "equinox"], NUM_UPDATES, "canonical")
    assert found["level"] == "different"
    assert found["sentence"].startswith("Different. Equinox diverges from Haiku at update 2 in w")


def test_the_verdict_of_equal_libraries() -> None:
    same = judged(a_record(NEAR), a_record(NEAR))
    found = verdict([same] * 6, ["haiku", "linen", "nnx", "equinox"], NUM_UPDATES, "native")
    assert found == {
        "level": "identical",
        "sentence": "All four learning curves and final parameters are bitwise identical over 4 "
        "updates.",
    }


@pytest.mark.parametrize(
    ("returns", "other", "level", "headline"),
    [
        (NEAR[:1], NEAR[:1], "inconclusive",
         "Equinox rounds differently; returns unchanged; "
         "use at least 5 seeds for a statistical verdict."),
        (NEAR[:3], FAR[:3], "inconclusive",
         "Equinox rounds differently; returns changed; "
         "use at least 5 seeds for a statistical verdict."),
        (NEAR, [r + 0.1 for r in NEAR], "equivalent",
         "Equinox rounds differently; the returns are equivalent."),
        (NEAR, [8.0, 12.0, 8.0, 12.0, 10.05], "inconclusive",
         "Equinox rounds differently; returns changed; "
         "use about 34 seeds for a statistical verdict."),
        (NEAR, FAR, "different", "Different."),
    ],
)  # fmt: skip
def test_the_headline_of_rounding_alone_says_so(
    returns: list[float], other: list[float], level: str, headline: str
) -> None:
    first, second = a_record(returns), a_record(other, 1e-6, 2.0**-20)
    libraries = ("haiku", "linen", "equinox")
    pairs = [
        Pair(names=names, records=records, rung=rung_named("weights"), margin=1.0)
        for names, records in (
            (("haiku", "linen"), (first, first)),
            (("haiku", "equinox"), (first, second)),
            (("linen", "equinox"), (first, second)),
        )
    ]
    found = verdict(judge_together(pairs), libraries, NUM_UPDATES, "native")
    assert found["level"] == level and found["sentence"].startswith(headline)


def test_the_interval_that_decides_stands_in_the_sentence() -> None:
    """Two one-sided tests at 5 % reject exactly where the 90 % interval is within the margin."""
    other = a_record([9.0, 11.0, 8.9, 11.0, 10.05], 1e-6)
    for margin, level in ((0.95, "inconclusive"), (1.1, "equivalent")):
        found = judged(a_record(NEAR), other, margin=margin)
        low, high = found["equivalence_interval"]
        assert (max(-low, high) < margin) == (found["level"] == level == "equivalent")
        assert found["return_difference"]["low"] < low < high < found["return_difference"]["high"]
        assert f", 90 % interval [{-high:.3f}, {-low:.3f}]" in found["sentence"]
    different = judged(a_record(NEAR), a_record(FAR, 1e-6))["sentence"]
    assert ", 95 % interval [" in different


def with_area(record: Record, change: float) -> Record:
    """Raise a learning curve, by a little more for each seed."""
    curve = record.history[0]["episode_return"]
    more = np.linspace(change, 1.01 * change, len(curve), dtype=np.float32)
    record.history[0]["episode_return"] = curve + more[:, None]
    return record


def test_the_ladder_says_what_each_rung_explains() -> None:
    def rung(other: Record) -> dict[str, Any]:
        return {"pairs": [judged(a_record(NEAR), other)], "backends": {}}

    found = ladder(
        {
            "defaults": rung(with_area(a_record(FAR, 1e-6), 20.0)),
            "initializers": rung(with_area(a_record(NEAR, 1e-6), 5.0)),
            "weights": rung(a_record(NEAR, 1e-6)),
            "canonical": rung(a_record(NEAR)),
        }
    )
    named = {entry["rung"]: entry for entry in found}
    assert list(named) == ["defaults", "initializers", "weights", "leaf_order", "canonical"]
    assert [entry["run"] for entry in found] == [True, True, True, False, True]
    assert named["leaf_order"]["pairs"] is None
    explained = {name: entry["explained"] for name, entry in named.items() if entry["run"]}
    assert explained["initializers"]["share"] == pytest.approx(0.75)
    assert (
        "75 % of the previous rung's difference of areas comes from the default initializers."
        in (explained["initializers"]["sentence"])
    )
    assert explained["weights"]["share"] == 1.0
    assert explained["canonical"]["share"] is None, "nothing was left to explain"
    assert "no difference remains" in explained["canonical"]["sentence"]
    assert "Remaining: 1 of 1 pairs of libraries differ" in explained["defaults"]["sentence"]
    assert named["defaults"]["largest"]["return"]["mean"] == pytest.approx(20.09, abs=0.01)


def test_noise_is_not_explained() -> None:
    noisy = a_record(NEAR, 1e-6)
    noisy.history[0]["episode_return"] += np.array([[30], [-31], [8], [-9], [4]], np.float32)
    found = ladder(
        {
            "defaults": {"pairs": [judged(a_record(NEAR), noisy)], "backends": {}},
            "initializers": {"pairs": [judged(a_record(NEAR), a_record(NEAR))], "backends": {}},
        }
    )
    assert found[1]["explained"]["share"] is None
    assert "no more than the noise of the seeds" in found[1]["explained"]["sentence"]


def test_one_pair_of_many_is_not_evidence() -> None:
    """One of six pairs has p = 0.03, as one of six does by chance in one comparison of six."""

    def pair(mean: float, p_value: float) -> dict[str, Any]:
        area = {"mean": mean, "low": mean - 1.0, "high": mean + 1.0}
        found = judged(a_record(NEAR), a_record(NEAR, 1e-6))
        return {**found, "area_difference": area, "area_p_value": p_value}

    def share(first: list[dict[str, Any]]) -> float | None:
        last = [judged(a_record(NEAR), a_record(NEAR))]
        rungs = {"defaults": first, "initializers": last}
        found = ladder({n: {"pairs": pairs, "backends": {}} for n, pairs in rungs.items()})
        return found[1]["explained"]["share"]

    others = [pair(0.1 * number, 0.5) for number in range(1, 6)]
    assert share([pair(2.0, 0.03)]) == 1.0, "the only pair"
    assert share([pair(2.0, 0.03), *others]) is None
    assert share([pair(2.0, 0.03)] * 3) == 1.0, "two libraries that are equal are one test"
    assert share([pair(2.0, 0.001), *others]) == 1.0
