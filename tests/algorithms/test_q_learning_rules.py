"""The tabular rules against numbers worked out by hand, on the table of every library."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.q_learning import (
    METHODS,
    QLearning,
    QLearningConfig,
    QLearningHyperparams,
    QLearningState,
)
from triglot.backends import build
from triglot.core.agent import Trajectory
from triglot.core.rl.exploration import epsilon_greedy_probs, sample_probs
from triglot.core.specs import Discrete

OBS, ACTIONS = Discrete(3), Discrete(2)
HYPER = QLearningHyperparams(learning_rate=0.5, discount=0.5, epsilon=0.2)
TABLE = jnp.array([[1.0, 2.0], [4.0, 8.0], [3.0, 5.0]])
LIBRARIES = ("haiku", "linen", "nnx", "equinox")


def make(backend: str = "table", arithmetic: str = "canonical", **config: Any) -> QLearning:
    made = QLearningConfig(**config)
    network = build(backend, QLearning.networks(OBS, ACTIONS, made), arithmetic=arithmetic)
    return QLearning(network, OBS, ACTIONS, made, HYPER)


def start(agent: QLearning, table: jax.Array = TABLE) -> QLearningState:
    """Start with a given table, whatever the library calls it."""
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), agent.num_envs)
    fill = lambda leaf: table.reshape(leaf.shape)  # noqa: E731
    params = jax.tree.map(fill, state.learner.variables.params)
    variables = replace(state.learner.variables, params=params)
    if state.pending is not None:  # The step before the first ends with what it is thought worth.
        worth = jnp.full_like(state.pending.reward, table[0, 0])
        state = replace(state, pending=replace(state.pending, reward=worth))
    return replace(state, learner=replace(state.learner, variables=variables))


def table_of(state: QLearningState) -> np.ndarray:
    (table,) = jax.tree.leaves(state.learner.variables.params)
    return np.asarray(table)


def steps(*rows: tuple, action_mask: Any = None) -> Trajectory:
    """Lay out `(obs, action, reward, terminated, truncated, next_obs)` in time, one environment."""
    columns = [jnp.asarray(column)[:, None] for column in zip(*rows, strict=True)]
    obs, action, reward, terminated, truncated, next_obs = columns
    return Trajectory(
        obs=obs,
        first=jnp.zeros(obs.shape, bool),
        action_mask=None,
        action=action,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        next_obs=next_obs,
        next_action_mask=action_mask,
        extras={},
        carry=(),
    )


def learn(agent: QLearning, *trajectories: Trajectory, table: jax.Array = TABLE) -> np.ndarray:
    state = start(agent, table)
    for trajectory in trajectories:
        state, _ = jax.jit(agent.update)(state, trajectory, jax.random.key(0))
    return table_of(state)


def changed(row: int, column: int, value: float) -> np.ndarray:
    return np.asarray(TABLE.at[row, column].set(value))


GO, ON = (0, 1, 1.0, False, False, 1), (1, 0, 0.0, False, False, 2)


def test_q_learning_moves_towards_the_greatest_next_value() -> None:
    # Q(0, 1) = 2 + 0.5 * (1 + 0.5 * 8 - 2) = 3.5
    np.testing.assert_array_equal(learn(make(), steps(GO)), changed(0, 1, 3.5))


def test_expected_sarsa_moves_towards_the_mean_under_the_policy() -> None:
    # The policy at 1 is (0.1, 0.9): 0.4 + 7.2 = 7.6; 2 + 0.5 * (1 + 0.5 * 7.6 - 2) = 3.4
    learned = learn(make(method="expected_sarsa"), steps(GO))
    np.testing.assert_allclose(learned, changed(0, 1, 3.4), rtol=1e-6)


def test_sarsa_moves_towards_the_value_of_the_action_taken_once_it_is_known() -> None:
    agent = make(method="sarsa")
    np.testing.assert_array_equal(learn(agent, steps(GO)), TABLE)
    # The action taken at 1 was 0: 2 + 0.5 * (1 + 0.5 * 4 - 2) = 2.5
    for pieces in ([steps(GO), steps(ON)], [steps(GO, ON)]):
        np.testing.assert_array_equal(learn(agent, *pieces), changed(0, 1, 2.5))


@pytest.mark.parametrize("method", METHODS)
def test_nothing_follows_a_termination(method: str) -> None:
    """Published code bootstraps there. Q(0, 1) = 2 + 0.5 * (1 - 2) = 1.5"""
    ended = steps((0, 1, 1.0, True, False, 1))
    learned = learn(make(method=method), ended, steps((2, 1, 5.0, True, False, 2)))
    np.testing.assert_allclose(learned, changed(0, 1, 1.5), rtol=1e-6)


@pytest.mark.parametrize(("method", "following"), [("q_learning", 8.0), ("expected_sarsa", 7.6)])
def test_a_truncation_is_bootstrapped_from_its_true_last_observation(
    method: str, following: float
) -> None:
    learned = learn(make(method=method), steps((0, 1, 1.0, False, True, 1)))
    np.testing.assert_allclose(learned, changed(0, 1, 1.5 + 0.25 * following), rtol=1e-6)


def test_sarsa_expects_an_action_where_a_truncation_left_none() -> None:
    # The next action, 0 in state 2, belongs to another episode: as expected SARSA, 3.4.
    cut = steps((0, 1, 1.0, False, True, 1), (2, 0, 0.0, True, False, 2))
    np.testing.assert_allclose(learn(make(method="sarsa"), cut), changed(0, 1, 3.4), rtol=1e-6)


def test_a_rollout_is_learned_from_step_by_step() -> None:
    # Q(0, 1) = 3.5, then again: 3.5 + 0.5 * (1 + 4 - 3.5) = 4.25
    np.testing.assert_array_equal(learn(make(), steps(GO, GO)), changed(0, 1, 4.25))


def test_at_one_step_the_changes_of_one_entry_add_up() -> None:
    # Two environments at one entry: 2 + 2 * 0.5 * (1 + 0.5 * 8 - 2) = 5, both from the old value.
    agent = make(num_envs=2)
    both = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf], axis=1), steps(GO))
    for backend in ("table", *LIBRARIES):
        agent = make(backend, num_envs=2)
        np.testing.assert_array_equal(learn(agent, both), changed(0, 1, 5.0))


def test_a_forbidden_next_action_has_no_value() -> None:
    mask = jnp.array([[[True, False]]])
    # 2 + 0.5 * (1 + 0.5 * 4 - 2) = 2.5 by every method.
    for method in ("q_learning", "expected_sarsa"):
        learned = learn(make(method=method), steps(GO, action_mask=mask))
        np.testing.assert_allclose(learned, changed(0, 1, 2.5), rtol=1e-6)


def random_steps(num_steps: int) -> Trajectory:
    rng = np.random.default_rng(0)
    reward = rng.normal(size=num_steps).astype(np.float32)
    ended = rng.random(num_steps) < 0.2
    obs, following = rng.integers(0, 3, (2, num_steps)).astype(np.int32)
    action = rng.integers(0, 2, num_steps).astype(np.int32)
    return steps(*zip(obs, action, reward, ended, ended & False, following, strict=True))


@pytest.mark.covering(6)
@pytest.mark.parametrize("arithmetic", ["native", "canonical"])
@pytest.mark.parametrize("method", METHODS)
def test_on_every_library_a_gradient_step_is_the_tabular_rule(method: str, arithmetic: str) -> None:
    trajectory = random_steps(200)
    sparse = learn(make("table", method=method, arithmetic=arithmetic), trajectory)
    for backend in LIBRARIES:
        agent = make(backend, method=method, arithmetic=arithmetic)
        np.testing.assert_array_equal(learn(agent, trajectory), sparse)

    table = np.asarray(TABLE, np.float64)
    obs, action, reward, ended, following = (
        np.asarray(leaf[:, 0])
        for leaf in (
            trajectory.obs,
            trajectory.action,
            trajectory.reward,
            trajectory.terminated,
            trajectory.next_obs,
        )
    )
    for t in range(200 - (method == "sarsa")):
        q = table[following[t]]
        value = {
            "q_learning": q.max(),
            "sarsa": q[action[min(t + 1, 199)]],
            "expected_sarsa": 0.2 * q.mean() + 0.8 * q.max(),
        }[method]
        target = reward[t] + 0.5 * value * (not ended[t])
        table[obs[t], action[t]] += 0.5 * (target - table[obs[t], action[t]])
    np.testing.assert_allclose(sparse, table, rtol=1e-5, atol=1e-6)


def test_the_policy_shares_among_the_best_and_forbids_what_is_masked() -> None:
    q = jnp.array([[1.0, 3.0, 3.0, 9.0], [0.0, 0.0, 0.0, 0.0]])
    mask = jnp.array([[True, True, True, False], [False, True, True, False]])
    policy = epsilon_greedy_probs(q, 0.3, mask)
    np.testing.assert_allclose(policy, [[0.1, 0.45, 0.45, 0.0], [0.0, 0.5, 0.5, 0.0]], rtol=1e-6)


def test_actions_are_drawn_as_often_as_the_policy_says() -> None:
    policy = jnp.array([[0.125, 0.375, 0.5, 0.0]])
    uniform = (jnp.arange(4096, dtype=jnp.float32) + 0.5) / 4096
    drawn = sample_probs(jnp.broadcast_to(policy, (4096, 4)), uniform)
    np.testing.assert_array_equal(np.bincount(drawn, minlength=4), policy[0] * 4096)
    ends = sample_probs(jnp.broadcast_to(policy, (2, 4)), jnp.array([0.0, 1.0 - 2.0**-23]))
    assert ends.tolist() == [0, 2]
