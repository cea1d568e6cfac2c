"""Every number of an algorithm is either refused in one sentence or usable in float32."""

import math
from dataclasses import fields
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.properties import examples
from triglot.algorithms.dqn import DQN
from triglot.algorithms.ppo import PPO
from triglot.algorithms.q_learning import QLearning
from triglot.algorithms.sac import SAC
from triglot.core.errors import TriglotError
from triglot.core.hyper import (
    CountByEnvironment,
    Range,
    allowed_by,
    check_config,
    check_count,
    check_hyperparams,
    only_for,
    positive,
)

AGENTS: list[Any] = [PPO, DQN, SAC, QLearning]
HYPERPARAMS = [(agent, one.name) for agent in AGENTS for one in fields(agent.Hyperparams)]
TYPES = (int, "int", CountByEnvironment)
COUNTS = [(a, one.name) for a in AGENTS for one in fields(a.Config) if one.type in TYPES]
ODD_FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-50, 5e-324, 1e38, 1e39, 1e300, math.inf, -math.inf, math.nan]


@examples(
    200,
    20_000,
    which=st.sampled_from(HYPERPARAMS),
    number=st.sampled_from(ODD_FLOATS) | st.floats() | st.integers(),
)
def test_a_hyperparameter_is_refused_or_usable(which: tuple[Any, str], number: float) -> None:
    agent, name = which
    hyper = agent.Hyperparams(**{name: number})
    try:
        check_hyperparams("A", hyper, agent.Config())
    except TriglotError as error:
        assert str(error).startswith(f"A's {name} must be ") and len(str(error)) < 250
        return
    used = np.float32(number)
    assert not np.isnan(used) and (used != 0 or number == 0)
    (one,) = [one for one in fields(hyper) if one.name == name]
    declared = allowed_by(one, agent.Config())
    assert np.float32(declared.low) <= used <= np.float32(declared.high)
    assert np.isfinite(used) or number == declared.high == math.inf


@examples(
    200,
    20_000,
    which=st.sampled_from(COUNTS),
    number=st.integers() | st.integers(-5, 5) | st.floats() | st.none(),
)
def test_a_count_is_refused_or_an_int32(which: tuple[Any, str], number: Any) -> None:
    agent, name = which
    try:
        config = agent.Config(**{name: number})
    except TriglotError as error:
        assert len(str(error)) < 300
        return
    if number is None:
        assert "by_environment" in config.__dataclass_fields__[name].metadata
        return
    assert 1 <= getattr(config, name) < 2**31 and type(number) is int


@pytest.mark.parametrize(
    "allowed, inside, outside, text",
    [
        (Range(0.0), [0, math.inf], [-1, math.nan], "at least 0"),
        (Range(0.0, 1.0), [0, 1], [1.1, math.inf], "within [0, 1]"),
        (Range(0.0, above_low=True), [1e-9, math.inf], [0], "above 0"),
        (positive(1.0).metadata["allowed"], [1e-9], [0, math.inf], "finite and above 0"),
    ],
)
def test_a_range_says_what_it_allows(
    allowed: Range, inside: list[float], outside: list[float], text: str
) -> None:
    assert all(number in allowed for number in inside)
    assert not any(number in allowed for number in outside)
    assert str(allowed) == text


@pytest.mark.parametrize(
    "number, says",
    [
        (True, "must be an integer, got True"),
        (3.0, "must be an integer, got 3.0"),
        ("3", "must be an integer, got '3'"),
        (0, "must be at least 1, got 0"),
        (2**31, "must be at most 2,147,483,647, got 2147483648"),
        (10**400, "(401 characters)"),
    ],
)
def test_a_count_is_an_integer_in_range(number: Any, says: str) -> None:
    with pytest.raises(TriglotError) as error:
        check_count("num_envs", number)
    assert says in str(error.value)
    check_count("num_envs", np.int64(3))


def test_arrays_are_accepted_and_text_is_not() -> None:
    config = PPO.Config()
    check_hyperparams("PPO", PPO.Hyperparams(learning_rate=jnp.asarray([1e-3, 1e-4])), config)
    with pytest.raises(TriglotError, match="PPO's discount must be a number, got 'high'"):
        check_hyperparams("PPO", PPO.Hyperparams(discount="high"), config)  # pyright: ignore
    with pytest.raises(TriglotError, match="initial_std must be finite and above 0, got 'wide'"):
        check_config("PPO", PPO.Config(initial_std="wide"))  # pyright: ignore


def test_where_a_field_acts_is_declared_beside_its_range() -> None:
    declared = only_for("networks", positive(1.0))
    assert declared.default == 1.0
    assert declared.metadata == {**positive(1.0).metadata, "only_for": "networks"}
    assert only_for("optimizer", 3).default == 3
