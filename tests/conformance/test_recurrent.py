"""Recurrent networks of every library's zoo: one function, from one set of weights."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import pytest

from tests.extras import BACKENDS
from triglot.algorithms.ppo import PPO, PPOConfig
from triglot.backends import build
from triglot.backends.translate import translate
from triglot.core.errors import TriglotError
from triglot.core.network import Network, Variables
from triglot.core.networks.architecture import (
    MLP,
    NetworkSpec,
    RecurrentCell,
    Table,
    policy_head,
    value_head,
)
from triglot.core.networks.combinators import combine
from triglot.core.networks.unroll import unroll
from triglot.core.specs import Box, Discrete
from triglot.envs import probes
from triglot.runs.training import train

HEADS = (("logits", policy_head(2)), ("value", value_head()))
STEPS, ENVS, SIZE = 7, 3, 6
CELL = {
    "lstm": 4 * (8 * SIZE + SIZE * SIZE + SIZE),
    "gru": 3 * (8 * SIZE + SIZE * SIZE + SIZE) + SIZE,
}


def spec(cell: str) -> dict[str, NetworkSpec]:
    return {"net": NetworkSpec(Box((4,)), MLP((8,)), HEADS, RecurrentCell(cell, SIZE))}


def unrolled(network: Network, variables: Variables) -> tuple[Any, Any]:
    """Run the network over a rollout in which an episode starts in the middle."""
    obs = jax.random.normal(jax.random.key(1), (STEPS, ENVS, 4))
    first = jnp.zeros((STEPS, ENVS), bool).at[4, 1].set(True)
    carry = jax.tree.map(lambda leaf: leaf + 0.5, network.initial_carry(variables, ENVS))
    return unroll(network, variables, obs, first, carry)[:2]


def gradient(network: Network, variables: Variables) -> Any:
    def loss(params: Any) -> tuple[Any, None]:
        outputs, _ = unrolled(network, Variables(params=params, state=variables.state))
        return sum((head**2).sum() for head in jax.tree.leaves(outputs)), None

    (_, _), grads = network.value_and_grad(loss)(variables.params)
    return grads


def weights(cell: str) -> tuple[Network, Variables]:
    """Make a Linen network's weights, no two gates' alike."""
    network = build("linen", spec(cell))
    start = network.init(jax.random.key(0))
    leaves, treedef = jax.tree.flatten(start.params)
    noise = [
        leaf + 0.3 * jax.random.normal(jax.random.key(index), leaf.shape)
        for index, leaf in enumerate(leaves)
    ]
    return network, Variables(params=treedef.unflatten(noise), state=start.state)


EQUAL = [(c, b) for c in ("lstm", "gru") for b in BACKENDS if (c, b) != ("gru", "haiku")]


@pytest.mark.covering(30)
@pytest.mark.parametrize(
    "arithmetic", ["native", pytest.param("leaf_order", marks=pytest.mark.slow), "canonical"]
)
@pytest.mark.parametrize(("cell", "backend"), EQUAL)
def test_one_function_from_one_set_of_weights(cell: str, backend: str, arithmetic: str) -> None:
    linen, given = weights(cell)
    network = build(backend, spec(cell), arithmetic=arithmetic)
    moved = translate(given, linen, network)
    expected, found = (
        jax.jit(lambda v, n=n: unrolled(n, v))(v) for n, v in ((linen, given), (network, moved))
    )
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-5)
    back = translate(moved, network, linen)
    chex.assert_trees_all_close(back.params, given.params, rtol=0, atol=2e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "backend"), EQUAL)
def test_gradients_agree(cell: str, backend: str) -> None:
    linen, given = weights(cell)
    network = build(backend, spec(cell), arithmetic="canonical")
    canonical = build("linen", spec(cell), arithmetic="canonical")
    expected = jax.jit(lambda v: gradient(canonical, v))(translate(given, linen, canonical))
    found = jax.jit(lambda v: gradient(network, v))(translate(given, linen, network))
    chex.assert_trees_all_close(found, expected, rtol=1e-3, atol=1e-4)
    if backend == "nnx" and cell == "lstm":  # the same two products in the same order
        chex.assert_trees_all_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_start_inside_a_rollout_is_a_fresh_start(cell: str, backend: str) -> None:
    network = build(backend, spec(cell))
    variables = network.init(jax.random.key(0))
    size = sum(leaf.size for leaf in jax.tree.leaves(variables.params))
    if (cell, backend) != ("gru", "haiku"):  # Haiku's has one bias less
        assert size == (4 * 8 + 8) + CELL[cell] + (SIZE * 2 + 2) + (SIZE + 1)
    carry = network.initial_carry(variables, ENVS)
    assert jax.tree.map(jnp.shape, carry["net"])["hidden"] == (ENVS, SIZE)
    obs = jax.random.normal(jax.random.key(1), (STEPS, ENVS, 4))
    first = jnp.zeros((STEPS, ENVS), bool).at[4].set(True)
    run = jax.jit(lambda obs, first, carry: unroll(network, variables, obs, first, carry)[:2])
    outputs, last = run(obs, first, carry)
    again, last_again = run(obs[4:], first[4:], carry)
    tail = jax.tree.map(lambda head: head[4:], outputs)
    chex.assert_trees_all_close((tail, last), (again, last_again), rtol=1e-5, atol=1e-6)
    one_by_one, apply = [], jax.jit(network.apply)
    for step in range(4):
        (heads, carry), _ = apply(variables, (obs[step], carry))
        one_by_one.append(heads)
    stacked = jax.tree.map(lambda *heads: jnp.stack(heads), *one_by_one)
    head = jax.tree.map(lambda head: head[:4], outputs)
    chex.assert_trees_all_close(head, stacked, rtol=1e-5, atol=1e-6)


@pytest.mark.covering(3)
@pytest.mark.parametrize("other", ["linen", "nnx", "equinox"])
def test_haikus_gru_is_another_function_and_refused_in_words(other: str) -> None:
    networks = [build(backend, spec("gru")) for backend in ("haiku", other)]
    for source, target in (networks, networks[::-1]):
        with pytest.raises(
            TriglotError,
            match=r"reset gate (before|after) the recurrent product.*"
            r"different functions",
        ):
            translate(source.init(jax.random.key(0)), source, target)
    haiku = networks[0]
    variables = haiku.init(jax.random.key(0))
    moved = translate(variables, haiku, build("haiku", spec("gru")))
    chex.assert_trees_all_equal(moved.params, variables.params)


@pytest.mark.slow
def test_an_actor_with_memory_beside_a_critic_without() -> None:
    heads = {"actor": HEADS[:1], "critic": HEADS[1:]}
    memories = {"actor": RecurrentCell("lstm", SIZE), "critic": None}
    parts = {n: NetworkSpec(Box((4,)), MLP((8,)), heads[n], memories[n]) for n in heads}
    network = build("equinox", parts)
    variables = network.init(jax.random.key(0))
    carry = network.initial_carry(variables, ENVS)
    assert network.recurrent and carry["critic"] == ()
    outputs, after = unrolled(network, variables)
    assert outputs["critic"]["value"].shape == (STEPS, ENVS)
    chex.assert_trees_all_equal_shapes(after, carry)
    assert combine({"only": network}).recurrent


TRAINED = [("lstm", "haiku"), ("gru", "equinox")]  # the others only in the slow tests


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "backend"),
    [
        pytest.param(c, b, marks=() if (c, b) in TRAINED else pytest.mark.slow)
        for c in ("lstm", "gru")
        for b in BACKENDS
    ],
)
def test_ppo_trains_it(cell: str, backend: str) -> None:
    env = probes.make("truncating", max_steps=3)
    parts = {"net": NetworkSpec(env.obs_spec, MLP((8,)), HEADS, RecurrentCell(cell, SIZE))}
    config = PPOConfig(num_envs=4, rollout_length=4, num_minibatches=2)
    agent = PPO(build(backend, parts), env.obs_spec, env.action_spec, config)
    result = train(agent, env, key=jax.random.key(0), total_steps=48)
    chex.assert_tree_all_finite(result.runner_state.agent.learner.variables.params)


def test_a_cell_that_is_none_and_a_table_with_memory() -> None:
    with pytest.raises(TriglotError, match="unknown recurrent cell 'lstn'; did you mean 'lstm'"):
        RecurrentCell("lstn")
    with pytest.raises(TriglotError, match="size must be at least 1, got 0"):
        RecurrentCell("gru", 0)
    with pytest.raises(TriglotError, match="a table has no recurrent cell"):
        NetworkSpec(Discrete(3), Table(), HEADS, RecurrentCell()).check()
