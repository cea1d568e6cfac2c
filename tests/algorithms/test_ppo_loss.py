"""PPO's loss against numbers worked out by hand, on a network that is two tables."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from triglot.algorithms.ppo import PPO, Batch, PPOConfig, PPOHyperparams
from triglot.backends import build
from triglot.core.network import Variables
from triglot.core.specs import Discrete

OBS, ACTIONS = Discrete(2), Discrete(2)


def agent(**config: Any) -> PPO:
    network = build("table", PPO.networks(OBS, ACTIONS))
    return PPO(network, OBS, ACTIONS, PPOConfig(**config))


def loss(config: dict[str, bool], hyper: PPOHyperparams) -> tuple[float, dict[str, jax.Array]]:
    made = agent(**config)
    # In state 0 both actions have probability 1/2, in state 1 the first has 4/5; V = 1 and 3.
    params = {
        "actor": {"logits": jnp.log(jnp.array([[0.5, 0.5], [0.8, 0.2]]))},
        "critic": {"value": jnp.array([[1.0], [3.0]])},
    }
    batch = Batch(
        obs=jnp.array([0, 1]),
        action_mask=None,
        action=jnp.array([0, 0]),
        log_prob=jnp.log(jnp.array([0.25, 0.8])),  # ratios 2 and 1
        value=jnp.array([0.0, 3.0]),
        advantage=jnp.array([1.0, -2.0]),
        target=jnp.array([2.0, 1.0]),
    )
    variables = Variables(params=params, state={"actor": (), "critic": ()})
    hyper = made.for_environment(hyper)
    value, (metrics, _) = jax.jit(made.loss)(variables, batch, jax.random.key(0), hyper)
    return float(value), metrics


ENTROPY = (np.log(2) - 0.8 * np.log(0.8) - 0.2 * np.log(0.2)) / 2


def test_the_terms() -> None:
    hyper = PPOHyperparams(clip_epsilon=0.2, value_coef=0.5, entropy_coef=0.01)
    total, metrics = loss({"normalize_advantage": False, "clip_value": False}, hyper)
    # -(min(2 * 1, 1.2 * 1) + 1 * -2) / 2 = 0.4; ((1-2)^2 + (3-1)^2) / 2 / 2 = 1.25
    np.testing.assert_allclose(metrics["policy_loss"], 0.4, rtol=1e-6)
    np.testing.assert_allclose(metrics["value_loss"], 1.25, rtol=1e-6)
    np.testing.assert_allclose(metrics["entropy"], ENTROPY, rtol=1e-6)
    np.testing.assert_allclose(metrics["clip_fraction"], 0.5)
    # (ratio - 1 - log ratio) = 1 - log 2 and 0
    np.testing.assert_allclose(metrics["approx_kl"], (1 - np.log(2)) / 2, rtol=1e-5)
    np.testing.assert_allclose(total, 0.4 + 0.5 * 1.25 - 0.01 * ENTROPY, rtol=1e-6)


def test_value_clipping_and_advantage_normalization() -> None:
    hyper = PPOHyperparams(clip_epsilon=0.2)
    _, metrics = loss({"normalize_advantage": True, "clip_value": True}, hyper)
    # Advantages become 1 and -1: -(1.2 - 1) / 2.
    np.testing.assert_allclose(metrics["policy_loss"], -0.1, rtol=1e-5)
    # The first value may move from 0 to 0.2 only: max(1, 1.8^2); the second did not move: 4.
    np.testing.assert_allclose(metrics["value_loss"], (3.24 + 4.0) / 2 / 2, rtol=1e-6)
