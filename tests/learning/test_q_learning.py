"""The tabular agents find the known values and a shortest path, on every library's table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.q_learning import METHODS, QLearning, QLearningConfig, QLearningHyperparams
from triglot.backends import build
from triglot.core.evaluate import evaluate
from triglot.core.wrappers.ends import TimeLimit
from triglot.envs.gridworld import GridWorld
from triglot.runs.training import train

ENV = GridWorld(4, 5)
BACKENDS = ("table", "haiku", "linen", "nnx", "equinox")


def learn(method: str, backend: str, hyper: QLearningHyperparams, total_steps: int) -> tuple:
    config = QLearningConfig(method=method)  # pyright: ignore[reportArgumentType]
    network = build(backend, QLearning.networks(ENV.obs_spec, ENV.action_spec, config))
    agent = QLearning(network, ENV.obs_spec, ENV.action_spec, config, hyper)
    result = train(agent, ENV, key=jax.random.key(0), total_steps=total_steps, num_seeds=2)
    (tables,) = jax.tree.leaves(result.runner_state.agent.learner.variables.params)
    return agent, result.runner_state.agent, np.asarray(tables, np.float64).reshape(2, -1, 4)


def exact_q(epsilon: float, discount: float) -> np.ndarray:
    """Iterate `Q = r + discount * E[Q']` under the epsilon-greedy policy of Q itself, `[S, 4]`.

    With epsilon 0 this is value iteration.
    """
    cells = jnp.arange(ENV.num_cells)
    start = ENV.reset(jax.random.key(0)).state

    def successors(cell: jax.Array, action: jax.Array) -> tuple:
        state = type(start)(row=cell // ENV.width, column=cell % ENV.width)
        step = ENV.step(state, action, jax.random.key(0))
        return step.obs, step.reward, step.terminated

    both = jax.vmap(jax.vmap(successors, (None, 0)), (0, None))(cells, jnp.arange(4))
    following, reward, terminated = (np.asarray(leaf) for leaf in both)
    q = np.zeros((ENV.num_cells, 4))
    for _ in range(2_000):
        value = epsilon * q.mean(axis=1) + (1 - epsilon) * q.max(axis=1)
        q = reward + discount * np.where(terminated, 0.0, value[following])
    return q


@pytest.mark.covering(5)
@pytest.mark.parametrize("backend", BACKENDS)
def test_q_learning_finds_the_optimal_values(backend: str) -> None:
    hyper = QLearningHyperparams(learning_rate=0.5, discount=0.9, epsilon=0.5)
    _, _, tables = learn("q_learning", backend, hyper, 65_536)
    exact = exact_q(0.0, 0.9)
    np.testing.assert_allclose(exact.max(1)[1:], ENV.optimal_values(0.9).ravel()[1:])
    for table in tables:  # No action is taken in the goal, so its row is never learned.
        np.testing.assert_allclose(table[1:], exact[1:], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS[1:])
def test_sarsa_and_expected_sarsa_find_the_values_of_the_policy_that_explores(method: str) -> None:
    rate = 0.02 if method == "sarsa" else 0.1  # Only SARSA samples, which adds noise.
    hyper = QLearningHyperparams(learning_rate=rate, discount=0.9, epsilon=0.3)
    _, _, tables = learn(method, "table", hyper, 1_000_000)
    exact = exact_q(0.3, 0.9)[-1].max()
    tolerance = 0.03 if method == "sarsa" else 0.003
    for table in tables:  # Of the start: cells off the path are rarely visited.
        np.testing.assert_allclose(table[-1].max(), exact, atol=tolerance)
    # An off-policy method would value the start much higher.
    assert exact_q(0.0, 0.9)[-1].max() - exact > 2 * tolerance


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_greedy_path_is_a_shortest_one(method: str) -> None:
    agent, states, _ = learn(method, "table", QLearningHyperparams(discount=0.9), 200_000)
    state = jax.tree.map(lambda leaf: leaf[0], states)
    episodes = evaluate(agent, TimeLimit(ENV, 100), state, jax.random.key(1), num_episodes=16)
    np.testing.assert_array_equal(episodes.returns, 1.0)
    np.testing.assert_array_equal(episodes.lengths, 3 + 4)
