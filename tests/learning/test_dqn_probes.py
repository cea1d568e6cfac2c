"""DQN finds the known values and actions of every probe environment, on every library."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.covering import pairwise
from triglot.algorithms.dqn import DQN, DQNConfig, DQNHyperparams
from triglot.backends import build
from triglot.core.agent import PolicyInput
from triglot.core.networks.heads import merge_heads
from triglot.core.rl.schedules import schedule
from triglot.envs import probes
from triglot.runs.training import train

BACKENDS = ("haiku", "linen", "nnx", "equinox")
DISCOUNT = 0.5
NUM_UPDATES = 400
PLAIN = DQNConfig(
    num_envs=8,
    rollout_length=2,
    num_gradient_steps=2,
    batch_size=32,
    buffer_size=1024,
    learning_starts=128,
    hidden_sizes=(16,),
)
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "double": {"double": True},
    "dueling": {"dueling": True},
    "prioritized": {"prioritized": True},
    "n-step": {"n_step": 3},
    "all": {"double": True, "dueling": True, "prioritized": True, "n_step": 3},
}
HYPER = DQNHyperparams(
    learning_rate=1e-2,
    discount=DISCOUNT,
    epsilon=schedule("linear(1, 0.5, 1_000)"),  # pyright: ignore
    target_update_period=10.0,
)

# Every probe on one library, every option on the most informative probe, every library on one.
ALWAYS = {
    *(("haiku", "plain", probe) for probe in probes.names("discrete")),
    *(("equinox", option, "truncating") for option in OPTIONS if option != "plain"),
    ("nnx", "all", "two-step"),
    ("linen", "all", "obs-action-reward"),
}
CASES = [
    pytest.param(*case, marks=() if case in ALWAYS else pytest.mark.slow)
    for case in dict.fromkeys(
        (*sorted(ALWAYS), *pairwise(itertools.product(BACKENDS, OPTIONS, probes.names("discrete"))))
    )
]


@pytest.fixture(scope="module")
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Drop each library's programs: XLA's compiler crashes after some hundred of them."""
    yield request.param
    jax.clear_caches()


@pytest.mark.covering(3)
@pytest.mark.parametrize(("backend", "option", "probe"), CASES, indirect=["backend"])
def test_dqn_solves_the_probe(backend: str, option: str, probe: str) -> None:
    config = replace(PLAIN, **OPTIONS[option])
    env = probes.make(probe)
    network = build(backend, DQN.networks(env.obs_spec, env.action_spec, config))
    agent = DQN(network, env.obs_spec, env.action_spec, config, HYPER)
    total_steps = NUM_UPDATES * config.steps_per_update
    result = train(agent, env, key=jax.random.key(0), total_steps=total_steps)
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)

    expected = env.expected(DISCOUNT)
    obs = jnp.asarray([case.obs for case in expected], jnp.float32)
    outputs, _ = network.apply(state.learner.variables, obs)
    best = np.asarray(merge_heads(outputs)["q"]).max(axis=-1)
    np.testing.assert_allclose(best, [case.value for case in expected], atol=0.1)

    inputs = PolicyInput(obs=obs, first=jnp.ones(len(expected), bool))
    output = agent.act(state, (), inputs, jax.random.key(1), explore=False)
    for case, action in zip(expected, np.asarray(output.action), strict=True):
        assert case.action is None or case.action == action


def test_a_target_that_moves_a_little_at_each_step_learns_too() -> None:
    """Polyak averaging: the target moves by `tau` at every gradient step."""
    env = probes.make("two-step")
    config, hyper = PLAIN, replace(HYPER, tau=0.1, target_update_period=1.0)
    network = build("haiku", DQN.networks(env.obs_spec, env.action_spec, config))
    agent = DQN(network, env.obs_spec, env.action_spec, config, hyper)
    result = train(agent, env, key=jax.random.key(0), total_steps=400 * config.steps_per_update)
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)
    outputs, _ = network.apply(state.learner.variables, jnp.array([[0.0], [1.0]]))
    best = np.asarray(merge_heads(outputs)["q"]).max(axis=-1)
    np.testing.assert_allclose(best, [DISCOUNT, 1.0], atol=0.1)
