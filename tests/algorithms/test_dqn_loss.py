"""DQN's loss against numbers worked out by hand, on a network that is a table."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.dqn import DQN, DQNConfig, DQNHyperparams
from triglot.backends import build
from triglot.core.errors import TriglotError
from triglot.core.families.action_values import ReplayedBatch
from triglot.core.network import Variables
from triglot.core.rl.priorities import importance_weights
from triglot.core.rl.replay import Replay, Sample, Step
from triglot.core.specs import Discrete

OBS, ACTIONS = Discrete(3), Discrete(2)
ONLINE = [[1.0, 2.0], [4.0, 3.0], [0.0, 0.0]]
KEY = jax.random.key(0)
TARGET = [[0.0, 0.0], [5.0, 10.0], [6.0, 2.0]]


def variables(table: list[list[float]]) -> Variables:
    return Variables(params={"q_network": {"q": jnp.array(table)}}, state={"q_network": ()})


def agent(**options: Any) -> DQN:
    config = DQNConfig(batch_size=2, learning_starts=64, **options)
    return DQN(build("table", DQN.networks(OBS, ACTIONS, config)), OBS, ACTIONS, config)


def make_with(**hyper: float) -> DQN:
    return replace(agent(huber=True), hyper=DQNHyperparams(**hyper))


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


def loss(
    given: Sample, weight: list[float], hyper: dict[str, float] | None = None, **config: Any
) -> tuple[float, dict[str, jax.Array]]:
    rows = batch(given, weight, **hyper or {})
    learn = jax.jit(agent(**config).loss)
    value, (metrics, _) = learn(variables(ONLINE), rows, jax.random.key(0))
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


def test_hubers_loss_is_linear_beyond_the_threshold() -> None:
    # The errors are 5 and 0.5: beyond 1, 5 - 0.5; below it, 0.5^2 / 2. Beyond 2, 2 * (5 - 1).
    given = sample(reward=jnp.array([1.0, 2.5]))
    total, metrics = loss(given, [1.0, 1.0], huber=True)
    np.testing.assert_allclose(metrics["td_errors"], [5.0, 0.5])
    np.testing.assert_allclose(total, (4.5 + 0.125) / 2)
    total, _ = loss(given, [0.5, 1.0], {"huber_threshold": 2.0}, huber=True)
    np.testing.assert_allclose(total, (0.5 * 8.0 + 0.125) / 2)


def test_hubers_loss_clips_the_error() -> None:
    """As Mnih et al. 2015 do: the gradient is minus the error within [-1, 1], over the batch."""
    given = batch(sample(reward=jnp.array([1.0, 2.5])), [1.0, 1.0])
    own = agent(huber=True)
    grads = jax.grad(
        lambda params: own.loss(replace(variables(ONLINE), params=params), given, KEY)[0]
    )(variables(ONLINE).params)
    np.testing.assert_allclose(grads["q_network"]["q"][0], [-1.0 / 2, -0.5 / 2])


def test_the_threshold_is_above_zero() -> None:
    with pytest.raises(TriglotError, match="huber_threshold must be finite and above 0"):
        make_with(huber_threshold=0.0)


SOFT = {"munchausen_temperature": 1.0, "munchausen_coef": 0.9, "munchausen_min": -1.0}


def test_munchausen_adds_the_log_policy_and_bootstraps_softly() -> None:
    _, metrics = loss(sample(), [1.0, 1.0], SOFT, munchausen=True)
    # In state 0 the target's values are equal: log pi = -log 2 = -0.693147. The soft value of
    # state 1 is log(e^5 + e^10) = 10.006715.
    expected = [1.0 - 0.9 * 0.693147 + 0.5 * 10.006715 - 1.0, 2.0 - 0.9 * 0.693147 - 2.0]
    np.testing.assert_allclose(metrics["td_errors"], expected, rtol=1e-5)


def test_the_log_policy_is_clipped() -> None:
    hyper = {**SOFT, "munchausen_min": -0.5}
    _, metrics = loss(sample(), [1.0, 1.0], hyper, munchausen=True)
    np.testing.assert_allclose(metrics["td_errors"][1], 2.0 - 0.9 * 0.5 - 2.0, rtol=1e-5)


def test_munchausen_leaves_out_forbidden_actions() -> None:
    masks = {
        "action_mask": jnp.array([[True, False], [True, True]]),
        "next_action_mask": jnp.array([[True, False], [False, False]]),
    }
    _, metrics = loss(sample(**masks), [1.0, 1.0], SOFT, munchausen=True)
    # With one allowed action, log pi = 0 and the soft value is that of the action, 5.
    expected = [1.0 + 0.5 * 5.0 - 1.0, 2.0 - 0.9 * 0.693147 - 2.0]
    np.testing.assert_allclose(metrics["td_errors"], expected, rtol=1e-5)


def test_munchausen_without_log_policy_and_temperature_is_dqn() -> None:
    cold = {**SOFT, "munchausen_temperature": 1e-3, "munchausen_coef": 0.0}
    _, soft = loss(sample(), [1.0, 1.0], cold, munchausen=True)
    _, hard = loss(sample(), [1.0, 1.0])
    np.testing.assert_allclose(soft["td_errors"], hard["td_errors"], atol=1e-2)


def test_munchausen_against_the_sum_over_actions() -> None:
    """Compute equation 2 as it is written, with the sum over a' of pi * (q - tau * log pi)."""
    keys = jax.random.split(jax.random.key(0), 3)
    own, following, online = (np.asarray(jax.random.normal(k, (6, 4)), np.float64) for k in keys)
    tau, alpha, low = 0.3, 0.7, -0.2
    action = np.array([0, 1, 2, 3, 0, 1])

    def log_policy(q: np.ndarray) -> np.ndarray:
        return q / tau - np.log(np.exp(q / tau).sum(axis=1, keepdims=True))

    bonus = np.clip(tau * log_policy(own), low, 0.0)[np.arange(6), action]
    log_pi = log_policy(following)
    value = (np.exp(log_pi) * (following - tau * log_pi)).sum(axis=1)
    expected = 1.0 + alpha * bonus + 0.9 * value - online[np.arange(6), action]

    obs_spec, action_spec, config = Discrete(12), Discrete(4), DQNConfig(munchausen=True)
    made = DQN(build("table", DQN.networks(obs_spec, action_spec, config)), obs_spec, action_spec)
    made = replace(made, config=config)
    given = sample(
        obs=jnp.arange(6),
        next_obs=jnp.arange(6, 12),
        action=jnp.asarray(action),
        reward=jnp.ones(6),
        discount=jnp.full(6, 0.9),
    )
    numbers = {"munchausen_temperature": tau, "munchausen_coef": alpha, "munchausen_min": low}
    rows = replace(
        batch(given, [1.0] * 6, **numbers),
        target=variables(np.concatenate([own, following]).tolist()),
    )
    start = variables(np.concatenate([online, following]).tolist())
    _, (metrics, _) = jax.jit(made.loss)(start, rows, jax.random.key(0))
    np.testing.assert_allclose(metrics["td_errors"], expected, rtol=1e-4, atol=1e-5)


def test_munchausen_and_double_are_refused() -> None:
    with pytest.raises(TriglotError, match=r"munchausen bootstraps on a softmax .* choose one"):
        DQNConfig(munchausen=True, double=True)


def test_the_gradient_flows_through_the_chosen_value_alone() -> None:
    made = agent(double=True)

    def value(params: Any) -> jax.Array:
        now = Variables(params=params, state={"q_network": ()})
        return made.loss(now, batch(sample(), [1.0, 1.0]), jax.random.key(0))[0]

    gradient = jax.jit(jax.grad(value))(variables(ONLINE).params)["q_network"]["q"]
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
    drawn = jax.jit(made.sample, static_argnums=2)(state, jax.random.key(0), 256, 0.5)
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
