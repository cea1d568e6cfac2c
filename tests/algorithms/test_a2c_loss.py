"""A2C's loss against numbers worked out by hand on a network of two tables, and against rlax."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rlax

from triglot.algorithms.a2c import A2C, A2CConfig, A2CHyperparams
from triglot.backends import build
from triglot.core.families.policy_gradient import AdvantageSamples
from triglot.core.network import Variables
from triglot.core.specs import Discrete

# In state 0 both actions have probability 1/2, in state 1 the first has 4/5; V = 1 and 3.
LOGITS, VALUE = np.log([[0.5, 0.5], [0.8, 0.2]]), np.array([[1.0], [3.0]])
ENTROPY = (np.log(2) - 0.8 * np.log(0.8) - 0.2 * np.log(0.2)) / 2
HYPER = A2CHyperparams(value_coef=0.5, entropy_coef=0.01)


def loss(batch: AdvantageSamples, logits: Any = LOGITS, value: Any = VALUE, **config: Any) -> Any:
    states, actions = Discrete(len(logits)), Discrete(len(logits[0]))
    agent = A2C(build("table", A2C.networks(states, actions)), states, actions, A2CConfig(**config))
    params = {
        "actor": {"logits": jnp.asarray(logits, jnp.float32)},
        "critic": {"value": jnp.asarray(value, jnp.float32)},
    }
    variables = Variables(params=params, state={"actor": (), "critic": ()})
    total, (metrics, _) = jax.jit(agent.loss)(variables, batch, jax.random.key(0), HYPER)
    return total, metrics


def test_the_terms() -> None:
    batch = AdvantageSamples(
        obs=jnp.array([0, 1]),
        action_mask=None,
        action=jnp.array([0, 0]),
        advantage=jnp.array([1.0, -2.0]),
        target=jnp.array([2.0, 1.0]),
    )
    total, metrics = loss(batch)
    # -(1 * log 0.5 - 2 * log 0.8) / 2; ((2 - 1)^2 + (1 - 3)^2) / 2 / 2
    policy_loss = (np.log(2) + 2 * np.log(0.8)) / 2
    np.testing.assert_allclose(metrics["policy_loss"], policy_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], 1.25, rtol=1e-6)
    np.testing.assert_allclose(metrics["entropy"], ENTROPY, rtol=1e-6)
    np.testing.assert_allclose(total, policy_loss + 0.5 * 1.25 - 0.01 * ENTROPY, rtol=1e-5)
    _, metrics = loss(batch, normalize_advantage=True)  # advantages become 1 and -1
    np.testing.assert_allclose(metrics["policy_loss"], (np.log(2) + np.log(0.8)) / 2, rtol=1e-5)


def test_the_policy_gradient_is_that_of_rlax() -> None:
    rng = np.random.default_rng(0)
    logits, obs, action = rng.normal(size=(5, 3)), rng.integers(0, 5, 64), rng.integers(0, 3, 64)
    advantage = rng.normal(size=64).astype(np.float32)
    batch = AdvantageSamples(
        obs=jnp.asarray(obs),
        action_mask=None,
        action=jnp.asarray(action),
        advantage=jnp.asarray(advantage),
        target=jnp.zeros(64),
    )
    _, metrics = loss(batch, logits, rng.normal(size=(5, 1)))
    expected = rlax.policy_gradient_loss(
        jnp.asarray(logits[obs], jnp.float32), batch.action, batch.advantage, jnp.ones(64)
    )
    np.testing.assert_allclose(metrics["policy_loss"], expected, rtol=1e-5)
