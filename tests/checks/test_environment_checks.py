"""`check_environment` passes correct environments, and reports each defect with one check."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.checks.environment.check import CHECKS, check_environment
from triglot.checks.environment.reading import reading_notes
from triglot.core.environment import TimeStep, first_step
from triglot.core.specs import Box, Dict, Discrete, MultiDiscrete

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


@pytest.mark.covering(20)
@pytest.mark.parametrize(
    "env",
    [pytest.param(env, marks=pytest.mark.slow if i % 3 else ()) for i, env in enumerate(SOUND)],
    ids=[f"{number}-{type(env).__name__}" for number, env in enumerate(SOUND)],
)
def test_a_correct_environment_passes(env: Any) -> None:
    report = check_environment(env)
    assert report.passed, str(report)


@pytest.mark.covering(6)
@pytest.mark.parametrize(("check", "env"), cases(BROKEN))
def test_one_check_finds_the_defect_and_no_other(check: str, env: Any) -> None:
    report = check_environment(env)
    assert report.failed == (check,), str(report)


def test_every_check_has_a_broken_environment() -> None:
    assert {check for check, _ in BROKEN} == {check.name for check in CHECKS.checks}


@pytest.mark.covering(5)
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


@pytest.mark.covering(3)
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


@dataclass(frozen=True)
class Bits:
    """Shows two bits as bytes."""

    high: int = 1
    name = "bits"
    action_spec = Discrete(2)

    @property
    def obs_spec(self) -> Box:
        return Box((2,), "uint8", 0, self.high)

    def reset(self, key: jax.Array) -> TimeStep:
        return first_step((), jax.random.bernoulli(key, shape=(2,)).astype(jnp.uint8))

    def step(self, state: tuple, action: jax.Array, key: jax.Array) -> TimeStep:
        del action
        ended = jax.random.bernoulli(key)
        start = self.reset(key)
        return replace(start, state=state, terminated=ended)


def test_notes_say_what_networks_read() -> None:
    (bits,) = reading_notes(Bits().obs_spec, [np.array([[0, 1]], np.uint8)])
    assert "seen: [0, 1]" in bits and "upper bound" not in bits
    (wide,) = check_environment(Bits(255)).notes
    assert "bytes within [0, 255]" in wide and "seen: [0, 0.003922]" in wide
    assert "If no value can be above 1, declare it" in wide
    spec = Dict({"a": Discrete(3), "b": MultiDiscrete((2, 3)), "c": Box((2,), "int32", 0, 9)})
    seen = {"a": np.zeros(1), "b": np.zeros((1, 2)), "c": np.array([[4, 7]])}
    first, second, third = reading_notes(spec, [seen])
    assert "one of 3 values" in first and "5 values" in second
    assert "int32 without scaling" in third and "seen: [4, 7]" in third


@pytest.mark.slow
def test_another_seed_passes() -> None:
    assert check_environment(Walk(), seed=3).passed
