"""AlphaZero's loss and targets against numbers worked out by hand, on a network that is a table."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rlax

from triglot.algorithms.alphazero import AlphaZero, AlphaZeroConfig, AlphaZeroHyperparams
from triglot.backends import build
from triglot.core.agent import Trajectory
from triglot.core.network import Variables
from triglot.core.rl.search import with_search_targets
from triglot.core.specs import Discrete
from triglot.envs.probes import TwoStep

OBS, ACTIONS = Discrete(2), Discrete(2)
AGENT = AlphaZero(
    build("table", AlphaZero.networks(OBS, ACTIONS)),
    OBS,
    ACTIONS,
    AlphaZeroConfig(),
    model=TwoStep(),
)
NOTHING = jnp.zeros((2,), bool)


def steps(**fields: Any) -> Trajectory:
    values = {
        "obs": jnp.array([0, 1]),
        "first": NOTHING,
        "action_mask": None,
        "action": jnp.array([0, 0]),
        "reward": jnp.zeros(2),
        "terminated": NOTHING,
        "truncated": NOTHING,
        "next_obs": jnp.array([1, 0]),
        "next_action_mask": None,
        "extras": {"probs": jnp.array([[1.0, 0.0], [0.5, 0.5]]), "target": jnp.array([1.0, 1.0])},
        "carry": (),
    }
    return Trajectory(**values | fields)


def loss(given: Trajectory, logits: Any, value: Any) -> tuple[float, dict[str, jax.Array]]:
    table = {"logits": jnp.asarray(logits), "value": jnp.asarray(value)[:, None]}
    variables = Variables(params={"network": table}, state={"network": ()})
    hyper = AlphaZeroHyperparams(value_coef=0.5)
    sequences = jax.tree.map(lambda leaf: leaf[None], given)  # of one step
    total, (metrics, _) = jax.jit(AGENT.loss)(variables, (sequences, hyper), jax.random.key(0))
    return float(total), metrics


def test_the_loss_by_hand() -> None:
    total, metrics = loss(steps(), [[0.0, np.log(3.0)], [0.0, 0.0]], [2.0, -1.0])
    # p = (1/4, 3/4) and (1/2, 1/2): -log 1/4 and -log 1/2, on average 1.5 log 2.
    np.testing.assert_allclose(metrics["policy_loss"], 1.5 * np.log(2.0), rtol=1e-6)
    # (1 - 2)^2 = 1 and (1 + 1)^2 = 4.
    np.testing.assert_allclose(metrics["value_loss"], 2.5, rtol=1e-6)
    np.testing.assert_allclose(total, 1.5 * np.log(2.0) + 0.5 * 2.5, rtol=1e-6)
    # The searches' policies have the entropies 0 and log 2.
    np.testing.assert_allclose(metrics["search_entropy"], np.log(2.0) / 2, rtol=1e-6)


def test_a_forbidden_action_s_logit_has_no_effect() -> None:
    mask = jnp.array([[True, False], [True, True]])
    total, metrics = loss(steps(action_mask=mask), [[0.0, 50.0], [0.0, 0.0]], [1.0, 1.0])
    np.testing.assert_allclose(metrics["policy_loss"], np.log(2.0) / 2, rtol=1e-6)
    np.testing.assert_allclose(total, np.log(2.0) / 2, rtol=1e-6)


def test_the_loss_is_rlax_s_on_random_tables() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        logits, value = rng.normal(size=(2, 2)), rng.normal(size=2)
        probs, target = rng.dirichlet([1.0, 1.0], size=2), rng.normal(size=2)
        logits, value, probs, target = (jnp.float32(x) for x in (logits, value, probs, target))
        total, _ = loss(steps(extras={"probs": probs, "target": target}), logits, value)
        cross = jax.vmap(rlax.categorical_cross_entropy)(probs, logits)
        expected = jnp.mean(cross + 0.5 * 2.0 * rlax.l2_loss(value, target))
        np.testing.assert_allclose(total, expected, rtol=1e-5)


def test_a_truncated_step_bootstraps_and_a_terminated_one_does_not() -> None:
    column = jnp.zeros((3, 1), bool)
    given = steps(
        obs=jnp.array([[0], [1], [0]]),
        reward=jnp.array([[1.0], [2.0], [4.0]]),
        next_obs=jnp.array([[1], [1], [0]]),
        terminated=column.at[2].set(True),
        truncated=column.at[1].set(True),
        extras={
            "probs": jnp.ones((3, 1, 2)),
            "value": jnp.array([[10.0], [20.0], [30.0]]),
            "turn": jnp.ones((3, 1)),
        },
    )
    stored = with_search_targets(given, lambda obs: 100.0 + obs.astype(jnp.float32), 0.5, 0.5)
    # The last step terminated: 4. The second was cut, and its successor 1 has the value 101:
    # 2 + 0.5 * 101. The first: 1 + 0.5 * (0.5 * its successor's search + 0.5 * the second target).
    second = 2.0 + 0.5 * 101.0
    first = 1.0 + 0.5 * (0.5 * 20.0 + 0.5 * second)
    np.testing.assert_allclose(stored.extras["target"][:, 0], [first, second, 4.0])
    assert set(stored.extras) == {"probs", "target"}


def test_what_one_player_wins_the_other_loses() -> None:
    # Two players in turn, of whom the second moves twice and then wins with the last move.
    given = steps(
        reward=jnp.array([[0.0], [0.0], [1.0]]),
        terminated=jnp.array([[False], [False], [True]]),
        truncated=jnp.zeros((3, 1), bool),
        next_obs=jnp.arange(3)[:, None],
        extras={
            "probs": jnp.ones((3, 1, 2)),
            "value": jnp.array([[10.0], [20.0], [30.0]]),
            "turn": jnp.array([[-1.0], [1.0], [-1.0]]),
        },
    )
    stored = with_search_targets(given, lambda obs: jnp.zeros(obs.shape), 0.5, 0.5)
    second = 0.5 * (0.5 * 30.0 + 0.5 * 1.0)
    first = -0.5 * (0.5 * 20.0 + 0.5 * second)
    np.testing.assert_allclose(stored.extras["target"][:, 0], [first, second, 1.0])
