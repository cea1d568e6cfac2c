"""IQN's loss against numbers worked out by hand, and its network against equation 4 in NumPy."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.iqn import IQN, IQNConfig, IQNHyperparams
from triglot.backends import build
from triglot.core.agent import PolicyInput
from triglot.core.errors import TriglotError
from triglot.core.families.action_values import ReplayedBatch
from triglot.core.network import Variables
from triglot.core.rl.distributional import tau_midpoints
from triglot.core.rl.replay import Sample
from triglot.core.specs import Box, Discrete

OBS, ACTIONS = Box((3,)), Discrete(2)
DEFAULT = IQNHyperparams()
# The quantile function of a state and an action is slope * tau.
ONLINE = [[4.0, 8.0], [6.0, 0.0], [0.0, 0.0]]
TARGET = [[0.0, 0.0], [4.0, 8.0], [7.0, 7.0]]


@dataclass(frozen=True)
class Linear(IQN):
    """An agent whose quantiles are linear, at fixed tau."""

    def _quantiles(
        self,
        variables: Variables,
        obs: Any,
        tau: jax.Array,
        key: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, Any]:
        return variables.params[obs][:, None] * tau[..., None], variables.state

    def _draw_tau(self, key: jax.Array, size: int, count: int, high: Any = 1.0) -> jax.Array:
        return high * tau_midpoints(size, count)


def config(**options: Any) -> IQNConfig:
    small = {"num_tau": 2, "num_target_tau": 2, "num_policy_tau": 4, "num_cosines": 5}
    sizes = {"batch_size": 2, "learning_starts": 64, "hidden_sizes": (4, 3)}
    return IQNConfig(**{**small, **sizes, **options})


def agent(kind: type[IQN] = Linear, **options: Any) -> IQN:
    given = config(**options)
    network = build("linen", IQN.networks(OBS, ACTIONS, given), arithmetic="canonical")
    return kind(network, OBS, ACTIONS, given)


def sample(**fields: Any) -> Sample:
    values = {
        "obs": jnp.array([0, 0]),
        "action": jnp.array([0, 1]),
        "reward": jnp.array([1.0, 2.0]),
        "discount": jnp.array([0.5, 0.0]),  # the second one terminated
        "next_obs": jnp.array([1, 2]),
        "next_action_mask": None,
        "slot": jnp.array([0, 1]),
        "probability": jnp.array([0.5, 0.5]),
    }
    return Sample(**values | fields)


def loss(
    given: Sample, hyper: IQNHyperparams = DEFAULT, **options: Any
) -> tuple[float, dict[str, jax.Array]]:
    batch = ReplayedBatch(
        sample=given,
        target=Variables(params=jnp.array(TARGET), state=()),
        weight=jnp.ones(2),
        hyper=hyper,
    )
    online = Variables(params=jnp.array(ONLINE), state=())
    value, (metrics, _) = jax.jit(agent(**options).loss)(online, batch, jax.random.key(0))
    return float(value), metrics


# At tau 0.25 and 0.75 the first sample's quantiles are 1 and 3. In state 1 the target network's
# means are 2 and 4: the second action counts, with the targets 1 + 0.5 * (2, 6) = 2 and 4. The
# errors of 1 are 1 and 3, with the Huber losses 0.5 and 2.5, weighted by 0.25; those of 3 are -1
# and 1, with 0.5 and 0.5, weighted by 0.25 and 0.75.
BOOTSTRAPPED = 0.25 * (0.5 + 2.5) / 2 + (0.25 * 0.5 + 0.75 * 0.5) / 2
# The target is 2. The second sample's quantiles are 2 and 6: the errors are 0 and -4, with the
# Huber loss 3.5, weighted by 1 - 0.75.
ENDED = 0.25 * 3.5


def test_the_huber_losses_at_the_samples_of_tau() -> None:
    value, metrics = loss(sample())
    np.testing.assert_allclose(value, (BOOTSTRAPPED + ENDED) / 2, rtol=1e-6)
    # 3 - 2, and 2 - 4: the means.
    np.testing.assert_allclose(metrics["td_errors"], [1.0, -2.0], atol=1e-6)


def test_the_loss_is_divided_by_the_threshold() -> None:
    value, _ = loss(sample(), IQNHyperparams(huber_threshold=2.0))
    # Errors 1 and 3: 0.5 and 2 * (3 - 1) = 4; -1 and 1: 0.5 each; -4: 2 * (4 - 1) = 6.
    first = 0.25 * (0.5 + 4.0) / 2 + (0.25 * 0.5 + 0.75 * 0.5) / 2
    np.testing.assert_allclose(value, (first + 0.25 * 6.0) / 2 / 2.0, rtol=1e-6)


def test_double_evaluates_the_online_network_s_choice() -> None:
    _, metrics = loss(sample(), double=True)
    np.testing.assert_allclose(metrics["td_errors"][0], 1.0 + 0.5 * 2.0 - 2.0, atol=1e-6)


@pytest.mark.parametrize("double", [False, True])
def test_forbidden_actions_are_not_bootstrapped_on(double: bool) -> None:
    only = [False, True] if double else [True, False]
    given = sample(next_action_mask=jnp.array([only, [False, False]]))
    _, metrics = loss(given, double=double)
    mean = 4.0 if double else 2.0
    np.testing.assert_allclose(metrics["td_errors"], [1.0 + 0.5 * mean - 2.0, -2.0], atol=1e-6)


@pytest.mark.parametrize(("cvar", "expected"), [(1.0, 4.0), (0.25, 1.0)])
def test_the_values_are_those_of_the_worst_returns(cvar: float, expected: float) -> None:
    online, hyper = Variables(params=jnp.array(ONLINE), state=()), IQNHyperparams(cvar=cvar)
    rows = agent().q_values(online, jnp.array([0]), hyper)
    np.testing.assert_allclose(rows, [[expected / 2, expected]])


@pytest.mark.covering(2)
@pytest.mark.parametrize("dueling", [False, True])
def test_the_network_is_equation_4(dueling: bool) -> None:
    made = agent(IQN, dueling=dueling)
    variables = jax.jit(made.network.init)(jax.random.key(0))
    obs, tau = jax.random.normal(jax.random.key(1), (6, 3)), jnp.linspace(0, 1, 24).reshape(6, 4)
    found, _ = jax.jit(made._quantiles)(variables, obs, tau)
    fractions = np.asarray(tau)
    params: Any = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables.params)

    def dense(part: str, layer: str, x: np.ndarray) -> np.ndarray:
        own = params[part]
        return x @ own[f"{layer}/kernel"] + own[f"{layer}/bias"]

    def relu(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0.0)

    hidden = relu(dense("obs_features", "torso/0", np.asarray(obs, np.float64)))
    psi = relu(dense("obs_features", "head/obs/features", hidden))
    for b in range(6):
        for k in range(4):
            cosines = np.cos(np.pi * np.arange(5) * fractions[b, k])
            phi = relu(dense("tau_features", "head/tau/features", cosines))
            if dueling:
                advantage = dense("quantiles", "head/quantiles/advantage", psi[b] * phi)
                value = dense("quantiles", "head/quantiles/value", psi[b] * phi)
                expected = value + advantage - advantage.mean()
            else:
                expected = dense("quantiles", "head/quantiles", psi[b] * phi)
            np.testing.assert_allclose(found[b, k], expected, rtol=1e-4, atol=1e-5)


def test_tau_is_drawn_anew_and_below_cvar() -> None:
    made = agent(IQN)
    one, other = (made._draw_tau(jax.random.key(seed), 100, 8, 0.25) for seed in (0, 1))
    assert not jnp.array_equal(one, other)
    assert 0.0 <= one.min() < 0.01 and 0.24 < one.max() <= 0.25


def test_every_draw_of_tau_has_its_own_key() -> None:
    drawn: list[jax.Array] = []

    @dataclass(frozen=True)
    class Recording(Linear):
        def _draw_tau(self, key: jax.Array, size: int, count: int, high: Any = 1.0) -> jax.Array:
            drawn.append(jax.random.key_data(key))
            return super()._draw_tau(key, size, count, high)

    made = agent(Recording)
    target = Variables(params=jnp.array(TARGET), state=())
    batch = ReplayedBatch(
        sample=sample(), target=target, weight=jnp.ones(2), hyper=IQNHyperparams()
    )

    def used(key: jax.Array) -> jax.Array:
        made.loss(target, batch, key)
        return jnp.stack(drawn)

    rows = jax.jit(used)(jax.random.key(0))
    assert len(rows) == len(np.unique(rows, axis=0)) == 3


@pytest.mark.slow
def test_greedy_actions_do_not_depend_on_the_key() -> None:
    made = agent(IQN)
    state = jax.jit(made.init, static_argnums=1)(jax.random.key(0), 64)
    obs = jax.random.normal(jax.random.key(1), (64, 3))
    inputs = PolicyInput(obs=obs, first=jnp.ones(64, bool))
    act = jax.jit(lambda key: made.act(state, (), inputs, key, explore=False).action)
    best = jnp.argmax(made.action_values(state, obs), axis=-1)
    np.testing.assert_array_equal(act(jax.random.key(2)), best)


@pytest.mark.slow
def test_masked_actions_are_not_chosen() -> None:
    made = agent(IQN)
    state = jax.jit(made.init, static_argnums=1)(jax.random.key(0), 4)
    mask = jnp.array([[True, False], [False, True], [True, False], [False, True]])
    inputs = PolicyInput(obs=jnp.ones((4, 3)), first=jnp.ones(4, bool), action_mask=mask)
    for explore in (False, True):
        act = jax.jit(made.act, static_argnames="explore")
        output = act(state, (), inputs, jax.random.key(1), explore=explore)
        np.testing.assert_array_equal(output.action, [0, 1, 0, 1])


def test_sizes_and_numbers_that_cannot_work_are_refused() -> None:
    with pytest.raises(TriglotError, match="IQN's num_tau must be at least 1"):
        config(num_tau=0)
    with pytest.raises(TriglotError, match="huber_threshold must be finite and above 0"):
        replace(agent(), hyper=IQNHyperparams(huber_threshold=0.0))


def test_continuous_actions_and_other_networks_are_refused() -> None:
    with pytest.raises(TriglotError, match="IQN supports discrete actions"):
        IQN.networks(OBS, Box((2,), low=-1.0, high=1.0))
    made = agent(IQN)
    with pytest.raises(TriglotError, match=r"IQN needs obs_features \[B, 9\]"):
        IQN(made.network, OBS, ACTIONS, config(hidden_sizes=(4, 9)))
    with pytest.raises(TriglotError, match="IQN needs separate networks"):
        IQN(made.network.parts["quantiles"], OBS, ACTIONS, config())
