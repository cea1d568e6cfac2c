"""Every algorithm trains on every library and suite that fits it; the others are rejected.

Each algorithm is trained on each library, on each suite, and each library on each suite: not on
every library with every suite. A few of the trainings, and each algorithm's trace on each suite
that JAX compiles, are quick tests.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import triglot
from benchmarks.cases import BRAX, CART, CASES, HOST_CART, MAZE, TABULAR
from tests.covering import pairwise
from triglot.core.errors import TriglotError
from triglot.core.trainers import make_trainer
from triglot.runs.identity import learned
from triglot.runs.registry.algorithms import ALGORITHMS

TOTAL_STEPS = 48


class Training(NamedTuple):
    algorithm: str
    backend: str
    env: str


FITTING = [
    Training(algorithm, backend, env)
    for algorithm, case in CASES.items()
    for env in case.envs
    for backend in case.backends(env)
]


def make(case: Training, env: Any, **config: Any) -> Any:
    small = CASES[case.algorithm]
    config = {**small.config, **config}
    return triglot.make_agent(
        case.algorithm, env, backend=case.backend, config=config, hyper=small.hyper
    )


def params_of(agent_state: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(learned(agent_state).params)]


def test_every_algorithm_has_a_case() -> None:
    assert list(CASES) == list(ALGORITHMS)


@pytest.mark.covering(135)
@pytest.mark.parametrize("case", pairwise(FITTING), ids="-".join)
def test_it_trains(case: Training) -> None:
    env = triglot.make_env(case.env)
    agent = make(case, env)
    short = triglot.train(agent, env, key=jax.random.key(0), total_steps=1)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=TOTAL_STEPS)
    assert result.num_steps >= TOTAL_STEPS
    before, after = params_of(short.runner_state.agent), params_of(result.runner_state.agent)
    assert all(np.isfinite(leaf).all() for leaf in after)
    if case.env not in TABULAR or case.algorithm == "ppo":  # no reward yet, and nothing to learn
        assert any((one != other).any() for one, other in zip(before, after, strict=True))


# Of an environment, a library sees only the shapes: each suite is traced with one library.
TRACED = [
    Training(algorithm, case.backends(env)[index % len(case.backends(env))], env)
    for algorithm, case in CASES.items()
    for index, env in enumerate(case.envs)
    if not env.startswith("gymnasium")
]


@pytest.mark.covering(48)
@pytest.mark.parametrize("case", TRACED, ids="-".join)
@pytest.mark.library_promotion("brax, jumanji and gymnax mix integers and floats")
def test_it_is_traced(case: Training) -> None:
    env = triglot.make_env(case.env)
    trainer: Any = make_trainer(make(case, env), env)
    trainer.check()


@pytest.mark.parametrize(
    ("algorithm", "env"), [(name, env) for name, case in CASES.items() for env in case.refused]
)
def test_what_does_not_fit_is_refused_in_a_sentence(algorithm: str, env: str) -> None:
    made, words = triglot.make_env(env), CASES[algorithm].refused[env]
    with pytest.raises(TriglotError, match=f"on {env}: .*{words}") as error:
        make(Training(algorithm, "linen", env), made)
    assert "\n" not in str(error.value)


@pytest.mark.covering(4)
@pytest.mark.parametrize(
    ("algorithm", "env"), [("ppo", CART), ("ppo", MAZE), ("dqn", HOST_CART), ("sac", BRAX)]
)
def test_a_table_is_refused_where_observations_are_not_discrete(algorithm: str, env: str) -> None:
    with pytest.raises(TriglotError, match="the backend 'table' builds lookup tables only"):
        make(Training(algorithm, "table", env), triglot.make_env(env))
