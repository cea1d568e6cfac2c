"""A stored comparison is read or refused, and what changed since is listed."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from triglot.compare.against import changes, read
from triglot.core.errors import TriglotError

from .in_process import OPTIONS


def a_result() -> dict[str, Any]:
    """Make as much of a result as is compared."""
    stage = {"median": 10.0, "low": 9.5, "high": 10.5, "count": 5}
    return {
        "schema": 2,
        "algorithm": OPTIONS.algorithm,
        "env": OPTIONS.env,
        "num_seeds": OPTIONS.num_seeds,
        "seed": OPTIONS.seed,
        "arithmetic": OPTIONS.arithmetic,
        "config": OPTIONS.config,
        "hyper": OPTIONS.hyper,
        "optimizer": None,
        "verdict": {"level": "identical", "sentence": "equal"},
        "versions": {"jax": "0.10.2"},
        "pairs": [{"margin": 1.0}],
        "backends": {"haiku": {"params_sha256": "aa"}},
        "statistics": {"backends": {"haiku": {"final_returns": [10.0, 10.1, 9.9, 10.0, 10.2]}}},
        "cost": {
            "stages": [{"name": "compile", "title": "Compile"}],
            "backends": {"haiku": {"compile": stage}},
        },
    }


def changed(change: Any) -> dict[str, Any]:
    """Compare a result with a changed one."""
    now = copy.deepcopy(a_result())
    change(now)
    return changes(Path("before.json"), a_result(), now)


def test_nothing_changed() -> None:
    found = changed(lambda now: None)
    assert (found["level"], found["changes"]) == ("unchanged", [])


@pytest.mark.parametrize(
    ("change", "what", "words"),
    [
        (lambda now: now["versions"].update(jax="0.11.2"), "version", "jax 0.10.2 is 0.11.2"),
        (lambda now: now["verdict"].update(level="equivalent"), "verdict", "was identical and is"),
        (
            lambda now: now["backends"]["haiku"].update(params_sha256="bb"),
            "bits",
            "no longer bitwise identical",
        ),
        (
            lambda now: now["cost"]["backends"]["haiku"]["compile"].update(
                median=20.0, low=19.0, high=21.0
            ),
            "cost",
            "Haiku: Compile is 2.00 times what it was",
        ),
        (lambda now: now["backends"].pop("haiku"), "backend", "is missing now"),
    ],
)
def test_a_change_is_listed(change: Any, what: str, words: str) -> None:
    found = changed(change)
    assert [one["what"] for one in found["changes"]] == [what]
    assert words in found["changes"][0]["sentence"] or words in found["sentence"]
    assert found["level"] == "changed"


def test_a_cost_within_its_interval_is_no_change() -> None:
    found = changed(
        lambda now: now["cost"]["backends"]["haiku"]["compile"].update(median=10.4, high=11.0)
    )
    assert found["changes"] == []


def test_another_return_is_different() -> None:
    def worse(now: dict[str, Any]) -> None:
        now["backends"]["haiku"]["params_sha256"] = "bb"
        now["statistics"]["backends"]["haiku"]["final_returns"] = [5.0, 5.1, 4.9, 5.0, 5.2]

    found = changed(worse)
    assert [one["what"] for one in found["changes"]] == ["bits", "return"]
    assert found["level"] == "different"


def test_returns_are_tested_together() -> None:
    """One of four libraries differs at p = 0.02, by chance."""
    before = a_result()
    entry, scores = before["backends"]["haiku"], before["statistics"]["backends"]["haiku"]
    for name in ("linen", "nnx", "equinox"):
        before["backends"][name] = dict(entry)
        before["statistics"]["backends"][name] = copy.deepcopy(scores)
    now = copy.deepcopy(before)
    own = now["statistics"]["backends"]["haiku"]
    own["final_returns"] = [
        score + by for score, by in zip(own["final_returns"], (0.5, 2.5, 1, 3, 2), strict=True)
    ]
    now["backends"]["haiku"]["params_sha256"] = "bb"
    assert changes(Path("before.json"), before, now)["level"] == "different"
    for each in now["backends"].values():
        each["params_sha256"] = "bb"
    assert changes(Path("before.json"), before, now)["level"] == "changed"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema": 2, "algo', "is not a complete comparison.json"),
        ('{"schema": 1}', "is not a complete comparison.json of this version"),
        ("[]", "is not a complete comparison.json"),
        (json.dumps({**a_result(), "seed": 7}), "has seed 7, and this command has 0"),
    ],
)
def test_another_file_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    path.write_text(content)
    with pytest.raises(TriglotError, match=message):
        read(path, OPTIONS)
