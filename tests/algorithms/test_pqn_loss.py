"""PQN's targets and loss by hand, on a network that is a table, and against NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.algorithms.pqn import PQN, Batch, PQNConfig, PQNHyperparams
from triglot.backends import build
from triglot.core.agent import AgentState, Trajectory
from triglot.core.errors import TriglotError
from triglot.core.hyper import as_float32
from triglot.core.network import Variables
from triglot.core.rl.losses import lambda_returns
from triglot.core.specs import Box, Discrete
from triglot.envs import probes

OBS, ACTIONS = Discrete(3), Discrete(2)
Q = [[1.0, 2.0], [4.0, 3.0], [0.0, -1.0]]


def agent(**options: Any) -> PQN:
    config = PQNConfig(num_envs=2, rollout_length=3, num_minibatches=1, **options)
    return PQN(build("table", PQN.networks(OBS, ACTIONS, config)), OBS, ACTIONS, config)


def state(own: PQN, **hyper: float) -> AgentState:
    variables = Variables(params={"q_network": {"q": jnp.array(Q)}}, state={"q_network": ()})
    numbers = as_float32(PQNHyperparams(**hyper))
    return AgentState(learner=own.learner.start(variables, numbers), hyper=numbers)


def targets(next_action_mask: jax.Array | None = None) -> np.ndarray:
    """Compute the targets of two environments, `[T, N]`.

    The first one goes from 0 to 1, 2 and 1. The second one starts three times in 0: a time limit
    ends it in 1, then it terminates in 2, then it reaches 1.
    """
    obs = jnp.array([[0, 0], [1, 0], [2, 0]])
    own = agent()
    trajectory = Trajectory(
        obs=obs,
        first=jnp.zeros((3, 2), bool),
        action_mask=None,
        action=jnp.zeros((3, 2), jnp.int32),
        reward=jnp.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]),
        terminated=jnp.array([[False, False], [False, True], [False, False]]),
        truncated=jnp.array([[False, True], [False, False], [False, False]]),
        next_obs=jnp.array([[1, 1], [2, 2], [1, 1]]),
        next_action_mask=next_action_mask,
        extras={"value": jnp.array(Q).max(axis=-1)[obs]},
        carry=(),
    )
    batch = own._prepare(state(own, discount=0.5, q_lambda=0.5), trajectory)
    return np.asarray(batch.target).reshape(3, 2)


def test_the_targets_by_hand() -> None:
    # First: G2 = 1 + 0.5 * 4 = 3, G1 = 1 + 0.5 * (0.5 * 0 + 0.5 * 3) = 1.75 and
    # G0 = 1 + 0.5 * (0.5 * 4 + 0.5 * 1.75) = 2.4375. Second: G2 = 3 + 0.5 * 4 = 5; terminated,
    # G1 = 2; truncated, G0 = 1 + 0.5 * 4 = 3.
    np.testing.assert_allclose(targets(), [[2.4375, 3.0], [1.75, 2.0], [3.0, 5.0]])


def test_forbidden_actions_have_no_part_in_the_targets() -> None:
    # At the end the first action of 1 is forbidden: 1 + 0.5 * 3 = 2.5, and 3 + 0.5 * 3 = 4.5.
    mask = jnp.broadcast_to(jnp.array([False, True]), (3, 2, 2))
    np.testing.assert_allclose(targets(mask)[2], [2.5, 4.5])


def test_the_loss_by_hand() -> None:
    # Q(0, 0) = 1 and Q(0, 1) = 2: 0.5 * (2 - 1)^2 and 0.5 * (0 - 2)^2, on average 1.25.
    own = agent()
    batch = Batch(obs=jnp.array([0, 0]), action=jnp.array([0, 1]), target=jnp.array([2.0, 0.0]))
    value, (metrics, _) = jax.jit(own.loss)(state(own).learner.variables, batch, jax.random.key(0))
    assert float(value) == pytest.approx(1.25)
    assert float(metrics["q"]) == pytest.approx(1.5)
    assert float(metrics["td_error"]) == pytest.approx(1.5)


@pytest.mark.parametrize("trace_decay", [0.0, 0.65, 1.0])
def test_lambda_returns_against_numpy(trace_decay: float) -> None:
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(2, 7, 3)).astype(np.float32)
    terminated = rng.random((7, 3)) < 0.2
    truncated = (rng.random((7, 3)) < 0.2) & ~terminated
    after, expected = value[-1], np.zeros((7, 3))
    for t in range(6, -1, -1):
        mixed = (1.0 - trace_decay) * value[t] + trace_decay * after
        mixed = np.where(truncated[t], value[t], mixed)
        after = reward[t] + 0.9 * np.where(terminated[t], 0.0, mixed)
        expected[t] = after
    given = jnp.asarray(terminated), jnp.asarray(truncated)
    found = lambda_returns(jnp.asarray(reward), *given, jnp.asarray(value), 0.9, trace_decay)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_recurrent_network_learns_from_whole_rollouts(cell: str) -> None:
    env = probes.make("two-step")
    small = {"num_envs": 4, "rollout_length": 4, "num_minibatches": 2, "hidden_sizes": (4,)}
    own = triglot.make_agent(
        "pqn", env, backend="linen", config={**small, "cell": cell, "cell_size": 4}
    )
    result = triglot.train(own, env, key=jax.random.key(0), total_steps=32)
    assert np.isfinite(np.asarray(result.metrics["loss"])).all()


def test_minibatches_must_divide_the_rollout() -> None:
    config = PQNConfig(num_envs=2, rollout_length=3, num_minibatches=4)
    network = build("linen", PQN.networks(Box((3,)), ACTIONS, config))
    with pytest.raises(TriglotError, match="num_minibatches must divide num_envs"):
        PQN(network, Box((3,)), ACTIONS, config)
