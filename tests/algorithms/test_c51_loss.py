"""C51's loss against numbers worked out by hand, algorithm 1 in NumPy, and rlax."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from triglot.algorithms.c51 import C51, C51Config, C51Hyperparams
from triglot.backends import build
from triglot.core.errors import TriglotError
from triglot.core.families.action_values import ReplayedBatch
from triglot.core.network import Variables
from triglot.core.rl.distributional import categorical_target
from triglot.core.rl.replay import Sample
from triglot.core.specs import Box, Discrete

OBS, ACTIONS = Discrete(3), Discrete(2)
HYPER = C51Hyperparams(v_min=-1.0, v_max=1.0)  # atoms -1, 0, 1
EVEN = [1 / 3] * 3
# Probabilities of the atoms by observation and action.
ONLINE = [[EVEN, EVEN], [[0.1, 0.1, 0.8], EVEN], [EVEN, EVEN]]
TARGET = [[EVEN, EVEN], [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]], [EVEN, EVEN]]


def variables(probabilities: Any) -> Variables:
    logits = jnp.log(jnp.array(probabilities)).reshape(3, -1)
    return Variables(params={"q_network": {"logits": logits}}, state={"q_network": ()})


def agent(**options: Any) -> C51:
    config = C51Config(num_atoms=3, batch_size=2, learning_starts=64, **options)
    network = build("table", C51.networks(OBS, ACTIONS, config))
    return C51(network, OBS, ACTIONS, config, HYPER)


def sample(**fields: Any) -> Sample:
    values = {
        "obs": jnp.array([0, 0]),
        "action": jnp.array([0, 1]),
        "reward": jnp.array([0.5, 2.0]),
        "discount": jnp.array([0.5, 0.0]),  # the second one terminated
        "next_obs": jnp.array([1, 2]),
        "next_action_mask": None,
        "slot": jnp.array([0, 1]),
        "probability": jnp.array([0.5, 0.5]),
    }
    return Sample(**values | fields)


def run(
    given: Sample, weight: tuple[float, float] = (1.0, 1.0), **options: Any
) -> tuple[float, dict[str, jax.Array]]:
    loss = jax.jit(agent(**options).loss)
    value, (metrics, _) = loss(variables(ONLINE), batch(given, weight), jax.random.key(0))
    return float(value), metrics


def batch(given: Sample, weight: tuple[float, float] = (1.0, 1.0)) -> ReplayedBatch:
    target = variables(TARGET)
    return ReplayedBatch(sample=given, target=target, weight=jnp.array(weight), hyper=HYPER)


def divergence(target: list[float]) -> float:
    """Compute KL(target || 1/3, 1/3, 1/3)."""
    return sum(p * np.log(3.0 * p) for p in target if p > 0.0)


# The atoms of the target are 0.5 + 0.5 * (-1, 0, 1) = 0, 0.5 and 1; the one at 0.5 is shared by the
# atoms 0 and 1. In state 1 the target network's means are -0.25 and 0.25: the second action counts,
# 0.25, 0.25 and 0.5. After the end the return 2 is beyond the last atom, which gets everything.
BEST, OTHER, ENDED = [0.0, 0.375, 0.625], [0.0, 0.625, 0.375], [0.0, 0.0, 1.0]


def test_the_divergence_from_the_projected_target() -> None:
    loss, metrics = run(sample())
    np.testing.assert_allclose(divergence(BEST), 0.437049, atol=1e-6)
    np.testing.assert_allclose(metrics["td_errors"], [0.437049, np.log(3.0)], rtol=1e-5)
    np.testing.assert_allclose(loss, (0.437049 + np.log(3.0)) / 2, rtol=1e-5)
    np.testing.assert_allclose(metrics["q"], 0.0, atol=1e-6)


def test_double_evaluates_the_online_network_s_choice() -> None:
    # In state 1 the online network's means are 0.7 and 0.
    _, (metrics, _) = jax.jit(agent(double=True).loss)(
        variables(ONLINE), batch(sample()), jax.random.key(0)
    )
    np.testing.assert_allclose(metrics["td_errors"][0], divergence(OTHER), rtol=1e-5)


@pytest.mark.parametrize("double", [False, True])
def test_forbidden_actions_are_not_bootstrapped_on(double: bool) -> None:
    only = [False, True] if double else [True, False]
    given = sample(next_action_mask=jnp.array([only, [False, False]]))
    _, metrics = run(given, double=double)
    expected = [divergence(BEST if double else OTHER), divergence(ENDED)]
    np.testing.assert_allclose(metrics["td_errors"], expected, rtol=1e-5)


def test_weights_multiply_the_divergences() -> None:
    loss, _ = run(sample(), (0.5, 1.0))
    np.testing.assert_allclose(loss, (0.5 * 0.437049 + np.log(3.0)) / 2, rtol=1e-5)


def test_the_gradient_is_the_difference_of_the_probabilities() -> None:
    def value(params: Any) -> jax.Array:
        now = Variables(params=params, state={"q_network": ()})
        return agent(double=True).loss(now, batch(sample()), jax.random.key(0))[0]

    gradient = jax.jit(jax.grad(value))(variables(ONLINE).params)["q_network"]["logits"]
    expected = np.zeros((3, 2, 3))
    expected[0] = (np.array(EVEN) - np.array([OTHER, ENDED])) / 2
    np.testing.assert_allclose(gradient, expected.reshape(3, 6), atol=1e-6)


def projected(reward: float, discount: float, p: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Project as algorithm 1 does, atom by atom."""
    step, target = z[1] - z[0], np.zeros(len(z))
    for j in range(len(z)):
        place = (np.clip(reward + discount * z[j], z[0], z[-1]) - z[0]) / step
        lower, upper = int(np.floor(place)), int(np.ceil(place))
        if lower == upper:
            target[lower] += p[j]
        else:
            target[lower] += p[j] * (upper - place)
            target[upper] += p[j] * (place - lower)
    return target


def random_data() -> tuple[jax.Array, Sample, jax.Array, jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(0), 6)
    logits, next_logits = (jax.random.normal(k, (16, 4, 11)) for k in keys[:2])
    given = sample(
        action=jax.random.randint(keys[2], (16,), 0, 4),
        reward=2.0 * jax.random.normal(keys[3], (16,)),
        discount=jax.random.uniform(keys[4], (16,)),
    )
    return logits, given, next_logits, jax.random.normal(keys[5], (16, 4)), jnp.linspace(-3, 2, 11)


def test_against_algorithm_1() -> None:
    _, given, next_logits, next_q, atoms = random_data()
    found = jax.jit(categorical_target)(given, next_logits, next_q, atoms)
    p, support = (np.asarray(one, np.float64) for one in (jax.nn.softmax(next_logits), atoms))
    best, given = np.argmax(next_q, axis=1), jax.tree.map(np.asarray, given)
    for b in range(16):
        expected = projected(given.reward[b], given.discount[b], p[b, best[b]], support)
        np.testing.assert_allclose(found[b], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_gradient_is_that_of_rlax_s_cross_entropy() -> None:
    logits, given, next_logits, next_q, atoms = random_data()
    learn = jax.vmap(rlax.categorical_double_q_learning, in_axes=(None, *(0,) * 4, None, 0, 0))

    def theirs(logits: jax.Array) -> Any:
        data = given.action, given.reward, given.discount
        return jnp.sum(learn(atoms, logits, *data, atoms, next_logits, next_q))

    target = categorical_target(given, next_logits, next_q, atoms)
    expected = np.zeros((16, 4, 11))
    expected[np.arange(16), given.action] = jax.nn.softmax(logits)[np.arange(16), given.action]
    expected[np.arange(16), given.action] -= target
    np.testing.assert_allclose(jax.jit(jax.grad(theirs))(logits), expected, atol=1e-6)


def test_dueling_sums_by_atom() -> None:
    config = C51Config(num_atoms=3, dueling=True, hidden_sizes=(4,))
    spec = C51.networks(Box((2,)), ACTIONS, config)["q_network"]
    assert [name for name, _ in spec.flat().heads] == ["logits_advantage", "logits_value"]
    advantage = jnp.arange(6.0)[None]  # rows 0, 1, 2 and 3, 4, 5, whose mean is 1.5, 2.5, 3.5
    outputs = {"logits_advantage": advantage, "logits_value": jnp.array([[10.0, 20.0, 30.0]])}
    expected = [[[8.5, 18.5, 28.5], [11.5, 21.5, 31.5]]]
    np.testing.assert_allclose(spec.arranged(outputs)["logits"], expected)


def test_the_values_are_the_means() -> None:
    rows = agent().q_values(variables(TARGET), jnp.array([1]), HYPER)
    np.testing.assert_allclose(rows, [[-0.25, 0.25]], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"v_min": 1.0, "v_max": 1.0}, "C51's v_min must be below v_max, got 1.0 and 1.0"),
        ({"v_max": float("inf")}, "C51's v_max must be finite"),
    ],
)
def test_a_range_without_atoms_is_refused(options: dict[str, float], words: str) -> None:
    made = agent()
    with pytest.raises(TriglotError, match=words):
        C51(made.network, OBS, ACTIONS, made.config, C51Hyperparams(**options))


def test_one_atom_is_refused() -> None:
    with pytest.raises(TriglotError, match="C51's num_atoms must be at least 2, got 1"):
        C51Config(num_atoms=1)


def test_continuous_actions_and_other_heads_are_refused() -> None:
    with pytest.raises(TriglotError, match="C51 supports discrete actions"):
        C51.networks(OBS, Box((2,), low=-1.0, high=1.0))
    made = agent()
    with pytest.raises(TriglotError, match=r"C51 needs logits \[B, 2, 51\]; .* \[B, 2, 3\]"):
        C51(made.network, OBS, ACTIONS)
