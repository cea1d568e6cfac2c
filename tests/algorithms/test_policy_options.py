"""Options of policy gradients: early stopping, value clipping, and continuous policies."""

from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.extras import TORCH
from triglot import rl
from triglot.algorithms.a2c import A2C
from triglot.algorithms.ppo import PPO, Batch, PPOConfig, PPOHyperparams
from triglot.backends import build
from triglot.core.errors import TriglotError
from triglot.core.network import Variables
from triglot.core.specs import Box, Discrete
from triglot.runs.registry.agents import make_agent
from triglot.runs.registry.environments import make_env
from triglot.runs.registry.presets.find import presets

OBS, ACTIONS = Discrete(2), Discrete(2)
BOX = Box((2,), "float32", -2.0, 0.5)
SIZES: dict[str, Any] = {"num_envs": 4, "rollout_length": 4, "num_epochs": 2, "num_minibatches": 4}


def tables(hyper: PPOHyperparams, **config: Any) -> PPO:
    network = build("table", PPO.networks(OBS, ACTIONS))
    return PPO(network, OBS, ACTIONS, PPOConfig(**{**SIZES, **config}), hyper)


def two_samples() -> tuple[Variables, Batch]:
    """V is 1 and 3 where it was 0 and 3, and the targets are 2 and 1."""
    params = {
        "actor": {"logits": jnp.zeros((2, 2))},
        "critic": {"value": jnp.array([[1.0], [3.0]])},
    }
    batch = Batch(
        obs=jnp.array([0, 1]),
        action_mask=None,
        action=jnp.array([0, 0]),
        log_prob=jnp.log(jnp.array([0.5, 0.5])),
        value=jnp.array([0.0, 3.0]),
        advantage=jnp.array([1.0, -2.0]),
        target=jnp.array([2.0, 1.0]),
    )
    return Variables(params=params, state={"actor": (), "critic": ()}), batch


@pytest.mark.parametrize(
    ("given", "value_loss"),
    [
        # The first value may move from 0 to 0.2: max(1, 1.8^2); the second did not move: 4.
        ({}, (3.24 + 4.0) / 4),
        # To 0.5: max(1, 1.5^2).
        ({"value_clip_range": 0.5}, (2.25 + 4.0) / 4),
        # To 1 and beyond, so that nothing is clipped.
        ({"value_clip_range": 1.5}, (1.0 + 4.0) / 4),
    ],
)
def test_the_values_have_a_clip_range_of_their_own(given: Any, value_loss: float) -> None:
    made = tables(PPOHyperparams(clip_epsilon=0.2, **given))
    variables, batch = two_samples()
    _, (metrics, _) = jax.jit(made.loss)(variables, batch, jax.random.key(0), made.hyper)
    np.testing.assert_allclose(metrics["value_loss"], value_loss, rtol=1e-6)


def rollout(made: PPO, state: Any) -> rl.Trajectory:
    """Act in random observations with random rewards."""
    keys = jax.random.split(jax.random.key(5), 4)
    obs = jax.random.randint(keys[0], (4, 4), 0, 2)
    no = jnp.zeros((4, 4), bool)

    def act(obs: jax.Array, key: jax.Array) -> rl.PolicyOutput:
        inputs = rl.PolicyInput(obs=obs, first=no[0])
        return made.act(state, (), inputs, key, explore=True)

    output = jax.vmap(act)(obs, jax.random.split(keys[1], 4))
    return rl.Trajectory(
        obs=obs,
        first=no,
        action_mask=None,
        action=output.action,
        reward=jax.random.normal(keys[2], (4, 4)),
        terminated=no,
        truncated=no,
        next_obs=obs,
        next_action_mask=None,
        extras=output.extras,
        carry=(),
    )


def updated(**hyper: Any) -> tuple[Any, rl.Metrics]:
    # A large rate, so that the second step is on another policy.
    numbers = {"learning_rate": 0.5}
    made = tables(PPOHyperparams(**{**numbers, **hyper}))
    state = jax.jit(made.init, static_argnums=1)(jax.random.key(0), 4)
    state, metrics = jax.jit(made.update)(state, rollout(made, state), jax.random.key(1))
    return state.learner.variables.params, metrics


@pytest.mark.slow
def test_steps_end_where_the_policy_moved_too_far() -> None:
    one, _ = updated(epochs=0.25)
    stopped, metrics = updated(target_kl=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), stopped, one)
    np.testing.assert_allclose(metrics["skipped_steps"], 7 / 8)
    # That of the only step: the policy had not moved.
    np.testing.assert_allclose(metrics["approx_kl"], 0.0, atol=1e-6)


@pytest.mark.slow
def test_a_distant_target_changes_nothing() -> None:
    every, _ = updated()
    far, metrics = updated(target_kl=1e9)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), far, every)
    assert float(metrics["skipped_steps"]) == 0.0


def test_it_counts_the_steps_of_the_given_epochs_only() -> None:
    _, metrics = updated(target_kl=1e-5, epochs=1.0)
    np.testing.assert_allclose(metrics["skipped_steps"], 3 / 4)


def test_clipped_actions_are_in_units_of_the_environment() -> None:
    raw = jnp.array([[-3.0, 0.25], [0.75, -1.0]])
    clipped = rl.to_action(BOX, raw, clipped=True)
    np.testing.assert_array_equal(clipped, [[-2.0, 0.25], [0.5, -1.0]])
    # The tanh scales them.
    np.testing.assert_allclose(
        rl.to_action(BOX, raw)[1, 0], -2 + (np.tanh(0.75) + 1) / 2 * 2.5, rtol=1e-5
    )


@pytest.mark.covering(5)
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "reinforce", "impala", "vmpo"])
def test_the_log_probability_is_that_of_the_unclipped_action(algorithm: str) -> None:
    env = make_env("probe:reach")
    config = {**SIZES, "bounds": "clip", "initial_std": 8.0}
    known = {one.name for one in fields(rl_config(algorithm))}
    config = {name: value for name, value in config.items() if name in known}
    agent: Any = make_agent(algorithm, env, backend="jax", config=config)
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 4)
    obs = jnp.zeros((4, *env.obs_spec.shape))  # pyright: ignore
    inputs = rl.PolicyInput(obs=obs, first=jnp.ones(4, bool))
    output = jax.jit(agent.act, static_argnames="explore")(
        state, (), inputs, jax.random.key(3), explore=True
    )
    raw, action = output.extras["raw"], output.action
    low, high = env.action_spec.bounds()  # pyright: ignore
    assert np.any(raw.reshape(action.shape) != action)  # with such a deviation some are clipped
    np.testing.assert_array_equal(action, np.clip(raw.reshape(action.shape), low, high))
    mean, std = output.extras["mean"], np.exp(output.extras["log_std"])
    density = np.exp(-0.5 * ((raw - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    actor = rl.policy(env.action_spec, output.extras)
    np.testing.assert_allclose(actor.log_prob(raw), np.log(density).sum(-1), rtol=1e-4)


def rl_config(algorithm: str) -> Any:
    from triglot.runs.registry.algorithms import find_algorithm

    return find_algorithm(algorithm).Config


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["haiku", "linen", "nnx", "equinox", "jax", "keras", *TORCH])
def test_a_state_dependent_deviation_begins_at_the_initial_one(backend: str) -> None:
    config = A2C.Config(state_dependent_std=True, initial_std=0.25, hidden_sizes=(8,))
    network = build(backend, A2C.networks(Box((3,)), BOX, config), arithmetic="canonical")
    variables, obs = network.init(jax.random.key(0)), jax.random.normal(jax.random.key(1), (5, 3))
    log_std = network.apply(variables, obs)[0]["actor"]["log_std"]
    assert log_std.shape == (5, 2)
    np.testing.assert_allclose(log_std, np.log(0.25), atol=0.1)
    assert np.unique(log_std[:, 0]).size == 5  # it depends on the observation


def test_names_of_bounds() -> None:
    with pytest.raises(TriglotError, match=r"bounds .*of PPO"):
        PPOConfig(bounds="clipped")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target_kl": 0.0}, "target_kl must be above 0"),
        ({"target_kl": float("nan")}, "target_kl"),
        ({"value_clip_range": -0.1}, "value_clip_range must be at least 0"),
    ],
)
def test_numbers_out_of_range(given: Any, words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        tables(PPOHyperparams(**given))


def numbers_of(agent: Any) -> tuple[Any, ...]:
    config, hyper = agent.config, agent.hyper
    sizes = config.num_envs, config.rollout_length, config.num_epochs, config.num_minibatches
    return (*sizes, str(hyper.learning_rate), hyper.entropy_coef)


DISCRETE = (4, 128, 4, 4, "linear(0.00025, 0)", 0.01)
CONTINUOUS = (1, 2048, 10, 32, "linear(0.0003, 0)", 0.0)


@pytest.mark.covering(5)
@pytest.mark.parametrize(
    ("env", "config", "expected"),
    [
        ("probe:two-step", {}, DISCRETE),
        ("probe:two-dials", {}, DISCRETE),  # several integers
        ("probe:reach", {}, CONTINUOUS),
        ("probe:reach", {"cell": "lstm"}, DISCRETE),
        ("probe:reach", {"num_envs": 4, "num_minibatches": 4}, (4, 2048, 10, 4, *CONTINUOUS[-2:])),
    ],
)
def test_defaults_of_ppo_depend_on_the_actions(env: str, config: Any, expected: Any) -> None:
    made = make_env(env)
    for given in (config, PPOConfig(**config)):
        agent = make_agent("ppo", made, backend="jax", config=given)
        assert numbers_of(agent) == expected
    state = agent.init(jax.random.key(0), agent.num_envs, PPOHyperparams(gae_lambda=0.5))
    np.testing.assert_allclose(state.hyper.learning_rate, rl.schedule(expected[-2]).values[0])
    np.testing.assert_allclose(state.hyper.entropy_coef, expected[-1])


def test_presets_of_continuous_actions_name_all_that_depends_on_them() -> None:
    """Their returns were measured with these values, whatever the defaults become."""
    names = [
        one.name
        for owner in (PPO.Config, PPO.Hyperparams)
        for one in fields(owner)
        if "by_environment" in one.metadata
    ]
    continuous = ("brax:", "playground:", "gymnax:Pendulum", "gymnasium:H", "gymnasium:W")
    found = [one for one in presets() if one.algorithm == "ppo" and one.env.startswith(continuous)]
    assert len(found) >= 10
    for one in found:
        assert set(names) <= one.options.keys(), one.name


def test_replacing_numbers_keeps_what_depends_on_the_actions() -> None:
    hyper = replace(PPOHyperparams(), gae_lambda=0.9)
    assert str(tables(hyper).hyper.learning_rate) == "linear(0.00025, 0)"
