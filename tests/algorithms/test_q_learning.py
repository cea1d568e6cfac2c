"""The tabular agent: what it refuses, how it explores, and that it learns after every step."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.q_learning import METHODS, QLearning, QLearningConfig, QLearningHyperparams
from triglot.backends import build
from triglot.core.agent import PolicyInput, Trajectory
from triglot.core.errors import TriglotError
from triglot.core.evaluate import evaluate
from triglot.core.loop.state import update_keys
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.networks.combinators import ensemble, freeze
from triglot.core.specs import Box, Discrete
from triglot.core.wrappers.ends import TimeLimit
from triglot.envs.gridworld import GridWorld
from triglot.runs.training import train

ENV = GridWorld(3, 3)
HYPER = QLearningHyperparams()


def make(backend: str = "table", hyper: QLearningHyperparams = HYPER, **config: Any) -> QLearning:
    made = QLearningConfig(**{"rollout_length": 32, **config})
    network = build(backend, QLearning.networks(ENV.obs_spec, ENV.action_spec, made))
    return QLearning(network, ENV.obs_spec, ENV.action_spec, made, hyper)


def trainer(agent: QLearning, chunk_size: int = 2) -> Trainer:
    return Trainer(agent, VectorEnvironment(ENV, agent.num_envs), chunk_size=chunk_size)


def table_of(state: Any) -> np.ndarray:
    (table,) = jax.tree.leaves(state.learner.variables.params)
    return np.asarray(table)


@pytest.mark.parametrize("number", [{"learning_rate": 1.5}, {"discount": -0.1}, {"epsilon": 2.0}])
def test_numbers_out_of_range_are_refused(number: dict[str, float]) -> None:
    with pytest.raises(TriglotError, match=f"{next(iter(number))} must be within"):
        make(hyper=QLearningHyperparams(**number))


def test_wrong_counts_and_methods_are_refused() -> None:
    with pytest.raises(TriglotError, match="rollout_length must be at least 1"):
        QLearningConfig(rollout_length=0)
    with pytest.raises(TriglotError, match="expected_sarsa"):
        QLearningConfig(method="expected_sarso")  # pyright: ignore[reportArgumentType]


def test_what_is_not_discrete_is_refused() -> None:
    with pytest.raises(TriglotError, match="Discrete observations"):
        QLearning.networks(Box((4,)), Discrete(2))
    with pytest.raises(TriglotError, match="Discrete actions"):
        QLearning.networks(Discrete(2), Box((1,)))


@pytest.mark.covering(6)
@pytest.mark.parametrize("backend", ["table", "linen"])
@pytest.mark.parametrize("method", METHODS)
def test_every_action_is_chosen_from_the_table_as_the_step_before_left_it(
    method: str, backend: str
) -> None:
    """The loop by hand: act, step, learn, with the keys that the compiled one splits."""
    agent = make(backend, method=method)
    env = VectorEnvironment(ENV, 1)
    start = jax.jit(trainer(agent).init)(jax.random.key(1))
    after, metrics = jax.jit(trainer(agent).update)(start)

    rollout_key = update_keys(start.key, start.num_updates).rollout
    uses = [jax.random.split(own, 32) for own in jax.random.split(rollout_key, 3)]
    state, env_state, errors = start.agent, start.env, []

    @jax.jit
    def one_step(state: Any, env_state: Any, keys: tuple) -> tuple:
        inputs = PolicyInput(obs=env_state.obs, first=env_state.first)
        output = jax.jit(agent.act, static_argnames="explore")(
            state, (), inputs, keys[0], explore=True
        )
        next_env_state, seen = env.step(env_state, output.action, keys[1])
        one = Trajectory(
            obs=inputs.obs[None],
            first=inputs.first[None],
            action_mask=None,
            action=output.action[None],
            reward=seen.reward[None],
            terminated=seen.terminated[None],
            truncated=seen.truncated[None],
            next_obs=seen.next_obs[None],
            next_action_mask=None,
            extras={},
            carry=(),
        )
        state, metrics = jax.jit(agent.update)(state, one, keys[2])
        return state, next_env_state, metrics["td_error"]

    for keys in zip(*uses, strict=True):
        state, env_state, error = one_step(state, env_state, keys)
        errors.append(error)
    np.testing.assert_array_equal(table_of(after.agent), table_of(state))
    np.testing.assert_array_equal(after.env.obs, env_state.obs)
    np.testing.assert_allclose(metrics["td_error"], np.mean(errors), rtol=1e-5)
    assert agent.online


def test_ties_are_broken_evenly_and_epsilon_explores() -> None:
    """A biased tie-break once made a loop that was fast and never reached the goal."""
    num_envs = 4096
    inputs = PolicyInput(obs=jnp.zeros(num_envs, jnp.int32), first=jnp.ones(num_envs, bool))

    def counts(table: list[float], *, explore: bool, epsilon: float) -> np.ndarray:
        agent = make(hyper=QLearningHyperparams(epsilon=epsilon))
        state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 1)
        params = jax.tree.map(
            lambda q: q.at[0].set(jnp.array(table)), state.learner.variables.params
        )
        variables = replace(state.learner.variables, params=params)
        state = replace(state, learner=replace(state.learner, variables=variables))
        action = jax.jit(agent.act, static_argnames="explore")(
            state, (), inputs, jax.random.key(1), explore=explore
        ).action
        return np.bincount(np.asarray(action), minlength=4) / num_envs

    even = counts([0.0] * 4, explore=False, epsilon=0.5)
    np.testing.assert_allclose(even, [0.25] * 4, atol=0.03)  # 4.4 standard deviations
    assert counts([0.0, 1.0, 1.0, 0.0], explore=False, epsilon=0.5)[[0, 3]].sum() == 0
    explored = counts([0.0, 0.0, 1.0, 0.0], explore=True, epsilon=0.4)
    np.testing.assert_allclose(explored, [0.1, 0.1, 0.7, 0.1], atol=0.03)


@pytest.mark.slow
def test_seeds_together_learn_what_each_learns_alone() -> None:
    made = trainer(make())
    keys = jax.random.split(jax.random.key(0), 3)
    together, _ = jax.jit(jax.vmap(lambda key: made.train_chunk(made.init(key))))(keys)
    alone = jax.jit(lambda key: made.train_chunk(made.init(key)))
    for seed in range(3):
        state, _ = alone(keys[seed])
        of_seed = jax.tree.map(lambda leaf, s=seed: leaf[s], together.agent)
        np.testing.assert_array_equal(table_of(of_seed), table_of(state.agent))


def test_the_initial_value_fills_the_table() -> None:
    state = make(initial_value=2.0).init(jax.random.key(0), 1)
    np.testing.assert_array_equal(table_of(state), 2.0)


@pytest.mark.covering(3)
@pytest.mark.parametrize("method", METHODS)
def test_several_environments_and_evaluation_of_any_number(method: str) -> None:
    agent = make(method=method, num_envs=3)
    env = TimeLimit(ENV, 5)
    result = train(agent, env, key=jax.random.key(0), total_steps=960)
    assert result.num_steps == 960
    assert np.isfinite(result.metrics["td_error"]).all()
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)
    for explore in (False, True):
        episodes = evaluate(agent, env, state, jax.random.key(1), num_episodes=7, explore=explore)
        assert episodes.finished.all()


def test_a_sparse_update_is_declared_by_tables_alone_and_dropped_by_what_hides_it() -> None:
    network = make().network
    assert network.scatter_add is not None
    assert make("linen").network.scatter_add is None
    assert ensemble(network, 2).scatter_add is None
    with pytest.raises(TriglotError, match="leaves no parameter"):
        freeze(network, "*")


def test_no_metric_and_no_table_is_kept_per_step() -> None:
    """Published code keeps the table of every step: gigabytes, and 30 times the time."""
    agent = make(rollout_length=4096)
    made = trainer(agent)
    state = jax.eval_shape(made.init, jax.random.key(0))
    carry = jax.jit(made.train_chunk).lower(state).compile().memory_analysis()
    assert carry is not None
    assert carry.temp_size_in_bytes < 4096 * 64
