"""Every algorithm solves the probe environments that its case names."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from benchmarks.cases import CASES, LIBRARIES, Probe
from triglot.core.agent import ActionValues, Agent, PolicyInput
from triglot.core.networks.heads import merge_heads
from triglot.envs import probes

DISCOUNT = 0.5
REACHED = 0.25  # a tanh never reaches a bound


def values(agent: Agent, state: Any, obs: jax.Array) -> np.ndarray:
    """Estimate the values of observations `[B]`, of the best action where actions have values."""
    if isinstance(agent, ActionValues):
        return np.asarray(agent.action_values(state, obs)).max(axis=-1)
    outputs, _ = agent.network.apply(state.learner.variables, obs)
    return np.asarray(merge_heads(outputs)["value"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "backend", "probe"),
    [
        pytest.param(name, LIBRARIES[index % 4], probe, id=f"{name}-{probe.env}")
        for index, (name, case) in enumerate(CASES.items())
        for probe in case.probes
    ],
)
def test_it_solves_the_probe(algorithm: str, backend: str, probe: Probe) -> None:
    env = probes.make(probe.env)
    agent = triglot.make_agent(
        algorithm,
        env,
        backend=backend,
        config={**CASES[algorithm].config, **probe.config},
        hyper={**CASES[algorithm].hyper, **probe.hyper},
    )
    total_steps = probe.num_updates * agent.num_envs * agent.rollout_length
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=total_steps)
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)

    expected = env.expected(DISCOUNT)
    obs = jnp.asarray([case.obs for case in expected], jnp.float32)
    if probe.value_error is not None:
        wanted = [case.value for case in expected]
        np.testing.assert_allclose(values(agent, state, obs), wanted, atol=probe.value_error)
    # The states of the probes that a planner solves are the indices of their observations.
    states = jnp.arange(len(expected), dtype=jnp.int32) if agent.plans else None
    inputs = PolicyInput(obs=obs, first=jnp.ones(len(expected), bool), env_state=states)
    carry = agent.initial_carry(state, len(expected))
    output = jax.jit(agent.act, static_argnames="explore")(
        state, carry, inputs, jax.random.key(1), explore=False
    )
    for case, action in zip(
        expected, np.asarray(output.action).reshape(len(expected)), strict=True
    ):
        assert case.action is None or abs(case.action - action) <= REACHED
