"""Monte Carlo control and Dyna-Q find a shortest path; planning needs fewer steps; ES learns."""

from typing import Any

import jax
import numpy as np
import pytest

from triglot import evaluate, make_agent, make_env, train
from triglot.core.wrappers.ends import TimeLimit
from triglot.envs.gridworld import GridWorld

ENV = GridWorld(4, 5)


def learn(algorithm: str, env: Any, total_steps: int, **options: Any) -> tuple[Any, Any]:
    agent = make_agent(algorithm, env, **options)
    result = train(agent, env, key=jax.random.key(0), total_steps=total_steps, num_seeds=2)
    return agent, result.runner_state.agent


def returns(agent: Any, env: Any, states: Any) -> np.ndarray:
    """Play 16 greedy episodes of each of the two seeds."""
    play = jax.vmap(lambda state, key: evaluate(agent, env, state, key, num_episodes=16).returns)
    return np.asarray(play(states, jax.random.split(jax.random.key(1), 2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "config"),
    [
        ("monte_carlo", {}),
        ("monte_carlo", {"visits": "every", "constant_step_size": False, "num_envs": 3}),
        ("dyna_q", {}),
        ("dyna_q", {"plus": True, "num_envs": 3}),
    ],
)
def test_the_greedy_path_is_a_shortest_one(algorithm: str, config: dict[str, Any]) -> None:
    hyper = {"discount": 0.9, "epsilon": 0.2}
    agent, states = learn(algorithm, ENV, 100_000, backend="table", config=config, hyper=hyper)
    for seed in range(2):
        state = jax.tree.map(lambda leaf, seed=seed: leaf[seed], states)
        episodes = evaluate(agent, TimeLimit(ENV, 100), state, jax.random.key(1), num_episodes=16)
        np.testing.assert_array_equal(episodes.returns, 1.0)
        np.testing.assert_array_equal(episodes.lengths, 3 + 4)


@pytest.mark.slow
def test_planning_finds_the_goal_in_fewer_steps() -> None:
    env, values = GridWorld(8, 8), {}
    for algorithm in ("q_learning", "dyna_q"):
        _, states = learn(
            algorithm,
            env,
            2_048,
            backend="table",
            config={"rollout_length": 512},
            hyper={"discount": 0.9},
        )
        (tables,) = jax.tree.leaves(states.learner.variables.params)
        values[algorithm] = np.asarray(tables)[:, -1].max(axis=-1)  # the start is the last cell
    assert (values["dyna_q"] > 0.5 * env.optimal_values(0.9)[-1, -1]).all()
    assert (values["q_learning"] < 0.5 * values["dyna_q"]).any()
    assert (values["q_learning"] < values["dyna_q"]).all()


@pytest.mark.slow
def test_an_evolution_strategy_balances_the_pole() -> None:
    env = make_env("gymnax:CartPole-v1")
    agent, states = learn(
        "openai_es",
        env,
        2_000_000,
        config={"hidden_sizes": (16,)},
        hyper={"learning_rate": 0.05, "noise_std": 0.1},
    )
    assert returns(agent, env, states).mean() > 450.0
