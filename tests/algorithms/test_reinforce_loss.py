"""REINFORCE's loss and returns against numbers worked out by hand, on a network of two tables."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.reinforce import REINFORCE, REINFORCEConfig, REINFORCEHyperparams
from triglot.backends import build
from triglot.core.agent import Trajectory
from triglot.core.families.policy_gradient import AdvantageSamples
from triglot.core.network import Variables
from triglot.core.specs import Discrete

STATES, ACTIONS = Discrete(2), Discrete(2)
# In state 0 both actions have probability 1/2, in state 1 the first has 4/5; V = 1 and 3.
PARAMS = {
    "actor": {"logits": jnp.log(jnp.array([[0.5, 0.5], [0.8, 0.2]]))},
    "critic": {"value": jnp.array([[1.0], [3.0]])},
}
VARIABLES = Variables(params=PARAMS, state={"actor": (), "critic": ()})
HYPER = REINFORCEHyperparams(discount=0.5, value_coef=0.5)


def agent(**config: Any) -> REINFORCE:
    network = build("table", REINFORCE.networks(STATES, ACTIONS))
    return REINFORCE(network, STATES, ACTIONS, REINFORCEConfig(num_envs=1, **config), HYPER)


def test_the_terms() -> None:
    batch = AdvantageSamples(
        obs=jnp.array([0, 1]),
        action_mask=None,
        action=jnp.array([0, 0]),
        advantage=jnp.array([1.0, -2.0]),
        target=jnp.array([2.0, 1.0]),
    )
    total, (metrics, _) = jax.jit(agent().loss)(VARIABLES, batch, jax.random.key(0), HYPER)
    # -(1 * log 0.5 - 2 * log 0.8) / 2; ((2 - 1)^2 + (1 - 3)^2) / 2 / 2
    policy_loss = (np.log(2) + 2 * np.log(0.8)) / 2
    np.testing.assert_allclose(metrics["policy_loss"], policy_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], 1.25, rtol=1e-6)
    np.testing.assert_allclose(total, policy_loss + 0.5 * 1.25, rtol=1e-5)


@pytest.mark.parametrize("discount_steps", [False, True])
def test_returns_are_those_of_whole_episodes(
    discount_steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four steps: an episode terminates, one is truncated, and the rollout cuts the third."""
    made = agent(rollout_length=4, discount_steps=discount_steps)
    seen = []

    def learn(loss: Any, state: Any, batch: AdvantageSamples, key: Any) -> Any:
        seen.append(batch)
        return state.learner, {}

    monkeypatch.setattr(REINFORCE, "learn", lambda self, *given: learn(*given))
    column = lambda *numbers: jnp.asarray(numbers)[:, None]  # noqa: E731
    trajectory = Trajectory(
        obs=column(0, 0, 0, 0),
        first=column(False, False, True, True),
        action_mask=None,
        action=column(0, 0, 0, 0),
        reward=column(1.0, 2.0, 4.0, 8.0),
        terminated=column(False, True, False, False),
        truncated=column(False, False, True, False),
        next_obs=column(0, 0, 1, 1),
        next_action_mask=None,
        extras={"raw": column(0, 0, 0, 0)},
        carry=(),
    )
    state = jax.jit(made.init, static_argnums=1)(jax.random.key(0), 1)
    learner = replace(state.learner, variables=VARIABLES)
    state = replace(state, learner=learner, age=jnp.array([3.0]))
    after, _ = made.update(state, trajectory, jax.random.key(1))
    # 1 + 0.5 * 2; 2; 4 + 0.5 * V(1) = 5.5; 8 + 0.5 * V(1) = 9.5
    np.testing.assert_allclose(seen[0].target, [2.0, 2.0, 5.5, 9.5], rtol=1e-6)
    # Less V(0) = 1. The first episode is 3 steps old when the rollout starts.
    weight = [0.125, 0.0625, 1.0, 1.0] if discount_steps else np.ones(4)
    np.testing.assert_allclose(seen[0].advantage, np.array([1.0, 1.0, 4.5, 8.5]) * weight)
    np.testing.assert_array_equal(after.age, [1.0])
