"""DQN's loss against numbers worked out by hand, on a network that is a table."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.dqn import DQN, DQNConfig, DQNHyperparams
from triglot.backends import build
from triglot.core.families.action_values import ReplayedBatch
from triglot.core.network import Variables
from triglot.core.rl.replay import Replay, Sample, Step, importance_weights
from triglot.core.specs import Discrete

OBS, ACTIONS = Discrete(3), Discrete(2)
ONLINE = [[1.0, 2.0], [4.0, 3.0], [0.0, 0.0]]
TARGET = [[0.0, 0.0], [5.0, 10.0], [6.0, 2.0]]


def variables(table: list[list[float]]) -> Variables:
    return Variables(params={"q_network": {"q": jnp.array(table)}}, state={"q_network": ()})


def agent(**options: Any) -> DQN:
    config = DQNConfig(batch_size=2, learning_starts=64, **options)
    return DQN(build("table", DQN.networks(OBS, ACTIONS, config)), OBS, ACTIONS, config)


def sample(**fields: Any) -> Sample:
    values = {
        "obs": jnp.array([0, 0]),
        "action": jnp.array([0, 1]),
        "reward": jnp.array([1.0, 2.0]),
        "discount": jnp.array([0.5, 0.0]),  # the second one terminated
        "next_obs": jnp.array([1, 2]),
        "next_action_mask": None,
        "slot": jnp.array([0, 1]),
        "probability": jnp.array([0.5, 0.5]),
    }
    return Sample(**values | fields)


def batch(given: Sample, weight: list[float], **hyper: float) -> ReplayedBatch:
    numbers = DQNHyperparams(**hyper)
    target = variables(TARGET)
    return ReplayedBatch(sample=given, target=target, weight=jnp.array(weight), hyper=numbers)


def loss(given: Sample, weight: list[float], **config: Any) -> tuple[float, dict[str, jax.Array]]:
    value, (metrics, _) = agent(**config).loss(
        variables(ONLINE), batch(given, weight), jax.random.key(0)
    )
    return float(value), metrics


def test_the_target_network_s_best_action_counts_unless_the_episode_terminated() -> None:
    total, metrics = loss(sample(), [1.0, 1.0])
    # 1 + 0.5 * max(5, 10) - 1 = 5; 2 - 2 = 0
    np.testing.assert_allclose(metrics["td_errors"], [5.0, 0.0])
    np.testing.assert_allclose(total, 0.5 * 25.0 / 2)
    np.testing.assert_allclose(metrics["q"], 1.5)


def test_double_q_learning_values_the_online_network_s_choice() -> None:
    _, metrics = loss(sample(), [1.0, 1.0], double=True)
    # In state 1 the online network prefers the first action, which the target values at 5.
    np.testing.assert_allclose(metrics["td_errors"], [1.0 + 0.5 * 5.0 - 1.0, 0.0])


@pytest.mark.parametrize("double", [False, True])
def test_forbidden_actions_are_not_bootstrapped_on(double: bool) -> None:
    only = [False, True] if double else [True, False]
    # Where nothing is allowed, as after an end, nothing is counted: neither infinite nor NaN.
    given = sample(next_action_mask=jnp.array([only, [False, False]]))
    _, metrics = loss(given, [1.0, 1.0], double=double)
    np.testing.assert_allclose(metrics["td_errors"], [0.5 * (10.0 if double else 5.0), 0.0])


def test_importance_weights_multiply_the_squared_errors() -> None:
    given = sample(discount=jnp.array([0.5, 0.5]))
    total, metrics = loss(given, [0.5, 1.0])
    np.testing.assert_allclose(metrics["td_errors"], [5.0, 3.0])
    np.testing.assert_allclose(total, (0.5 * 0.5 * 25.0 + 0.5 * 9.0) / 2)


def test_importance_weights_are_at_most_one() -> None:
    # (P^-0.5) is 5, 10 and 2; the greatest becomes 1.
    weights = importance_weights(jnp.array([0.04, 0.01, 0.25]), 0.5)
    np.testing.assert_allclose(weights, [0.5, 1.0, 0.2], rtol=1e-6)
    np.testing.assert_allclose(importance_weights(jnp.array([0.04, 0.01]), 0.0), [1.0, 1.0])


def test_the_gradient_flows_through_the_chosen_value_alone() -> None:
    made = agent(double=True)

    def value(params: Any) -> jax.Array:
        now = Variables(params=params, state={"q_network": ()})
        return made.loss(now, batch(sample(), [1.0, 1.0]), jax.random.key(0))[0]

    gradient = jax.grad(value)(variables(ONLINE).params)["q_network"]["q"]
    # d/dq 0.5 * (target - q)^2 / 2 = -error / 2, with the error 2.5 for Q(0, 0).
    np.testing.assert_allclose(gradient, [[-1.25, 0.0], [0.0, 0.0], [0.0, 0.0]])


def test_three_steps_with_an_end_among_them() -> None:
    """Step through 0, 1, 2 and out: what the loss sees of each start, by hand."""
    made = Replay(obs_spec=OBS, action_spec=ACTIONS, capacity=5, num_envs=1, n_step=3)
    column = jnp.zeros((5, 1), bool)
    steps = Step(
        obs=jnp.array([[0], [1], [2], [0], [1]]),
        action=jnp.zeros((5, 1), jnp.int32),
        reward=jnp.array([[1.0], [2.0], [4.0], [8.0], [16.0]]),
        terminated=column.at[3, 0].set(True),
        truncated=column.at[1, 0].set(True),
        next_obs=jnp.array([[1], [2], [0], [1], [0]]),
        next_action_mask=jnp.ones((5, 1, 2), bool),
    )
    state = made.add(made.init(), steps)
    drawn = made.sample(state, jax.random.key(0), 256, 0.5)
    _, metrics = loss(drawn, [1.0] * 256)
    by_start = dict(zip(drawn.slot.tolist(), metrics["td_errors"].tolist(), strict=True))
    assert by_start == {
        # From 0: 1 + 0.5 * 2, cut there, so + 0.25 * max Q'(2) = 6; Q(0, 0) = 1.
        0: 1.0 + 0.5 * 2.0 + 0.25 * 6.0 - 1.0,
        # From 1: 2, cut there, so + 0.5 * 6; Q(1, 0) = 4. The next episode adds nothing.
        1: 2.0 + 0.5 * 6.0 - 4.0,
        # From 2: 4 + 0.5 * 8, which terminated: nothing more; Q(2, 0) = 0.
        2: 4.0 + 0.5 * 8.0,
    }
