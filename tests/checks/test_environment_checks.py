"""`check_environment` passes correct environments, and reports each defect with one check."""

from typing import Any

import pytest

from triglot.checks.environment.check import CHECKS, check_environment

from .broken_environments import BROKEN
from .defects import marks
from .malformed_environments import MALFORMED
from .sound_environments import SOUND, Blank, Endless, Grid, Lasts, Walk


def cases(defects: list[tuple[str, Any]]) -> list[Any]:
    """Name and mark the cases."""
    marked = zip(defects, marks([check for check, _ in defects]), strict=True)
    return [
        pytest.param(check, env, id=f"{check}-{type(env).__name__}-{number}", marks=slow)
        for number, ((check, env), slow) in enumerate(marked)
    ]


@pytest.mark.parametrize(
    "env",
    [pytest.param(env, marks=pytest.mark.slow if i % 3 else ()) for i, env in enumerate(SOUND)],
    ids=[f"{number}-{type(env).__name__}" for number, env in enumerate(SOUND)],
)
def test_a_correct_environment_passes(env: Any) -> None:
    report = check_environment(env)
    assert report.passed, str(report)


@pytest.mark.parametrize(("check", "env"), cases(BROKEN))
def test_one_check_finds_the_defect_and_no_other(check: str, env: Any) -> None:
    report = check_environment(env)
    assert report.failed == (check,), str(report)


def test_every_check_has_a_broken_environment() -> None:
    assert {check for check, _ in BROKEN} == {check.name for check in CHECKS.checks}


@pytest.mark.parametrize(("given", "word"), MALFORMED.values(), ids=MALFORMED)
def test_other_objects_get_a_sentence(given: Any, word: str) -> None:
    report = check_environment(given)
    found = next(result for result in report.results if result.outcome == "failed")
    assert word in found.found
    assert found.found.strip()
    assert found.fix.strip()
    for line in (found.found, found.fix):
        assert "\n" not in line
        assert "Traceback" not in line
        assert "site-packages" not in line


@pytest.mark.parametrize(
    ("env", "note"),
    [
        (Grid(), "Every reset gives the same start"),
        (Lasts(), "episodes terminated after 10 steps. If that is a time limit"),
        (Endless(), "No episode ended in 2048 random steps"),
        (Blank(), "looks like that of a reset"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unusual_properties_are_notes(env: Any, note: str) -> None:
    report = check_environment(env)
    assert report.passed
    assert note in " ".join(report.notes)


def test_another_seed_passes() -> None:
    assert check_environment(Walk(), seed=3).passed
