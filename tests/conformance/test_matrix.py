"""Every algorithm trains on every library and suite that fits it; the others are rejected.

CI runs a covering set: each algorithm on each library and on each suite that fits it. Of an
environment, a library sees only the shapes, so pairs of library and suite are left to
`pytest -m slow`, which runs all other cases.
"""

import itertools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import triglot
from triglot.core.errors import TriglotError
from triglot.training.identity import learned

BACKENDS = ("haiku", "linen", "nnx", "equinox", "table")
# The environment of each suite.
CART, GRID, REACH = "gymnax:CartPole-v1", "gridworld:4x4", "probe:reach"
PENDULUM, BRAX, MAZE = "gymnax:Pendulum-v1", "brax:inverted_pendulum", "jumanji:Maze-v0"
HOST_CART, HOST_PENDULUM = "gymnasium:CartPole-v1", "gymnasium:Pendulum-v1"
HOST_GRID = "gymnasium:FrozenLake-v1"
SERVED = {
    "ppo": (CART, MAZE, BRAX, HOST_CART, GRID, "probe:two-step"),
    "dqn": (CART, MAZE, HOST_CART, GRID, "probe:two-step"),
    "q_learning": (GRID, HOST_GRID),
    "sac": (PENDULUM, BRAX, HOST_PENDULUM, REACH),
}
TABULAR = (GRID, HOST_GRID)
SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 2, "rollout_length": 8, "num_epochs": 1, "num_minibatches": 2},
    "dqn": {"num_envs": 2, "batch_size": 8, "learning_starts": 16, "buffer_size": 32},
    "q_learning": {"rollout_length": 16},
    "sac": {"num_envs": 2, "batch_size": 8, "learning_starts": 16, "buffer_size": 32},
}
TOTAL_STEPS = 48


class Case(NamedTuple):
    algorithm: str
    backend: str
    env: str

    def pairs(self) -> set[tuple[str, str]]:
        suite = self.env.partition(":")[0]
        return {(self.algorithm, self.backend), (self.algorithm, suite)}


FITTING = [
    Case(algorithm, backend, env)
    for algorithm, envs in SERVED.items()
    for backend, env in itertools.product(BACKENDS, envs)
    if backend != "table" or env in TABULAR  # a table reads what is discrete
]


def covering(cases: list[Case]) -> set[Case]:
    """Choose cases greedily: always the one with the most uncovered pairs."""
    missing = set().union(*(case.pairs() for case in cases))
    chosen = set()
    while missing:
        best = max(cases, key=lambda case: len(case.pairs() & missing))
        chosen.add(best)
        missing -= best.pairs()
    return chosen


COVERING = covering(FITTING)


def make(case: Case, env: Any) -> Any:
    config = SMALL[case.algorithm]
    if case.algorithm != "q_learning":
        config = {**config, "hidden_sizes": (8,)}
    return triglot.make_agent(case.algorithm, env, backend=case.backend, config=config)


def params_of(agent_state: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(learned(agent_state).params)]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id="-".join(case), marks=() if case in COVERING else pytest.mark.slow)
        for case in FITTING
    ],
)
def test_it_trains(case: Case) -> None:
    env = triglot.make_env(case.env)
    agent = make(case, env)
    short = triglot.train(agent, env, key=jax.random.key(0), total_steps=1)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=TOTAL_STEPS)
    assert result.num_steps >= TOTAL_STEPS
    before, after = params_of(short.runner_state.agent), params_of(result.runner_state.agent)
    assert all(np.isfinite(leaf).all() for leaf in after)
    if case.env not in TABULAR or case.algorithm == "ppo":  # no reward yet, and nothing to learn
        assert any((one != other).any() for one, other in zip(before, after, strict=True))


def test_the_covering_set_covers() -> None:
    covered = set().union(*(case.pairs() for case in COVERING))
    assert covered == set().union(*(case.pairs() for case in FITTING))
    assert len(COVERING) < len(FITTING) / 2


@pytest.mark.parametrize(
    ("algorithm", "env", "words"),
    [
        *(("dqn", env, "DQN supports discrete actions") for env in (PENDULUM, BRAX, HOST_PENDULUM)),
        *(
            ("sac", env, "SAC needs a bounded Box of float actions")
            for env in (CART, MAZE, HOST_CART, GRID)
        ),
        *(
            ("q_learning", env, "Q-learning needs Discrete observations")
            for env in (CART, MAZE, BRAX, HOST_CART, "probe:two-step")
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(algorithm: str, env: str, words: str) -> None:
    made = triglot.make_env(env)
    with pytest.raises(TriglotError, match=f"on {env}: .*{words}") as error:
        make(Case(algorithm, "linen", env), made)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("algorithm", "env"), [("ppo", CART), ("ppo", MAZE), ("dqn", HOST_CART), ("sac", BRAX)]
)
def test_a_table_is_refused_where_observations_are_not_discrete(algorithm: str, env: str) -> None:
    with pytest.raises(TriglotError, match="the backend 'table' builds lookup tables only"):
        make(Case(algorithm, "table", env), triglot.make_env(env))
