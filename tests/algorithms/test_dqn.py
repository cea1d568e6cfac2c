"""DQN's parts: acting, the schedule, the target network, what it refuses, and its seeds."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.dqn import DQN, DQNConfig, DQNHyperparams
from triglot.backends import build
from triglot.core.agent import PolicyInput, Trajectory
from triglot.core.environment import TimeStep, first_step
from triglot.core.errors import TriglotError
from triglot.core.families.action_values import ReplayedQState
from triglot.core.hyper import for_environment
from triglot.core.loop.trainer import Trainer, init_seeds, train_seeds
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.network import Network, Variables
from triglot.core.rl.exploration import epsilon_greedy
from triglot.core.specs import Box, Discrete
from triglot.envs import probes
from triglot.runs.training import train

SMALL = DQNConfig(
    num_envs=2,
    rollout_length=2,
    batch_size=4,
    buffer_size=32,
    learning_starts=8,
    hidden_sizes=(8,),
)
EVERY_3 = DQNHyperparams(target_update_period=3.0)


def table(num_actions: int = 3, config: DQNConfig = SMALL, **hyper: float) -> DQN:
    """Make an agent whose values are a lookup table of four states."""
    obs_spec, action_spec = Discrete(4), Discrete(num_actions)
    network = build("table", DQN.networks(obs_spec, action_spec, config))
    return DQN(network, obs_spec, action_spec, config, DQNHyperparams(**hyper))


def on(probe: str, config: DQNConfig = SMALL, hyper: DQNHyperparams | None = None) -> Trainer:
    env = probes.make(probe)
    network = build("haiku", DQN.networks(env.obs_spec, env.action_spec, config))
    agent = DQN(network, env.obs_spec, env.action_spec, config, hyper or DQNHyperparams())
    return Trainer(agent, VectorEnvironment(env, config.num_envs), chunk_size=16)


def with_values(agent: DQN, values: list[list[float]]) -> ReplayedQState:
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 2)
    variables = Variables(
        params={"q_network": {"q": jnp.array(values)}}, state=state.learner.variables.state
    )
    return replace(state, learner=replace(state.learner, variables=variables))


VALUES = [[1.0, 3.0, 2.0], [5.0, 0.0, 9.0], [0.0, 0.0, 0.0], [2.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [(None, [1, 2, 0]), ([[1, 0, 1], [1, 1, 0], [0, 1, 0]], [2, 0, 1])],
)
def test_the_greatest_allowed_value_is_chosen(mask: Any, expected: list[int]) -> None:
    agent = table()
    inputs = PolicyInput(
        obs=jnp.array([0, 1, 3]),
        first=jnp.ones(3, bool),
        action_mask=None if mask is None else jnp.array(mask, bool),
    )
    output = jax.jit(agent.act, static_argnames="explore")(
        with_values(agent, VALUES), (), inputs, jax.random.key(0), explore=False
    )
    np.testing.assert_array_equal(output.action, expected)
    assert output.action.dtype == jnp.int32


@pytest.mark.parametrize("epsilon", [0.0, 0.06, 0.5, 1.0])
def test_random_actions_are_as_frequent_as_epsilon_and_uniform(epsilon: float) -> None:
    count = 120_000
    greedy = jnp.zeros(count, jnp.int32)
    action = epsilon_greedy(greedy, 3, None, jnp.asarray(epsilon), jax.random.key(0))
    shares = np.bincount(action, minlength=3) / count
    expected = np.array([1 - epsilon, 0, 0]) + epsilon / 3
    np.testing.assert_allclose(shares, expected, atol=0.007)  # five standard deviations


def test_random_actions_are_allowed_ones() -> None:
    count = 60_000
    mask = jnp.tile(jnp.array([True, False, True, True, False]), (count, 1))
    greedy = jnp.zeros(count, jnp.int32)
    action = epsilon_greedy(greedy, 5, mask, jnp.asarray(1.0), jax.random.key(0))
    shares = np.bincount(action, minlength=5) / count
    np.testing.assert_allclose(shares, [1 / 3, 0, 1 / 3, 1 / 3, 0], atol=0.01)


def trees_equal(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(bool(jnp.array_equal(a, b)) for a, b in pairs)


def params(state: ReplayedQState) -> Any:
    return state.learner.variables.params


def test_the_target_starts_equal_and_follows_every_interval() -> None:
    """Published DQNs initialise the target network from another key."""
    trainer = on("obs-reward", hyper=EVERY_3)
    update = jax.jit(trainer.update)
    state = trainer.init(jax.random.key(0))
    assert trees_equal(state.agent.target, state.agent.learner.variables)
    copied, steps = state.agent.target.params, 0
    for _ in range(12):
        state, metrics = update(state)
        steps = int(state.agent.learner.num_gradient_steps)
        if steps and steps % 3 == 0:
            copied = params(state.agent)
        assert trees_equal(state.agent.target.params, copied)
        assert (steps == 0) == bool(jnp.isnan(metrics["loss"]))
    assert steps == 11  # the first rollout holds 4 steps, and learning starts at 8
    assert int(state.agent.replay.num_added) == 12 * SMALL.steps_per_update


def test_the_target_moves_by_tau() -> None:
    hyper = DQNHyperparams(tau=0.25, target_update_period=1.0)
    trainer = on("obs-reward", hyper=hyper)
    update = jax.jit(trainer.update)
    before, _ = update(trainer.init(jax.random.key(0)))
    after, _ = update(before)
    expected = jax.tree.map(
        lambda old, new: 0.75 * old + 0.25 * new, before.agent.target.params, params(after.agent)
    )
    for ours, theirs in zip(
        jax.tree.leaves(after.agent.target.params), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_what_was_seen_is_kept_with_its_true_successor() -> None:
    agent = table(num_actions=2)
    shape = (2, 2)
    flag = jnp.zeros(shape, bool)
    trajectory = Trajectory(
        obs=jnp.array([[0, 1], [2, 0]]),
        first=flag,
        action_mask=None,
        action=jnp.array([[0, 1], [1, 0]]),
        reward=jnp.array([[1.0, 2.0], [3.0, 4.0]]),
        terminated=flag.at[1, 0].set(True),
        truncated=flag.at[0, 1].set(True),
        next_obs=jnp.array([[2, 3], [1, 2]]),  # the second environment was cut in state 3
        next_action_mask=jnp.array([[[1, 0], [1, 1]], [[0, 1], [1, 1]]], bool),
        extras={},
        carry=(),
    )
    state, metrics = jax.jit(agent.update)(
        jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 2), trajectory, jax.random.key(1)
    )
    steps = jax.tree.map(lambda leaf: leaf[:4].tolist(), state.replay.steps)
    assert steps.obs == [0, 1, 2, 0]
    assert steps.next_obs == [2, 3, 1, 2]
    assert steps.action == [0, 1, 1, 0]
    assert steps.reward == [1.0, 2.0, 3.0, 4.0]
    assert steps.terminated == [False, False, True, False]
    assert steps.truncated == [False, True, False, False]
    assert steps.next_action_mask == [[True, False], [True, True], [False, True], [True, True]]
    assert float(metrics["replay_size"]) == 4.0


@dataclass(frozen=True)
class Pixels:
    """Show bytes."""

    name = "pixels"
    obs_spec = Box((3,), "uint8", 0, 255)
    action_spec = Discrete(2)

    def reset(self, key: jax.Array) -> TimeStep:
        return first_step((), jnp.zeros((3,), jnp.uint8))

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        return replace(self.reset(key), reward=jnp.ones((), jnp.float32))


def test_observations_keep_their_dtype_in_the_replay() -> None:
    env = Pixels()

    def apply(
        variables: Variables, obs: jax.Array, *, key: Any = None, train: bool = False
    ) -> tuple[dict[str, jax.Array], Any]:
        return {"q": obs.astype(jnp.float32) @ variables.params}, ()

    network = Network(
        name="bytes",
        backend="haiku",
        init=lambda key: Variables(params=jax.random.normal(key, (3, 2)), state=()),
        apply=apply,
    )
    agent = DQN(network, env.obs_spec, env.action_spec, SMALL)
    trainer = Trainer(agent, VectorEnvironment(env, 2), chunk_size=4)
    state, _ = jax.jit(trainer.train_chunk)(trainer.init(jax.random.key(0)))
    assert state.agent.replay.steps.obs.dtype == jnp.uint8
    assert state.agent.replay.steps.next_obs.dtype == jnp.uint8


def test_an_update_writes_to_the_replay_in_place() -> None:
    trainer = on("obs-action-reward", replace(SMALL, prioritized=True, buffer_size=20_000))
    states = init_seeds.eval_shape(trainer, jax.random.split(jax.random.key(0), 1))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(states.agent.replay))
    memory = train_seeds.lower(trainer, states, 4).compile().memory_analysis()
    assert memory is not None  # for the type checker
    assert memory.alias_size_in_bytes >= size > 300_000
    assert memory.temp_size_in_bytes < size / 2  # no copy, and no second buffer


@pytest.mark.slow
@pytest.mark.parametrize("prioritized", [False, True])
def test_seeds_really_differ(prioritized: bool) -> None:
    """A well-known DQN rebinds its key to one constant, which makes all its seeds alike."""
    trainer = on("obs-action-reward", replace(SMALL, prioritized=prioritized))
    states = init_seeds(trainer, jax.random.split(jax.random.key(0), 3))
    states, metrics = train_seeds(trainer, states, 16)
    for varied in (
        *jax.tree.leaves(params(states.agent))[1:],
        states.agent.replay.steps.action,
        metrics["loss"][:, -1:],
    ):
        rows = np.asarray(varied).reshape(3, -1)
        assert len({row.tobytes() for row in rows}) == 3


@pytest.mark.slow
def test_a_seed_does_not_depend_on_those_beside_it() -> None:
    trainer = on("obs-action-reward")
    keys = jax.random.split(jax.random.key(0), 3)
    together, _ = train_seeds(trainer, init_seeds(trainer, keys), 16)
    alone, _ = train_seeds(trainer, init_seeds(trainer, keys[1:2]), 16)
    for one, many in zip(
        jax.tree.leaves(params(alone.agent)), jax.tree.leaves(params(together.agent)), strict=True
    ):
        np.testing.assert_allclose(one[0], many[1], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_hyperparameters_may_be_swept_under_vmap() -> None:
    trainer = on("obs-action-reward", replace(SMALL, prioritized=True))
    rates = jnp.array([0.0, 1e-3])
    hyper = replace(DQNHyperparams(), learning_rate=rates)
    hyper = jax.tree.map(lambda number: jnp.broadcast_to(jnp.asarray(number), (2,)), hyper)
    start = jax.vmap(lambda h: trainer.init(jax.random.key(0), h))(hyper)
    done, _ = jax.jit(jax.vmap(trainer.train_chunk))(start)
    first, last = (jax.tree.leaves(params(state.agent))[-1] for state in (start, done))
    assert jnp.array_equal(first[0], last[0])
    assert not jnp.array_equal(first[1], last[1])


@pytest.mark.slow
def test_the_public_train_function_runs_it() -> None:
    env = probes.make("two-step")
    network = build("haiku", DQN.networks(env.obs_spec, env.action_spec, SMALL))
    agent = DQN(network, env.obs_spec, env.action_spec, SMALL)
    result = train(agent, env, key=jax.random.key(0), total_steps=40)
    assert result.num_updates == 10
    assert np.isfinite(result.metrics["loss"][0, 2:]).all()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"batch_size": 64, "buffer_size": 32}, "replay holds a batch .*got 64, 10,000 and 32"),
        ({"learning_starts": 20_000}, "<= buffer_size.* got 128, 20,000 and 10,000"),
        ({"learning_starts": 100}, "<= learning_starts.* got 128, 100 and"),
        ({"learning_starts": 150, "n_step": 5}, "got 168, 150 and 10,000"),
        ({"n_step": 0}, "n_step must be at least 1, got 0"),
    ],
)
def test_counts_that_cannot_work_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        for_environment(DQNConfig(**config), ())


def test_the_replay_is_rounded_up_to_whole_rollouts() -> None:
    assert DQNConfig(num_envs=6, rollout_length=4, buffer_size=10_000).capacity == 10_008


@pytest.mark.parametrize(
    ("hyper", "words"),
    [
        ({"discount": 1.5}, r"discount must be within \[0, 1\], got 1.5"),
        ({"epsilon": -0.1}, r"epsilon must be within \[0, 1\]"),
        ({"priority_eps": 0.0}, r"priority_eps must be finite and above 0, got 0.0"),
        ({"tau": 2.0}, r"tau must be within \[0, 1\]"),
        ({"target_update_period": 0.5}, "target_update_period must be at least 1, got 0.5"),
    ],
)
def test_numbers_out_of_range_are_refused(hyper: dict[str, Any], words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        table(**hyper)


def test_continuous_actions_are_refused() -> None:
    with pytest.raises(TriglotError, match="DQN supports discrete actions"):
        DQN.networks(Box((3,)), Box((2,), low=-1.0, high=1.0))


def test_a_recurrent_network_is_refused() -> None:
    agent = table()
    with pytest.raises(TriglotError, match=r"DQN replays single steps, and .* is recurrent"):
        DQN(replace(agent.network, recurrent=True), agent.obs_spec, agent.action_spec, SMALL)


def test_a_network_without_action_values_is_refused() -> None:
    agent = table()
    with pytest.raises(TriglotError, match=r"DQN needs q \[B, 2\]; .* returned q \[B, 3\]"):
        DQN(agent.network, agent.obs_spec, Discrete(2), SMALL)
