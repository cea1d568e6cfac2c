"""V-MPO's loss against numbers worked out by hand, and against NumPy written from the paper."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.vmpo import VMPO, Batch, VMPOConfig, VMPOHyperparams
from triglot.backends import build
from triglot.core.errors import TriglotError
from triglot.core.network import Variables
from triglot.core.specs import Discrete

HYPER = VMPOHyperparams(temperature_bound=0.1, policy_bound=0.01, value_coef=1.0)
# In state 0 both actions have probability 1/2, in state 1 the first has 4/5; V = 1 and 3.
LOGITS, VALUE = np.log([[0.5, 0.5], [0.8, 0.2]]), np.array([[1.0], [3.0]])
BATCH = Batch(
    obs=jnp.array([0, 0, 1, 1]),
    action_mask=None,
    action=jnp.array([0, 1, 0, 1]),
    heads={"logits": jnp.zeros((4, 2))},
    advantage=jnp.array([2.0, 0.0, 1.0, -1.0]),
    target=jnp.array([2.0, 1.0, 1.0, 3.0]),
)


def loss(
    batch: Batch, temperature: Any, multiplier: Any, logits: Any = LOGITS, value: Any = VALUE
) -> Any:
    """Compute the loss and its metrics of logarithms of the temperature and the multiplier."""
    states, actions = Discrete(len(logits)), Discrete(len(logits[0]))
    agent = VMPO(build("table", VMPO.networks(states, actions)), states, actions, VMPOConfig())
    params = {
        "actor": {"logits": jnp.asarray(logits, jnp.float32)},
        "critic": {"value": jnp.asarray(value, jnp.float32)},
    }
    variables = Variables(params=params, state={"actor": (), "critic": ()})
    duals = Variables(
        params={"temperature": temperature, "policy": multiplier},
        state={"temperature": (), "policy": ()},
    )
    total, (metrics, _) = jax.jit(agent.loss)(variables, duals, batch, jax.random.key(0), HYPER)
    return total, metrics


def test_the_terms() -> None:
    total, metrics = loss(BATCH, jnp.zeros(()), jnp.log(jnp.array(5.0)))
    # The top half are the advantages 2 and 1, of the first action in either state, with weights
    # e / (e + 1) = 0.731059 and 0.268941.
    policy_loss = 0.731059 * np.log(2) - 0.268941 * np.log(0.8)
    temperature_loss = 0.1 + np.log((np.e**2 + np.e) / 2)
    # From (0.5, 0.5) to itself in state 0, and to (0.8, 0.2) in state 1.
    kl = (0.0 + 0.5 * np.log(0.5 / 0.8) + 0.5 * np.log(0.5 / 0.2)) / 2
    value_loss = (1.0 + 0.0 + 4.0 + 0.0) / 2 / 4
    np.testing.assert_allclose(metrics["policy_loss"], policy_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["temperature_loss"], temperature_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["policy_kl"], kl, rtol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], value_loss, rtol=1e-5)
    # alpha * (bound - KL) + alpha * KL
    rest = policy_loss + temperature_loss + value_loss
    np.testing.assert_allclose(total, rest + 5.0 * 0.01, rtol=1e-5)


def test_the_gradients_of_the_duals() -> None:
    grads = jax.grad(lambda t, m: loss(BATCH, t, m)[0], argnums=(0, 1))(
        jnp.zeros(()), jnp.log(jnp.array(5.0))
    )
    # bound + log(mean(exp(A))) - sum(psi * A): the weights are too far from uniform, so that the
    # temperature grows. alpha * (bound - KL): the policy is too far from the target.
    expected = 0.1 + np.log((np.e**2 + np.e) / 2) - (0.731059 * 2 + 0.268941)
    np.testing.assert_allclose(grads[0], expected, rtol=1e-3)
    np.testing.assert_allclose(grads[1], 5.0 * (0.01 - 0.1115718), rtol=1e-4)


def test_the_loss_is_that_of_the_paper_on_random_data() -> None:
    rng = np.random.default_rng(0)
    size, eta, alpha = 64, 0.7, 3.0
    logits, old = rng.normal(size=(2, 5, 3))
    obs, action = rng.integers(0, 5, size), rng.integers(0, 3, size)
    advantage, target = rng.normal(size=(2, size))
    value = rng.normal(size=(5, 1))
    log_prob = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))[obs]
    old_log_prob = (old - np.log(np.exp(old).sum(axis=1, keepdims=True)))[obs]
    top = np.argsort(advantage)[-size // 2 :]
    weights = np.exp(advantage[top] / eta) / np.exp(advantage[top] / eta).sum()
    kl = (np.exp(old_log_prob) * (old_log_prob - log_prob)).sum(axis=1).mean()
    terms = (
        -(weights * log_prob[top, action[top]]).sum(),
        eta * 0.1 + eta * np.log(np.exp(advantage[top] / eta).mean()),
        alpha * (0.01 - kl) + alpha * kl,
        0.5 * ((target - value[obs, 0]) ** 2).mean(),
    )
    batch = Batch(
        obs=jnp.asarray(obs),
        action_mask=None,
        action=jnp.asarray(action),
        heads={"logits": jnp.asarray(old[obs], jnp.float32)},
        advantage=jnp.asarray(advantage, jnp.float32),
        target=jnp.asarray(target, jnp.float32),
    )
    temperature, multiplier = jnp.log(jnp.array(eta)), jnp.log(jnp.array(alpha))
    total, metrics = loss(batch, temperature, multiplier, logits, value)
    np.testing.assert_allclose(metrics["policy_loss"], terms[0], rtol=1e-4)
    np.testing.assert_allclose(metrics["policy_kl"], kl, rtol=1e-4)
    np.testing.assert_allclose(total, sum(terms), rtol=1e-4)


def test_a_minibatch_without_a_better_half_is_refused() -> None:
    network = build("table", VMPO.networks(Discrete(2), Discrete(2)))
    config = VMPOConfig(num_envs=1, rollout_length=4, num_minibatches=4)
    with pytest.raises(TriglotError, match="less than one sample of a minibatch of 1"):
        VMPO(network, Discrete(2), Discrete(2), config)
