"""Options of the off-policy actor-critics: n-step and prioritized replay, clipping, dropout."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.algorithms.toy_actor_critics import (
    ACTIONS,
    OBS,
    SAMPLE,
    batch,
    critic,
    deterministic_actor,
    variables,
)
from triglot.algorithms.ddpg import DDPG, DDPGConfig, DDPGHyperparams
from triglot.algorithms.td3 import TD3, TD3Config, TD3Hyperparams
from triglot.core.agent import Trajectory
from triglot.core.errors import TriglotError
from triglot.core.networks.architecture import NetworkSpec
from triglot.core.networks.combinators import combine, ensemble
from triglot.core.rl.learning import _divided
from triglot.core.rl.losses import ensemble_loss
from triglot.core.rl.optimizers import sgd
from triglot.core.specs import Box, Discrete
from triglot.runs.registry.algorithms import find_algorithm

ALGORITHMS = ("ddpg", "td3", "sac", "redq", "crossq", "tqc", "mpo")
KEY = jax.random.key(3)
SIZES = {"num_envs": 2, "rollout_length": 2, "batch_size": 4, "buffer_size": 16}
SAMPLED: dict[str, Any] = {**SIZES, "learning_starts": 8}
SMALL: Mapping[str, Any] = {**SAMPLED, "hidden_sizes": (4,)}


def small(name: str, **config: Any) -> dict[str, Any]:
    given = dict(SMALL)
    if name in ("td3", "redq", "crossq"):
        given |= {"policy_delay": 2, "num_gradient_steps": 2}
    else:
        given |= {"num_gradient_steps": 2}
    if name == "crossq":
        given["critic_hidden_sizes"] = (4,)
    return given | config


def make(name: str, hyper: Any = None, **config: Any) -> tuple[Any, Any]:
    env = triglot.make_env("gymnax:Pendulum-v1")
    return triglot.make_agent(name, env, config=small(name, **config), hyper=hyper), env


def ddpg(**config: Any) -> DDPG:
    parts = {"actor": deterministic_actor(0.0), "critic": critic()}
    return DDPG(combine(parts), OBS, ACTIONS, DDPGConfig(**SAMPLED | config), DDPGHyperparams())


def test_weights_multiply_the_errors_of_all_critics() -> None:
    q, target = jnp.array([[1.0, 2.0], [3.0, 2.0]]), jnp.array([0.0, 1.0])
    # Halved squares: 0.5, 0.5 and 4.5, 0.5, averaged over samples and summed.
    np.testing.assert_allclose(ensemble_loss(q, target), (0.5 + 0.5) / 2 + (4.5 + 0.5) / 2)
    weighted = ensemble_loss(q, target, jnp.array([0.5, 1.0]))
    np.testing.assert_allclose(weighted, (0.25 + 0.5) / 2 + (2.25 + 0.5) / 2)


def test_an_update_weighs_the_samples_and_sets_their_priorities() -> None:
    """TD3's critics on samples of probability 0.1 and 0.4, whose weights are 1 and 0.25^0.5."""
    parts = {"actor": deterministic_actor(0.0), "critic": ensemble(critic(), 2)}
    config = TD3Config(**SAMPLED, prioritized=True, num_gradient_steps=2)
    hyper = TD3Hyperparams(
        target_noise=0.0, importance_sampling_exponent=0.5, priority_exponent=0.5, priority_eps=0.01
    )
    agent = TD3(combine(parts), OBS, ACTIONS, config, hyper)
    state = batch(agent, [1.0, 2.0], [0.5, -0.25]).state
    sample = replace(SAMPLE, slot=jnp.array([3, 1]), probability=jnp.array([0.1, 0.4]))
    after, metrics = agent.step(state, sample, KEY, critic=agent.critic_loss)
    # Of test_td3_loss: the errors are 1.1125, -5.5 and 3.1125, -8 against the targets 0.8875 and 3.
    expected = (1.23765625 + 0.5 * 30.25 + 9.68765625 + 0.5 * 64) / 4
    np.testing.assert_allclose(metrics["critic_loss"], expected, rtol=1e-6)
    errors = np.array([(1.1125 + 3.1125) / 2, (5.5 + 8.0) / 2])
    np.testing.assert_allclose(metrics["td_error"], errors.mean(), rtol=1e-6)
    assert after.replay.priorities is not None
    found = np.asarray(after.replay.priorities.weight)
    np.testing.assert_allclose(found[[3, 1]], (errors + 0.01) ** 0.5, rtol=1e-6)
    assert found[[0, 2]].tolist() == [0.0, 0.0]


def test_the_actor_is_not_weighted() -> None:
    agent = ddpg(prioritized=True)
    given = batch(agent, 1.0, 0.5)
    plain, _ = agent.actor_loss(variables(given, "actor"), given, KEY)
    weighted = replace(given, weight=jnp.array([0.5, 1.0]))
    other, _ = agent.actor_loss(variables(given, "actor"), weighted, KEY)
    np.testing.assert_array_equal(plain, other)


def test_samples_of_several_batches_are_interleaved_by_priority() -> None:
    """Stratified samples are sorted; each batch must be of the whole replay."""
    slots = jnp.arange(6)
    np.testing.assert_array_equal(_divided((2, 3), True, slots), [[0, 2, 4], [1, 3, 5]])
    np.testing.assert_array_equal(_divided((2, 3), False, slots), [[0, 1, 2], [3, 4, 5]])
    rows = jnp.arange(12).reshape(6, 2)
    np.testing.assert_array_equal(_divided((2, 3), True, rows)[1], rows[1::2])


def trajectory(reward: list[float], terminated: list[bool]) -> Trajectory:
    """Two steps of two environments, of the observations 0, 1, 2, 3."""
    obs = jnp.arange(4.0).reshape(2, 2, 1)
    no = jnp.zeros((2, 2), bool)
    return Trajectory(
        obs=obs,
        first=no,
        action_mask=None,
        action=jnp.zeros((2, 2, 1)),
        reward=jnp.array(reward).reshape(2, 2),
        terminated=jnp.array(terminated).reshape(2, 2),
        truncated=no,
        next_obs=obs + 10.0,
        next_action_mask=None,
        extras={"unit": jnp.zeros((2, 2, 1))},
        carry=(),
    )


@pytest.mark.slow
def test_n_step_returns_are_those_of_the_replay() -> None:
    """Two steps: r + 0.99 r', and the second successor at 0.99^2; or up to a termination."""
    agent = ddpg(n_step=2)
    replay = agent.replay
    assert replay.n_step == 2
    given = trajectory([1.0, 2.0, 4.0, 8.0], [False, True, False, False])
    state = replay.add_trajectory(replay.init(), given, action=given.extras["unit"])
    sample = jax.jit(replay.sample, static_argnums=2)(state, KEY, 32, 0.99)
    by_obs = {float(o): i for i, o in enumerate(np.asarray(sample.obs)[:, 0])}
    assert set(by_obs) == {0.0, 1.0}  # the newest steps lack their successors
    first, second = by_obs[0.0], by_obs[1.0]
    np.testing.assert_allclose(sample.reward[first], 1.0 + 0.99 * 4.0)
    np.testing.assert_allclose(sample.discount[first], 0.99**2)
    np.testing.assert_allclose(sample.next_obs[first], [12.0])
    np.testing.assert_allclose(sample.reward[second], 2.0)
    np.testing.assert_allclose(sample.discount[second], 0.0)
    # The critic's loss takes both as they are: y = r + discount * Q'(s', mu'(s')), mu' = 0.
    picked = jax.tree.map(lambda leaf: leaf[jnp.array([first, second])], sample)
    learned = replace(batch(agent, 1.0, 0.5), sample=picked)
    value, _ = agent.critic_loss(variables(learned, "critic"), learned, KEY)
    targets = np.array([1.0 + 0.99 * 4.0 + 0.99**2 * 0.5 * 12.0, 2.0])
    np.testing.assert_allclose(value, 0.5 * np.mean((np.array([0.0, 1.0]) - targets) ** 2), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_all_learn_with_all_options(name: str) -> None:
    options: dict[str, Any] = {"prioritized": True, "n_step": 2}
    if name != "crossq":
        options |= {"critic_normalization": "layer", "critic_dropout": 0.25}
    agent, env = make(name, {"max_grad_norm": 0.5}, **options)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=24)
    assert np.isfinite(result.metrics["critic_loss"][..., -1]).all()
    weight = np.asarray(result.runner_state.agent.replay.priorities.weight)
    assert len(np.unique(weight)) > 3  # the samples have priorities of their own


@pytest.mark.parametrize("name", ALGORITHMS)
def test_gradients_are_clipped_where_asked(name: str) -> None:
    agent, _ = make(name)
    assert agent.hyper.max_grad_norm is None
    rate = agent.hyper.learning_rate
    clipped = stepped(replace(agent.hyper, max_grad_norm=5.0))
    np.testing.assert_allclose(clipped, [-3.0 * rate, -4.0 * rate], rtol=1e-6)
    np.testing.assert_allclose(stepped(agent.hyper), [-30.0 * rate, -40.0 * rate], rtol=1e-6)


def stepped(hyper: Any) -> Any:
    """Step on a gradient (30, 40), of norm 50."""
    optimizer = sgd(hyper)
    return optimizer.update(jnp.array([30.0, 40.0]), optimizer.init(jnp.zeros(2)))[0]


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "crossq"])
def test_critics_alone_have_dropout_and_layer_normalization(name: str) -> None:
    found = find_algorithm(name)
    config = found.Config(critic_dropout=0.25, critic_normalization="layer")
    specs: Any = found.networks(Box((2,)), Box((1,), "float32", -1.0, 1.0), config)
    assert (specs["critic"].dropout, specs["critic"].torso.normalization) == (0.25, "layer")
    assert (specs["actor"].dropout, specs["actor"].torso.normalization) == (0.0, "none")


@pytest.mark.parametrize("name", ["sac", "redq", "mpo"])
def test_so_have_critics_of_discrete_actions(name: str) -> None:
    found = find_algorithm(name)
    config = found.Config(critic_dropout=0.25, critic_normalization="layer")
    specs: Any = found.networks(Box((2,)), Discrete(2), config)
    assert (specs["critic"].dropout, specs["critic"].torso.normalization) == (0.25, "layer")
    table = found.networks(Discrete(3), Discrete(2), config)["critic"]
    assert isinstance(table, NetworkSpec)
    assert table.dropout == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "crossq"])
def test_losses_draw_masks_for_critics_targets_and_actor(name: str) -> None:
    """As in DroQ (algorithm 2). With a key of another draw, each loss has another value."""
    agent, _ = make(name, {"target_noise": 0.0} if name == "td3" else None, critic_dropout=0.5)
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 2)
    calls: list[Any] = []
    part = agent.network.parts["critic"]

    def apply(variables: Any, inputs: Any, *, key: Any = None, train: bool = False) -> Any:
        calls.append((key is not None, train))
        return part.apply(variables, inputs, key=key, train=train)

    recorded = replace(part, apply=apply)
    parts = {**agent.network.parts, "critic": recorded}
    agent = replace(agent, network=replace(agent.network, parts=parts))
    calls.clear()  # of the checks of the heads
    obs = jax.random.normal(KEY, (4, 3))
    rows: dict[str, Any] = {"reward": jnp.ones(4), "discount": jnp.ones(4)}
    rows |= {"slot": jnp.zeros(4, jnp.int32), "probability": jnp.ones(4)}
    sample = replace(SAMPLE, obs=obs, next_obs=obs + 1.0, action=obs[:, :1], **rows)
    samples = sample
    if agent.config.policy_delay is not None:
        samples = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), sample)
    agent.learn(state, samples, KEY)
    assert calls
    assert all(drawn for drawn, _ in calls), calls


@pytest.mark.slow
def test_acting_does_not_drop_anything() -> None:
    """Without a key a network with dropout is that without it, up to the masks of ones."""
    agent, _ = make("sac", critic_dropout=0.5)
    plain, _ = make("sac")
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 2)
    critics = state.learners["critic"].variables
    obs, action = jnp.ones((3, 3)), jnp.ones((3, 1))
    expected, _ = plain.q(critics, obs, action)
    found, _ = agent.q(critics, obs, action)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    dropped, _ = agent.q(critics, obs, action, key=KEY)
    assert not np.allclose(dropped, expected)


class Plain(DDPG):
    """DDPG whose critic loss gives no errors."""

    def critic_loss(self, critic: Any, batch: Any, key: jax.Array) -> Any:
        loss, (metrics, state) = super().critic_loss(critic, batch, key)
        return loss, ({"q": metrics["q"]}, state)


def test_priorities_need_errors() -> None:
    env = triglot.make_env("gymnax:Pendulum-v1")
    config = small("ddpg", prioritized=True)
    agent = triglot.make_agent(Plain, env, config=config)
    with pytest.raises(TriglotError, match="critic loss returns no td_errors"):
        triglot.train(agent, env, key=jax.random.key(0), total_steps=8)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("sac", {"critic_dropout": 1.0}, r"critic_dropout must be within \[0, 0.9\], got 1.0"),
        ("sac", {"critic_dropout": -0.1}, r"critic_dropout must be within \[0, 0.9\]"),
        ("td3", {"critic_normalization": "batch"}, "batch"),
        ("ddpg", {"n_step": 0}, "n_step must be at least 1"),
        ("tqc", {"n_step": 10}, "learning_starts"),
        ("crossq", {"critic_dropout": 0.1}, "critic_dropout"),
    ],
)
def test_bad_options_are_refused(name: str, given: Any, words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        make(name, **given)


@pytest.mark.covering(4)
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(
    "given", [{"max_grad_norm": -1.0}, {"priority_eps": 0.0}, {"importance_sampling_exponent": 2.0}]
)
def test_bad_hyperparameters_are_refused(name: str, given: Any) -> None:
    with pytest.raises(TriglotError, match=next(iter(given))):
        make(name, given, prioritized=True)


def test_the_papers_defaults() -> None:
    """DDPG's tau (section 7 of Lillicrap et al.); REDQ's rate and warm-up (Chen et al., B)."""
    assert DDPGHyperparams().tau == 0.001
    redq = find_algorithm("redq")
    assert redq.Hyperparams().critic_learning_rate == redq.Hyperparams().learning_rate == 3e-4
    assert redq.Config().learning_starts == 5_000
