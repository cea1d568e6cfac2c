"""PPO with a network that carries something from step to step."""

from dataclasses import replace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.ppo import PPO, PPOConfig, PPOHyperparams
from triglot.backends import build
from triglot.core.agent import PolicyInput, Trajectory
from triglot.core.errors import TriglotError
from triglot.core.families.policy_gradient import PolicyGradientState
from triglot.core.loop.rollout import EpisodeStats, rollout
from triglot.core.loop.state import RunnerState
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.network import Network, Variables
from triglot.core.networks.architecture import RecurrentCell
from triglot.core.specs import Box, Discrete
from triglot.envs import probes

CONFIG = PPOConfig(num_envs=4, rollout_length=8, num_epochs=1, num_minibatches=1, hidden_sizes=(8,))


def forgetful(network: Network) -> Network:
    """Make a recurrent network of a plain one: it counts its steps and makes nothing of it."""

    def apply(variables, inputs, *, key=None, train=False):
        obs, carry = inputs
        outputs, state = network.apply(variables, obs, key=key, train=train)
        return (outputs, carry + 1), state

    return replace(
        network,
        apply=apply,
        recurrent=True,
        initial_carry=lambda variables, num_envs: jnp.zeros((num_envs,), jnp.int32),
    )


def collected(
    agent: PPO, vector: VectorEnvironment, state: PolicyGradientState, key: jax.Array
) -> tuple[RunnerState, Trajectory, EpisodeStats]:
    """Collect a rollout from the start of episodes."""
    carry, env = agent.initial_carry(state, CONFIG.num_envs), vector.reset(key)
    start = RunnerState(key=key, agent=state, carry=carry, env=env, num_updates=jnp.int32(0))
    return rollout(agent, vector, start, key)


@pytest.mark.slow
def test_a_network_that_ignores_its_carry_learns_as_the_plain_one() -> None:
    env = probes.make("truncating", max_steps=3)
    plain = build("linen", PPO.networks(env.obs_spec, env.action_spec, CONFIG))
    vector = VectorEnvironment(env, CONFIG.num_envs)
    learned = []
    for network in (plain, forgetful(plain)):
        agent = PPO(network, env.obs_spec, env.action_spec, CONFIG)
        state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), CONFIG.num_envs)
        after, trajectory, _ = collected(agent, vector, state, jax.random.key(1))
        new_state, metrics = jax.jit(agent.update)(state, trajectory, jax.random.key(2))
        learned.append((new_state.learner.variables.params, metrics))
        if network.recurrent:  # 8 steps in episodes of 3: the third has seen 2
            np.testing.assert_array_equal(after.carry, [2] * CONFIG.num_envs)
    chex.assert_trees_all_close(*learned, rtol=1e-4, atol=1e-5)


def remembering(obs: jax.Array, carry: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    """Value what was seen since the episode's start, and sum it."""
    total = carry + obs[:, 0]
    return {"logits": jnp.zeros((obs.shape[0], 2)), "value": total}, total


SUMMING = Network(
    name="summing",
    backend="haiku",
    init=lambda key: Variables(params={"unused": jnp.zeros(())}, state=()),
    apply=lambda variables, inputs, *, key=None, train=False: (remembering(*inputs), ()),
    recurrent=True,
    initial_carry=lambda variables, num_envs: jnp.zeros((num_envs,)),
)


def test_the_successor_is_valued_with_what_was_carried_there() -> None:
    """One environment: an episode of two steps is cut, the next begins; the carry starts at 10."""
    agent = PPO(SUMMING, Box((1,)), Discrete(2), replace(CONFIG, num_envs=1))
    column = lambda *numbers: jnp.asarray(numbers)[:, None]  # noqa: E731
    trajectory = Trajectory(
        obs=column(1.0, 2.0, 5.0)[..., None],
        first=column(False, False, True),
        action_mask=None,
        action=column(0, 0, 0),
        reward=column(0.0, 0.0, 0.0),
        terminated=column(False, False, False),
        truncated=column(False, True, False),
        next_obs=column(2.0, 4.0, 6.0)[..., None],
        next_action_mask=None,
        extras={"logits": jnp.zeros((3, 1, 2))},
        carry=jnp.array([10.0]),
    )
    value, next_value = agent.values(SUMMING.init(jax.random.key(0)), trajectory)
    np.testing.assert_array_equal(value[:, 0], [11.0, 13.0, 5.0])
    # The cut episode's successor, 4, continues 13; the new one's, 6, continues 5.
    np.testing.assert_array_equal(next_value[:, 0], [13.0, 17.0, 11.0])


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["none", "lstm"])
def test_one_network_for_all_heads_gives_the_values_with_the_actions(cell: str) -> None:
    env = probes.make("truncating", max_steps=3)
    vector = VectorEnvironment(env, CONFIG.num_envs)
    for shared in (True, False):
        config = replace(CONFIG, shared_torso=shared, cell=cell, cell_size=4)
        network = build("linen", PPO.networks(env.obs_spec, env.action_spec, config))
        agent = PPO(network, env.obs_spec, env.action_spec, config)

        @jax.jit
        def values(key: jax.Array, agent: PPO = agent) -> tuple:
            state = jax.jit(agent.init, static_argnums=1)(key, CONFIG.num_envs)
            trajectory = collected(agent, vector, state, key)[1]
            kept = trajectory.extras.pop("value", None)
            return kept, agent.values(state.learner.variables, trajectory)[0]

        kept, computed = values(jax.random.key(0))
        assert (kept is not None) == shared
        if shared:
            np.testing.assert_allclose(kept, computed, rtol=1e-5, atol=1e-6)


def test_acting_starts_anew_with_an_episode() -> None:
    agent = PPO(SUMMING, Box((1,)), Discrete(2), CONFIG)
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 2)
    inputs = PolicyInput(obs=jnp.array([[1.0], [1.0]]), first=jnp.array([True, False]))
    output = jax.jit(agent.act, static_argnames="explore")(
        state, jnp.array([5.0, 5.0]), inputs, jax.random.key(0), explore=True
    )
    np.testing.assert_array_equal(output.carry, [1.0, 6.0])


def test_minibatches_are_whole_rollouts() -> None:
    config = replace(CONFIG, num_envs=2, num_minibatches=4)
    with pytest.raises(TriglotError, match=r"must divide num_envs .*recurrent.* = 2, got 4"):
        PPO(SUMMING, Box((1,)), Discrete(2), config, PPOHyperparams())


def test_a_recurrent_cell_is_an_option() -> None:
    specs = PPO.networks(Box((4,)), Discrete(2), PPOConfig(cell="gru", cell_size=8))
    assert {spec.cell for spec in specs.values()} == {RecurrentCell("gru", 8)}
    assert PPO.networks(Box((4,)), Discrete(2))["actor"].cell is None
    with pytest.raises(TriglotError, match="unknown cell 'lstn' of PPO; did you mean 'lstm'"):
        PPOConfig(cell="lstn")
