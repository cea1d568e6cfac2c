"""SAC and continuous PPO: what they refuse, and how they act."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot import make_agent, make_env
from triglot.algorithms.sac import SAC, SACConfig
from triglot.core.agent import PolicyInput
from triglot.core.errors import TriglotError
from triglot.core.specs import Box, Discrete
from triglot.envs import probes

REACH = probes.make("reach")
SMALL = {"hidden_sizes": (8,), "batch_size": 8, "learning_starts": 16, "buffer_size": 64}


@pytest.fixture(scope="module")
def agent() -> SAC:
    return make_agent("sac", REACH, config=SMALL)  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        (
            {"batch_size": 512, "buffer_size": 100},
            "so that the replay holds a batch .* got 512, 1,000 and 100",
        ),
        (
            {"learning_starts": 300_000},
            "learning_starts <= buffer_size.* got 256, 300,000 and 200,000",
        ),
        ({"initial_temperature": 0.0}, "initial_temperature must be finite and above 0, got 0"),
    ],
)
def test_counts_that_cannot_be_served(config: dict[str, Any], words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        SACConfig(**config)


@pytest.mark.parametrize(
    ("algorithm", "env", "hyper", "words"),
    [
        ("dqn", "probe:reach", {}, "discrete actions"),
        ("q_learning", "probe:reach", {}, "Discrete observations"),
        ("sac", "probe:reach", {"tau": 2.0}, r"tau must be within \[0, 1\], got 2.0"),
    ],
)
def test_what_does_not_fit_is_refused(
    algorithm: str, env: str, hyper: dict[str, float], words: str
) -> None:
    with pytest.raises(TriglotError, match=words):
        made = make_env(env)
        make_agent(algorithm, made, hyper=hyper)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Box((2,)), "needs bounded actions"),
        (Box((2,), "int32", 0, 3), "boxes of floats"),
    ],
)
def test_ppo_refuses_actions_it_has_no_policy_for(spec: Box, words: str) -> None:
    from triglot.algorithms.ppo import PPO

    with pytest.raises(TriglotError, match=words):
        PPO.networks(REACH.obs_spec, spec)


@pytest.mark.parametrize("spec", [Box((2,)), Box((2,), "int32", 0, 3)])
def test_sac_refuses_actions_it_has_no_policy_for(spec: Box) -> None:
    with pytest.raises(TriglotError, match=r"SAC needs a bounded Box of float actions"):
        SAC.networks(REACH.obs_spec, spec)


def test_one_network_for_both_parts_is_refused(agent: SAC) -> None:
    with pytest.raises(TriglotError, match="give each by name"):
        SAC(agent.network.parts["actor"], REACH.obs_spec, REACH.action_spec)


def test_a_critic_of_another_shape_is_told(agent: SAC) -> None:
    actor = agent.network.parts["actor"]
    with pytest.raises(TriglotError, match=r"SAC needs q \[B\]; the"):
        make_agent("sac", REACH, networks={"actor": actor, "critic": actor}, config=SMALL)


def test_your_own_critic_is_made_twice(agent: SAC) -> None:
    import flax.linen as nn

    from triglot import from_linen

    class Critic(nn.Module):
        @nn.compact
        def __call__(self, obs: jax.Array, action: jax.Array) -> dict[str, jax.Array]:
            both = jnp.concatenate([obs, action], axis=-1)
            return {"q": nn.Dense(1)(both)[:, 0]}

    own = {
        "actor": agent.network.parts["actor"],
        "critic": from_linen(Critic(), (REACH.obs_spec, REACH.action_spec)),
    }
    made = make_agent("sac", REACH, networks=own, config=SMALL)
    state = jax.jit(made.init, static_argnums=1)(jax.random.key(0), made.num_envs)
    kernel = state.target.params["Dense_0"]["kernel"]
    assert kernel.shape == (2, 2, 1)
    assert (kernel[0] != kernel[1]).any()


def test_actions_are_random_until_learning_starts_and_always_in_bounds(agent: SAC) -> None:
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 500)
    inputs = PolicyInput(obs=jnp.ones((500, 1)), first=jnp.ones(500, bool))
    output = jax.jit(agent.act, static_argnames="explore")(
        state, (), inputs, jax.random.key(1), explore=True
    )
    action = np.asarray(output.action)
    assert action.min() >= 0.0 and action.max() <= 4.0
    # Uniform over [0, 4]: the mean's standard error is 0.05.
    assert abs(action.mean() - 2.0) < 0.25 and action.std() == pytest.approx(1.155, abs=0.1)
    greedy = jax.jit(agent.act, static_argnames="explore")(
        state, (), inputs, jax.random.key(2), explore=False
    )
    assert len(np.unique(greedy.action)) == 1


def test_ppo_normalizes_what_it_sees_where_actions_are_continuous() -> None:
    config = {"num_envs": 4, "rollout_length": 8, "hidden_sizes": (8,)}
    plain = {"normalize_obs": False, "scale_rewards": False}
    by_default = make_agent("ppo", REACH, config=config).init(jax.random.key(0), 4)
    assert (
        by_default.normalizer.obs_stats is not None
        and by_default.normalizer.reward_scale is not None
    )
    without = make_agent("ppo", REACH, config={**config, **plain}).init(jax.random.key(0), 4)
    assert without.normalizer.obs_stats is None and without.normalizer.reward_scale is None
    discrete = probes.make("two-step")
    assert (
        make_agent("ppo", discrete, config=config).init(jax.random.key(0), 4).normalizer.obs_stats
        is None
    )
    assert isinstance(discrete.action_spec, Discrete)
    with pytest.raises(TriglotError, match="normalize_obs needs one float array"):
        make_agent("ppo", make_env("gridworld:4x4"), config={"normalize_obs": True})
