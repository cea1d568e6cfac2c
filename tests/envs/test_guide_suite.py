"""The suite that docs/guide/suites.md writes, outside the package."""

import importlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.project.documents import files
from tests.project.source import ROOT
from triglot.checks.environment.check import check_environment
from triglot.core.errors import TriglotError

pytestmark = [
    pytest.mark.library_promotion("octax writes int32 into uint8"),
    pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning"),
]


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    text = files(ROOT / "docs/guide/suites.md")["octax_suite.py"]
    (tmp_path / "octax_suite.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("octax_suite")


@pytest.mark.slow
def test_it_passes_every_check(suite: Any) -> None:
    env, same = suite.make("brix", frame_skip=1), suite.make("brix", frame_skip=1)
    assert env == same and hash(env) == hash(same)
    assert check_environment(env).passed


def test_a_frame_skip_is_the_number_of_channels(suite: Any) -> None:
    env = suite.make("pong", frame_skip=2)
    step = env.reset(jax.random.key(0))
    assert step.obs.shape == env.obs_spec.shape == (64, 32, 2)


@pytest.mark.slow
def test_its_limit_truncates(suite: Any) -> None:
    env = suite.make("worm", max_num_steps_per_episodes=2)
    step = env.reset(jax.random.key(0))
    flags = []
    for key in jax.random.split(jax.random.key(1), 2):
        step = env.step(step.state, np.int32(0), key)
        flags.append((bool(step.terminated), bool(step.truncated)))
    assert flags == [(False, False), (False, True)]


@pytest.mark.slow
def test_it_draws(suite: Any, tmp_path: Path) -> None:
    env = suite.make("brix")
    states = jax.tree.map(lambda leaf: leaf[None], env.reset(jax.random.key(0)).state)
    env.draw(states, str(tmp_path / "brix.gif"))
    assert (tmp_path / "brix.gif").read_bytes().startswith(b"GIF89a")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bricks", {}, "unknown octax environment 'bricks'; did you mean 'brix'"),
        (
            "brix",
            {"skip": 2},
            "unknown option 'skip' of octax:brix. Choices: frame_skip, max_num_steps",
        ),
        ("brix", {"frame_skip": "two"}, "frame_skip of octax:brix must be an integer"),
        ("brix", {"frame_skip": [2]}, "must be a number, a string or a tuple"),
    ],
)
def test_bad_input_is_answered(
    suite: Any, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TriglotError, match=message):
        suite.make(name, **options)


@pytest.mark.slow
def test_every_game_is_made(suite: Any) -> None:
    assert len(suite.names()) == 19
    for name in suite.names():
        env = suite.make(name)
        assert env.reset(jax.random.key(0)).obs.shape == (64, 32, 4)
