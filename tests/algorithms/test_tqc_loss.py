"""TQC's losses worked out by hand and in NumPy, and what it refuses."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.toy_actor_critics import (
    ACTIONS,
    OBS,
    SAMPLE,
    batch,
    gaussian_actor,
    variables,
)
from triglot.algorithms.tqc import TQC, TQCConfig, TQCHyperparams
from triglot.core.errors import TriglotError
from triglot.core.network import Network, Variables
from triglot.core.networks.combinators import combine, ensemble, scalar
from triglot.core.rl.distributional import ensemble_quantile_losses, lowest_quantiles
from triglot.core.specs import Discrete

KEY, TEMPERATURE = jax.random.key(3), 0.5
WEIGHTS, TARGETS = (1.0, -0.5), (0.5, 0.25)
TAU = np.array([1 / 6, 3 / 6, 5 / 6])


def quantile_critic() -> Network:
    """Three quantiles `w * (obs + 2 * action) + (0, 1, 3)`."""

    def apply(variables: Variables, inputs: Any, **_: Any) -> tuple[Any, Any]:
        mean = variables.params * (inputs[0] + 2.0 * inputs[1])
        return {"quantiles": mean + jnp.array([[0.0, 1.0, 3.0]])}, ()

    return Network(
        name="critic",
        backend="core",
        init=lambda key: Variables(params=jax.random.normal(key), state=()),
        apply=apply,
    )


def agent(kappa: float = 1.0, num_critics: int = 2, **config: Any) -> TQC:
    critic = quantile_critic()
    parts = {
        "actor": gaussian_actor(0.3, -0.5),
        "critic": ensemble(critic, num_critics) if num_critics > 1 else critic,
        "temperature": scalar(float(np.log(TEMPERATURE)), "log"),
    }
    given: dict[str, Any] = {"num_quantiles": 3, "num_dropped_quantiles": 1}
    given["num_critics"] = num_critics
    hyper = TQCHyperparams(huber_threshold=kappa)
    return TQC(combine(parts), OBS, ACTIONS, TQCConfig(**given | config), hyper)


def drawn(mean: np.ndarray, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Draw as the policy does, and give tanh(raw) with its log-density, by the textbook."""
    std = np.exp(-0.5)
    noise = np.asarray(jax.random.normal(key, mean.shape))
    action = np.tanh(mean + std * noise)
    gaussian = -0.5 * noise**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
    return action, (gaussian - np.log(1.0 - action**2))[:, 0]


def reference(theta: np.ndarray, target: np.ndarray, kappa: float) -> np.ndarray:
    """Compute the losses of one critic's quantiles `[M]` on targets `[K]`, equation by equation."""
    total = 0.0
    for tau, value in zip(TAU, theta, strict=True):
        for y in target:
            u = y - value
            huber = 0.5 * u**2 if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
            total += abs(tau - float(u < 0.0)) * huber / kappa
    return np.asarray(total / (len(theta) * len(target)))


def test_the_quantile_loss_by_hand() -> None:
    # One quantile 0, tau = 1/2, and the targets 0.5 and -2: (0.125 + 1.5) / 2, of which a half.
    losses = ensemble_quantile_losses(jnp.zeros((1, 1, 1)), jnp.array([[0.5, -2.0]]), 1.0)
    np.testing.assert_allclose(losses, [[0.5 * (0.125 + 1.5) / 2]])
    # At the threshold 4 both are squares: (0.125 + 2) / 2 / 4.
    losses = ensemble_quantile_losses(jnp.zeros((1, 1, 1)), jnp.array([[0.5, -2.0]]), 4.0)
    np.testing.assert_allclose(losses, [[0.5 * (0.125 + 2.0) / 2 / 4]])


def test_the_highest_of_all_quantiles_are_dropped() -> None:
    # Two critics of three quantiles; one is dropped for each, the two highest of all six.
    quantiles = jnp.array([[[5.0, 0.0, 9.0]], [[1.0, 2.0, 3.0]]])
    np.testing.assert_array_equal(lowest_quantiles(quantiles, 1), [[0.0, 1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(lowest_quantiles(quantiles, 0)[:, -1], [9.0])


@pytest.mark.covering(3)
@pytest.mark.parametrize("kappa", [1.0, 0.2, 5.0])
@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_the_critics_loss_is_the_papers(kappa: float, dropped: int) -> None:
    own = agent(kappa, num_dropped_quantiles=dropped)
    given = batch(own, WEIGHTS, TARGETS)
    value, (metrics, _) = jax.jit(own.critic_loss)(variables(given, "critic"), given, KEY)
    next_obs = np.array([[0.5], [4.0]])
    action, log_prob = drawn(0.3 * next_obs, jax.random.split(KEY)[0])
    seen, shift = (next_obs + 2.0 * action)[:, 0], np.array([0.0, 1.0, 3.0])
    now, total, means = np.array([2.0, -2.5]), 0.0, []
    for row in range(2):
        pooled = np.sort(np.concatenate([w * seen[row] + shift for w in TARGETS]))
        kept = pooled[: 2 * (3 - dropped)]
        reward, discount = ((1.0, 0.9), (3.0, 0.0))[row]
        target = reward + discount * (kept - TEMPERATURE * log_prob[row])
        assert row == 0 or set(target) == {3.0}  # a terminal transition is worth its reward
        for w in WEIGHTS:
            theta = w * now[row] + shift
            means.append(theta.mean())
            total += reference(theta, target, kappa) / 2
    np.testing.assert_allclose(value, total, rtol=1e-5)
    np.testing.assert_allclose(metrics["q"], np.mean(means), rtol=1e-5)


def test_the_gradient_is_that_of_the_quantiles_alone() -> None:
    """Targets have no gradient: a loss of the target network's parameters stays constant."""
    own = agent()

    def loss(target: jax.Array) -> jax.Array:
        given = batch(own, WEIGHTS, target)
        return own.critic_loss(variables(given, "critic"), given, KEY)[0]

    grads = jax.jit(jax.grad(loss))(jnp.array(TARGETS))
    np.testing.assert_array_equal(grads, [0.0, 0.0])


def test_the_actors_loss_averages_all_quantiles() -> None:
    own = agent()
    given = batch(own, WEIGHTS, TARGETS)
    value, (metrics, _) = jax.jit(own.actor_loss)(variables(given, "actor"), given, KEY)
    obs = np.array([[1.0], [-2.0]])
    action, log_prob = drawn(0.3 * obs, jax.random.split(KEY)[0])
    seen = (obs + 2.0 * action)[:, 0]
    mean = np.mean([w * seen + 4.0 / 3.0 for w in WEIGHTS], axis=0)
    np.testing.assert_allclose(value, np.mean(TEMPERATURE * log_prob - mean), rtol=1e-5)
    np.testing.assert_allclose(metrics["entropy"], -np.mean(log_prob), rtol=1e-5)


def test_one_critic_is_enough() -> None:
    own = agent(num_critics=1)
    given = batch(own, 1.0, 0.5)
    value, _ = jax.jit(own.critic_loss)(variables(given, "critic"), given, KEY)
    assert np.isfinite(value)


def test_the_errors_of_the_means_are_the_priorities() -> None:
    own = agent(prioritized=True, num_dropped_quantiles=0)
    given = replace(batch(own, WEIGHTS, TARGETS), weight=jnp.array([0.5, 1.0]))
    last = replace(SAMPLE, discount=jnp.zeros(2))
    given = replace(given, sample=last)
    value, (metrics, _) = jax.jit(own.critic_loss)(variables(given, "critic"), given, KEY)
    # The rewards 1 and 3 are the targets; the means are w * (2, -2.5) + 4 / 3.
    means = np.array([[2.0, -2.5], [-1.0, 1.25]]) + 4.0 / 3.0
    errors = np.abs(np.array([1.0, 3.0]) - means).mean(axis=0)
    np.testing.assert_allclose(metrics["td_errors"], errors, rtol=1e-5)
    shift, total = np.array([0.0, 1.0, 3.0]), 0.0
    for row, (reward, weight) in enumerate(((1.0, 0.5), (3.0, 1.0))):
        for critic in range(2):
            theta = means[critic, row] - 4.0 / 3.0 + shift
            total += weight * reference(theta, np.array([reward]), 1.0) / 2
    np.testing.assert_allclose(value, total, rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_dropped_quantiles": 3}, "num_dropped_quantiles must be below num_quantiles = 3"),
        ({"num_dropped_quantiles": -1}, "num_dropped_quantiles must be at least 0"),
        ({"num_critics": 0}, "num_critics must be at least 1"),
    ],
)
def test_bad_numbers_are_refused(given: Any, words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        TQCConfig(**{"num_quantiles": 3, **given})


def test_discrete_actions_are_refused() -> None:
    with pytest.raises(TriglotError, match="TQC needs a bounded Box of float actions"):
        TQC.networks(OBS, Discrete(2))
