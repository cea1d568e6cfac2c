"""People's own networks train through the same unchanged PPO, and keep what must stand still."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.conformance import custom_networks as own
from triglot import from_equinox, from_haiku, from_linen, from_nnx, make_env
from triglot.algorithms.ppo import PPO, PPOConfig
from triglot.checks import check_network
from triglot.core.network import Network
from triglot.core.specs import Box
from triglot.runs.result import TrainResult
from triglot.runs.training import train

OBS = Box((4,))
CONFIG = PPOConfig(num_envs=4, rollout_length=16, num_epochs=2, num_minibatches=2)


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Network]
    num_params: int
    has_statistics: bool = False
    promotes: bool = True


def self_attention() -> Network:
    return from_equinox(own.Attentive)


NORMALISED = 2 * 4 + (4 * 32 + 32) + (32 * 2 + 2) + (32 + 1)
CASES = [
    Case(
        "Haiku attention",
        lambda: from_haiku(own.attentive, OBS),
        2 * 8 + 4 * (8 * 8 + 8) + (32 * 2 + 2) + (32 + 1),
    ),
    Case("Linen BatchNorm", lambda: from_linen(own.Normalised(), OBS), NORMALISED, True),
    Case(
        "NNX shared layer",
        lambda: from_nnx(own.Sharing),
        (4 * 16 + 16) + (16 * 16 + 16) + (16 * 2 + 2) + (16 + 1),
        promotes=False,
    ),
    Case(
        "Equinox SelfAttention",
        self_attention,
        2 * 8 + 3 * 8 * 8 + (32 * 2 + 2) + (32 + 1),
        promotes=False,
    ),
    Case("Haiku BatchNorm", lambda: from_haiku(own.normalised_haiku, OBS), NORMALISED, True),
    Case("NNX BatchNorm", lambda: from_nnx(own.NormalisedNNX), NORMALISED, True),
    Case("Equinox BatchNorm", lambda: from_equinox(own.NormalisedEquinox), NORMALISED, True),
]
QUICK = CASES[:4]  # the others only in the slow tests
PROMOTES = pytest.mark.library_promotion(
    "haiku's and flax's attention and normalisation mix dtypes and ranks"
)


def marks(case: Case) -> list[pytest.MarkDecorator]:
    return [*([] if case in QUICK else [pytest.mark.slow]), *([PROMOTES] if case.promotes else [])]


every_case = pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=marks(case)) for case in CASES]
)


@functools.cache
def trained(make: Callable[[], Network]) -> tuple[PPO, TrainResult]:
    """Train one seed for a few updates on CartPole, once for all tests."""
    env, network = make_env("gymnax:CartPole-v1"), make()
    agent = PPO(network, env.obs_spec, env.action_spec, CONFIG)
    return agent, train(agent, env, key=jax.random.key(0), total_steps=5 * 64)


@pytest.mark.slow
@every_case
def test_it_trains_through_ppo(case: Case) -> None:
    agent, result = trained(case.make)
    start = agent.network.init(jax.random.key(5))
    assert sum(leaf.size for leaf in jax.tree.leaves(start.params)) == case.num_params
    variables = result.runner_state.agent.learner.variables
    chex.assert_tree_all_finite(variables.params)
    begun = jax.lax.map(
        lambda k: agent.init(k, 4).learner.variables, jax.random.split(jax.random.key(0), 1)
    )
    for before, after in zip(
        jax.tree.leaves(begun.params), jax.tree.leaves(variables.params), strict=True
    ):
        assert (before != after).any()
    moved = [
        bool((before != after).any())
        for before, after in zip(
            jax.tree.leaves(begun.state), jax.tree.leaves(variables.state), strict=True
        )
    ]
    assert any(moved) == case.has_statistics


@pytest.mark.covering(4)
@every_case
def test_statistics_stand_still_in_evaluation(case: Case) -> None:
    network = case.make()
    variables = network.init(jax.random.key(0))
    obs = jax.random.normal(jax.random.key(1), (16, 4)) * 3.0 + 1.0
    _, evaluated = network.apply(variables, obs)
    chex.assert_trees_all_equal(evaluated, variables.state)
    outputs, state = network.apply(variables, obs, key=jax.random.key(2), train=True)
    assert jax.tree.structure(state) == jax.tree.structure(variables.state)
    if case.has_statistics:
        differ = [
            bool((a != b).any())
            for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(variables.state), strict=True)
        ]
        assert any(differ)
        again, _ = network.apply(variables, obs, key=jax.random.key(3), train=True)
        assert (outputs["value"] != again["value"]).any()  # dropout follows its key


@pytest.mark.slow
@every_case
def test_it_passes_the_checker(case: Case) -> None:
    report = check_network(case.make(), OBS)
    assert report.passed, report


@pytest.mark.slow
def test_a_constant_and_an_integer_buffer_are_untouched_by_training() -> None:
    _, result = trained(self_attention)
    variables = result.runner_state.agent.learner.variables
    np.testing.assert_array_equal(variables.state["buffers"][0], [[3, 2, 1, 0]])
    constant = variables.params.attention.sqrt_d_attn
    assert constant is None or float(constant) == float(np.sqrt(8))
    assert len(jax.tree.leaves(variables.params.attention)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("is_built", [False, True])
def test_numpy_arrays_of_an_equinox_module_are_constants(is_built: bool) -> None:
    module = own.Scaling(jax.random.key(3)) if is_built else own.Scaling
    network = from_equinox(module)
    report = check_network(network, OBS)
    assert report.passed, report
    _, result = trained(lambda: network)
    variables = result.runner_state.agent.learner.variables
    assert len(jax.tree.leaves(variables.params)) == 4
    assert not jax.tree.leaves(variables.state)
    # Two networks of two constructions share the structure of their parameters.
    again = from_equinox(own.Scaling).init(jax.random.key(0))
    assert jax.tree.structure(again.params) == jax.tree.structure(variables.params)
    outputs, _ = network.apply(again, jnp.array([[1.0, 2.0, 3.0, 4.0]]))
    features = np.array([2.0, 3.0, 4.0, 4.0], np.float32)
    expected = again.params.logits.weight @ features + again.params.logits.bias
    np.testing.assert_allclose(outputs["logits"][0], expected, rtol=1e-6)


@pytest.mark.slow
@PROMOTES
def test_batch_statistics_are_those_of_the_batch() -> None:
    """All four libraries normalise by the same batch, so the axis reaches Equinox's too."""
    obs = jax.random.normal(jax.random.key(1), (64, 4)) * 3.0 + 1.0
    network = from_equinox(own.NormalisedEquinox)
    variables = network.init(jax.random.key(0))
    alone, _ = network.apply(variables, obs[:32], key=jax.random.key(2), train=True)
    together, _ = network.apply(variables, obs, key=jax.random.key(2), train=True)
    assert not jnp.allclose(alone["value"], together["value"][:32])


@pytest.mark.covering(2)
@pytest.mark.parametrize("library", ["nnx", "equinox"])
def test_a_module_already_made_is_the_starting_point(library: str) -> None:
    if library == "nnx":
        module = own.Sharing(rngs=nnx.Rngs(3))
        network, kernel = from_nnx(module), module.embed.kernel[...]
    else:
        module = own.Attentive(key=jax.random.key(3))
        network, kernel = from_equinox(module), module.embed.weight
    assert not network.random_start
    first, second = network.init(jax.random.key(0)), jax.jit(network.init)(jax.random.key(1))
    chex.assert_trees_all_equal(first, second)
    assert any(
        leaf.shape == kernel.shape and (leaf == kernel).all()
        for leaf in jax.tree.leaves(first.params)
    )


@pytest.mark.slow
def test_an_equinox_pair_of_module_and_state() -> None:
    pair = eqx.nn.make_with_state(own.NormalisedEquinox)(jax.random.key(0))
    network = from_equinox(pair)
    variables = network.init(jax.random.key(1))
    outputs, _ = network.apply(variables, jnp.ones((3, 4)))
    assert outputs["logits"].shape == (3, 2)
    made = from_equinox(lambda key: eqx.nn.make_with_state(own.NormalisedEquinox)(key))
    assert made.random_start
    assert made.init(jax.random.key(0)).state.keys() == variables.state.keys()
