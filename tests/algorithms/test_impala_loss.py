"""IMPALA's loss against numbers worked out by hand, on a network of two tables."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.impala import IMPALA, Batch, IMPALAConfig, IMPALAHyperparams
from triglot.backends import build
from triglot.core.errors import TriglotError
from triglot.core.network import Variables
from triglot.core.specs import Discrete

STATES, ACTIONS = Discrete(2), Discrete(2)
NETWORK = build("table", IMPALA.networks(STATES, ACTIONS))
AGENT = IMPALA(NETWORK, STATES, ACTIONS)
# In state 0 both actions have probability 1/2, in state 1 the first has 4/5; V = 1 and 3.
PARAMS = {
    "actor": {"logits": jnp.array(np.log([[0.5, 0.5], [0.8, 0.2]]), jnp.float32)},
    "critic": {"value": jnp.array([[1.0], [3.0]])},
}
VARIABLES = Variables(params=PARAMS, state={"actor": (), "critic": ()})
HYPER = IMPALAHyperparams(discount=0.5)
BATCH = Batch(  # the rollout of one environment, two steps
    obs=jnp.array([[0, 1]]),
    action_mask=None,
    action=jnp.array([[0, 0]]),
    log_prob=jnp.array(np.log([[0.25, 0.8]]), jnp.float32),  # ratios 2 and 1
    reward=jnp.array([[1.0, 2.0]]),
    terminated=jnp.array([[False, True]]),
    truncated=jnp.array([[False, False]]),
    next_obs=jnp.array([[1, 0]]),
    first=jnp.array([[True, False]]),
)


def losses(batch: Batch = BATCH, **hyper: float) -> tuple[float, float]:
    total, (metrics, _) = jax.jit(AGENT.loss)(
        VARIABLES, batch, jax.random.key(0), replace(HYPER, **hyper)
    )
    policy, value = float(metrics["policy_loss"]), float(metrics["value_loss"])
    expected = policy + 0.5 * value - 0.01 * float(metrics["entropy"])
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    return policy, value


def test_the_terms() -> None:
    # delta = 1 + 0.5 * 3 - 1 = 1.5 and 2 - 3 = -1, so v_1 = 2 and v_0 = 1 + 1.5 - 0.5 = 2;
    # advantages 1 + 0.5 * 2 - 1 = 1 and 2 - 3 = -1.
    policy, value = losses()
    np.testing.assert_allclose(policy, -(np.log(0.5) - np.log(0.8)) / 2, rtol=1e-5)
    np.testing.assert_allclose(value, (1.0 + 1.0) / 2 / 2, rtol=1e-5)


def test_ratios_are_clipped_at_both_thresholds() -> None:
    # delta_0 counts twice, so v_0 = 1 + 3 - 0.5 = 3.5; the traces stay clipped at 1.
    policy, value = losses(rho_clip=4.0)
    np.testing.assert_allclose(policy, -(np.log(0.5) - np.log(0.8)) / 2, rtol=1e-5)
    np.testing.assert_allclose(value, (2.5**2 + 1.0) / 2 / 2, rtol=1e-5)
    # The first advantage counts twice.
    policy, value = losses(pg_rho_clip=4.0)
    np.testing.assert_allclose(policy, -(2 * np.log(0.5) - np.log(0.8)) / 2, rtol=1e-5)
    np.testing.assert_allclose(value, (1.0 + 1.0) / 2 / 2, rtol=1e-5)


def test_a_truncated_step_bootstraps_from_its_own_successor_and_a_terminated_one_not() -> None:
    # The first episode is cut in state 0 with V = 1: v_0 = 1 + 0.5 * 1; the next one terminates.
    batch = replace(BATCH, truncated=jnp.array([[True, False]]), next_obs=jnp.array([[0, 0]]))
    policy, value = losses(batch)
    np.testing.assert_allclose(policy, -(0.5 * np.log(0.5) - np.log(0.8)) / 2, rtol=1e-5)
    np.testing.assert_allclose(value, (0.5**2 + 1.0) / 2 / 2, rtol=1e-5)
    # The end of the rollout bootstraps from its successor, state 0: v_1 = 2 + 0.5 = 2.5,
    # v_0 = 1 + 0.5 * 2.5 = 2.25; advantages 1.25 and -0.5.
    policy, value = losses(replace(BATCH, terminated=jnp.zeros((1, 2), bool)))
    np.testing.assert_allclose(policy, -(1.25 * np.log(0.5) - 0.5 * np.log(0.8)) / 2, rtol=1e-5)
    np.testing.assert_allclose(value, (1.25**2 + 0.5**2) / 2 / 2, rtol=1e-5)


def test_the_targets_have_no_gradient() -> None:
    """The gradient is that of the policy's and of the value's last factor alone."""

    def total(params: dict) -> jax.Array:
        variables = Variables(params=params, state=VARIABLES.state)
        hyper = replace(HYPER, entropy_coef=0.0, value_coef=1.0)
        return AGENT.loss(variables, BATCH, jax.random.key(0), hyper)[0]

    grads = jax.jit(jax.grad(total))(PARAMS)
    # V - v = -1 and 1; A * (pi - 1{a}) = 1 * (0.5 - 1) and -1 * (0.8 - 1), of the first action.
    np.testing.assert_allclose(grads["critic"]["value"][:, 0], [-0.5, 0.5], rtol=1e-5)
    np.testing.assert_allclose(grads["actor"]["logits"][:, 0], [-0.25, 0.1], rtol=1e-5)


def test_minibatches_are_whole_rollouts() -> None:
    config = IMPALAConfig(num_envs=2, rollout_length=8, num_minibatches=4)
    with pytest.raises(TriglotError, match=r"must divide num_envs .*rollouts.* = 2, got 4"):
        IMPALA(NETWORK, STATES, ACTIONS, config)
