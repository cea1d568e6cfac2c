"""What all policy gradients inherit: recurrent networks, and bootstraps by how an episode ended."""

from dataclasses import replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.algorithms.test_recurrent_ppo import collected, forgetful
from triglot.core.agent import Trajectory
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.rl.minibatches import flatten
from triglot.envs import probes
from triglot.runs.registry.algorithms import find_algorithm

NAMES = ("ppo", "a2c", "reinforce", "impala", "vmpo")
SMALL = {"num_envs": 4, "rollout_length": 8, "hidden_sizes": (8,)}


def small(algorithm: str, env: Any, **options: Any) -> Any:
    config = {**SMALL, **options}
    if hasattr(find_algorithm(algorithm).Config(), "num_epochs"):
        config |= {"num_epochs": 1, "num_minibatches": 1}
    return triglot.make_agent(algorithm, env, backend="linen", config=config)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [n for n in NAMES if n != "ppo"])
def test_a_network_that_ignores_its_carry_learns_as_the_plain_one(algorithm: str) -> None:
    env = probes.make("truncating", max_steps=3)
    vector, learned = VectorEnvironment(env, SMALL["num_envs"]), []
    plain = small(algorithm, env)
    for agent in (plain, replace(plain, network=forgetful(plain.network))):
        state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), SMALL["num_envs"])
        _, trajectory, _ = collected(agent, vector, state, jax.random.key(1))
        after, metrics = jax.jit(agent.update)(state, trajectory, jax.random.key(2))
        learned.append((after.learner.variables.params, metrics))
    chex.assert_trees_all_close(*learned, rtol=1e-4, atol=1e-5)


@pytest.mark.covering(3)
@pytest.mark.parametrize("algorithm", NAMES)
def test_a_truncated_step_bootstraps_and_a_terminated_one_does_not(algorithm: str) -> None:
    """One update on one step: the value's loss depends on the successor where it bootstraps."""
    env = probes.make("two-step")
    all_of_it = {"top_fraction": 1.0} if algorithm == "vmpo" else {}
    agent = small(algorithm, env, num_envs=1, rollout_length=1, **all_of_it)
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 1)
    act = jax.jit(agent.act, static_argnames="explore")
    update = jax.jit(agent.update)

    def value_loss(terminated: bool, truncated: bool, successor: float) -> float:
        step = act(
            state, (), triglot.rl.PolicyInput(obs=jnp.zeros((1, 1)), first=jnp.array([True])),
            jax.random.key(1), explore=True,
        )  # fmt: skip
        trajectory = Trajectory(
            obs=jnp.zeros((1, 1, 1)),
            first=jnp.array([[True]]),
            action_mask=None,
            action=step.action[None],
            reward=jnp.ones((1, 1)),
            terminated=jnp.array([[terminated]]),
            truncated=jnp.array([[truncated]]),
            next_obs=jnp.full((1, 1, 1), successor),
            next_action_mask=None,
            extras=jax.tree.map(lambda leaf: leaf[None], step.extras),
            carry=(),
        )
        return float(update(state, trajectory, jax.random.key(2))[1]["value_loss"])

    assert value_loss(True, False, 0.0) == value_loss(True, False, 1.0)
    assert value_loss(False, True, 0.0) != value_loss(False, True, 1.0)
    assert value_loss(False, False, 0.0) != value_loss(False, False, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["none", "lstm"])
def test_samples_of_a_rollout_are_its_steps(cell: str) -> None:
    """The policy and the values of all samples are those of the steps, in the rollout's order."""
    env = probes.make("truncating", max_steps=3)
    agent = small("a2c", env, cell=cell, cell_size=4)
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), SMALL["num_envs"])
    vector = VectorEnvironment(env, SMALL["num_envs"])
    _, trajectory, _ = collected(agent, vector, state, jax.random.key(1))
    variables, kind = state.learner.variables, triglot.rl.PolicySamples
    batch = agent.samples(kind, trajectory)
    assert batch.action.shape == ((32,) if cell == "none" else (4, 8))
    actor, value, steps, _ = agent.evaluate(variables, batch, jax.random.key(2))
    raw = trajectory.extras["raw"]
    np.testing.assert_array_equal(steps.action, flatten(raw))
    log_prob = agent.behaviour(trajectory).log_prob(raw)
    np.testing.assert_allclose(actor.log_prob(steps.action), flatten(log_prob), atol=1e-5)
    np.testing.assert_allclose(value, flatten(agent.values(variables, trajectory)[0]), atol=1e-5)
