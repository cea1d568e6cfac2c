"""Rainbow: its loss by hand and against C51's, its noise, its exponent and what it refuses."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.test_c51_loss import (
    ACTIONS,
    BEST,
    ENDED,
    ONLINE,
    OTHER,
    TARGET,
    divergence,
    sample,
    variables,
)
from tests.algorithms.test_c51_loss import OBS as STATES
from triglot.algorithms.c51 import C51, C51Config
from triglot.algorithms.rainbow import Rainbow, RainbowConfig, RainbowHyperparams
from triglot.backends import build
from triglot.core.agent import PolicyInput
from triglot.core.errors import TriglotError
from triglot.core.families.action_values import ReplayedBatch
from triglot.core.network import Variables
from triglot.core.specs import Box, Discrete

OBS = Box((3,))
HYPER = RainbowHyperparams(v_min=-1.0, v_max=1.0)
SIZES: dict[str, Any] = {"num_atoms": 3, "batch_size": 2, "learning_starts": 64}


def tabular(**options: Any) -> Rainbow:
    """Make an agent whose network is a table without noise, as that of C51's tests."""
    config = RainbowConfig(**SIZES, **options)
    network = build("table", C51.networks(STATES, ACTIONS, C51Config(num_atoms=3)))
    return Rainbow(network, STATES, ACTIONS, config, HYPER)


def noisy(kind: type[Rainbow] = Rainbow, num_envs: int = 10) -> Rainbow:
    config = RainbowConfig(**SIZES, num_envs=num_envs, hidden_sizes=(4,))
    return kind(build("linen", Rainbow.networks(OBS, ACTIONS, config)), OBS, ACTIONS, config, HYPER)


@pytest.mark.parametrize("double", [False, True])
def test_the_divergence_from_the_projected_target(double: bool) -> None:
    """Take the numbers of C51's tests, where the online network prefers the other action."""
    weight = jnp.array([0.5, 1.0])
    batch = ReplayedBatch(sample=sample(), target=variables(TARGET), weight=weight, hyper=HYPER)
    loss = jax.jit(tabular(double=double).loss)
    value, (metrics, _) = loss(variables(ONLINE), batch, jax.random.key(0))
    errors = [divergence(OTHER if double else BEST), divergence(ENDED)]
    np.testing.assert_allclose(metrics["td_errors"], errors, rtol=1e-5)
    np.testing.assert_allclose(value, (0.5 * errors[0] + errors[1]) / 2, rtol=1e-5)


def test_every_application_has_its_own_noise() -> None:
    keys: list[jax.Array] = []

    @dataclass(frozen=True)
    class Recording(Rainbow):
        def _logits(
            self,
            variables: Variables,
            obs: Any,
            key: jax.Array | None = None,
            train: bool = False,
        ) -> tuple[jax.Array, Any]:
            assert key is not None
            keys.append(jax.random.key_data(key))
            return super()._logits(variables, obs, key, train)

    made = noisy(Recording)
    given = sample(obs=jnp.ones((2, 3)), next_obs=jnp.ones((2, 3)))
    start = jax.jit(made.network.init)(jax.random.key(0))
    batch = ReplayedBatch(sample=given, target=start, weight=jnp.ones(2), hyper=HYPER)

    def used(key: jax.Array) -> jax.Array:
        made.loss(start, batch, key)
        return jnp.stack(keys)

    rows = jax.jit(used)(jax.random.key(1))
    assert len(rows) == len(np.unique(rows, axis=0)) == 3


@pytest.mark.slow
def test_noise_explores_and_a_greedy_policy_has_none() -> None:
    made = noisy(num_envs=4)
    state = jax.jit(made.init, static_argnums=1)(jax.random.key(0), 4)
    obs = jax.random.normal(jax.random.key(1), (4, 3))
    inputs = PolicyInput(obs=obs, first=jnp.ones(4, bool))
    act = jax.jit(
        jax.vmap(
            lambda key, explore: made.act(state, (), inputs, key, explore=explore).action,
            in_axes=(0, None),
        ),
        static_argnums=1,
    )
    keys = jax.random.split(jax.random.key(2), 64)
    greedy, exploring = act(keys, False), act(keys, True)
    best = jnp.argmax(made.action_values(state, obs), axis=-1)
    np.testing.assert_array_equal(greedy, jnp.broadcast_to(best, (64, 4)))
    assert len(np.unique(exploring)) == 2


@pytest.mark.slow
def test_masked_actions_are_not_chosen() -> None:
    made = noisy(num_envs=4)
    state = jax.jit(made.init, static_argnums=1)(jax.random.key(0), 4)
    mask = jnp.array([[True, False], [False, True], [True, False], [False, True]])
    inputs = PolicyInput(obs=jnp.ones((4, 3)), first=jnp.ones(4, bool), action_mask=mask)
    for explore in (False, True):
        output = jax.jit(made.act, static_argnames="explore")(
            state, (), inputs, jax.random.key(1), explore=explore
        )
        np.testing.assert_array_equal(output.action, [0, 1, 0, 1])


def test_the_exponent_grows_over_environment_steps() -> None:
    hyper = replace(HYPER, importance_sampling_steps=40.0)
    made = replace(tabular(), hyper=hyper)
    state = jax.jit(made.init, static_argnums=1)(jax.random.key(0), 10)
    for num_steps, expected in [(0, 0.4), (20, 0.7), (40, 1.0), (4000, 1.0)]:
        replay = replace(state.replay, num_added=jnp.asarray(num_steps, jnp.int32))
        found = made.importance_sampling_exponent(replace(state, replay=replay))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_it_has_all_extensions_by_default() -> None:
    config = RainbowConfig()
    assert config.double and config.dueling and config.prioritized and config.n_step == 3
    (spec,) = Rainbow.networks(OBS, ACTIONS, config).values()
    assert spec.noise == 0.5 and dict(spec.heads)["logits"].shape == (2, 51)


def test_what_it_cannot_use_is_refused() -> None:
    with pytest.raises(TriglotError, match="Rainbow supports discrete actions"):
        Rainbow.networks(OBS, Box((2,), low=-1.0, high=1.0))
    with pytest.raises(TriglotError, match="noisy layers are dense ones"):
        build("linen", Rainbow.networks(Discrete(4), ACTIONS))
    made = tabular()
    with pytest.raises(TriglotError, match=r"Rainbow needs logits \[B, 2, 51\]"):
        Rainbow(made.network, STATES, ACTIONS)
    with pytest.raises(TriglotError, match="Rainbow's v_min must be below v_max"):
        replace(made, hyper=RainbowHyperparams(v_min=2.0, v_max=1.0))
