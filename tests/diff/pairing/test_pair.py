"""Parameters are paired although names, order or number differ."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import triglot
from tests.diff import networks as nets
from triglot.core.network import Leaf
from triglot.diff.loading import load_network
from triglot.diff.pairing.pair import pair_parameters
from triglot.diff.pairing.parameters import Pairing, Parameter
from triglot.diff.pairing.use_order import align, read_uses


def paired(one: Any, other: Any, mapping: dict[str, str] | None = None) -> Pairing:
    networks = load_network(one, nets.INPUTS), load_network(other, nets.INPUTS)

    def uses() -> Any:
        layers = []
        for network in networks:
            variables = network.init(jax.random.key(0))
            outputs = jax.tree.leaves(jax.eval_shape(network.apply, variables, jnp.ones((1, 4)))[0])
            layers.append(read_uses(network, variables, jnp.ones((1, 4)), range(len(outputs))))
        return tuple(layers)

    return pair_parameters(networks, uses, mapping)


def parameter(name: str, *shape: int) -> Parameter:
    return Parameter(name, shape, "float32", Leaf.one(name))


def test_a_gap_is_left_where_a_parameter_is_missing() -> None:
    one = [parameter("a/w", 4, 4), parameter("a/b", 4), parameter("c/w", 4, 4)]
    other = [parameter("x/w", 4, 4), parameter("y/w", 4, 4)]
    assert align(one, other) == [("a/w", "x/w"), ("c/w", "y/w")]


def test_a_transposed_matrix_is_paired_and_another_shape_is_not() -> None:
    one = [parameter("a", 4, 3), parameter("b", 5)]
    assert align(one, [parameter("x", 3, 4), parameter("y", 6)]) == [("a", "x")]


def test_branches_are_paired_by_the_outputs_they_reach() -> None:
    pairing = paired(nets.ActorCritic(branchwise=True), nets.ActorCritic(branchwise=False))
    assert pairing.source == "guessed by order of use"
    kernels = {pair.one: pair.other for pair in pairing.pairs if pair.one.endswith("kernel")}
    assert kernels == {
        "Dense/0/kernel": "w/kernel",  # Linen numbers layers as they are constructed
        "Dense/1/kernel": "v/kernel",
        "Dense/2/kernel": "z/kernel",
        "Dense/3/kernel": "u/kernel",
    }


def test_equal_names_are_paired_and_a_missing_bias_is_left() -> None:
    pairing = paired(nets.haiku_leaky(0.01), nets.haiku_leaky(0.02))
    assert pairing.source == "by name"
    assert [each.name for each in pairing.only_other] == ["linear/bias"]
    assert pairing.only_one == ()


def test_a_stated_mapping_may_leave_parameters_unpaired() -> None:
    pairing = paired(nets.haiku_mlp, nets.LinenMLP(), {"mlp/linear_0": "Dense_0"})
    assert {pair.one for pair in pairing.pairs} == {"mlp/linear/0/kernel", "mlp/linear/0/bias"}
    assert len(pairing.only_one) == len(pairing.only_other) == 2


@pytest.mark.parametrize(
    "mapping, says",
    [
        ({"nowhere": "Dense_0"}, "no parameter is named 'nowhere'"),
        ({"mlp/linear_0": "nowhere"}, "no parameter is named 'nowhere'; there are Dense_0/bias"),
        ({"mlp/linear_0/w": "Dense_1/bias"}, "their shapes differ"),
        ({"mlp/linear_0/kernel": "Dense_1/bias"}, "their shapes differ"),
        ({"w": "Dense_1/kernel"}, "'w' may be any of mlp/~/linear_0/w, mlp/~/linear_1/w"),
    ],
)
def test_a_wrong_mapping_is_refused(mapping: dict[str, str], says: str) -> None:
    with pytest.raises(triglot.TriglotError, match=says):
        paired(nets.haiku_mlp, nets.LinenMLP(), mapping)


def test_layers_without_numbers_are_paired_with_numbered_ones() -> None:
    def named(key: jax.Array) -> dict[str, dict[str, jax.Array]]:
        first, second = jax.random.split(key)
        return {
            "hidden": {"w": jax.random.normal(first, (4, 8))},
            "out": {"w": jax.random.normal(second, (8, 2))},
        }

    def numbered(key: jax.Array) -> dict[str, dict[str, jax.Array]]:
        params = named(key)
        return {"linear_0": params["hidden"], "linear_1": params["out"]}

    def apply(params: dict[str, dict[str, jax.Array]], x: jax.Array) -> jax.Array:
        hidden, out = (params[name]["w"] for name in sorted(params))
        return jnp.tanh(x @ hidden) @ out

    for pair in ((numbered, named), (named, numbered)):
        one, other = ((init, apply) for init in pair)
        report = triglot.diff_networks(one, other, triglot.Box((4,)), level="quick")
        assert report.verdict == "identical"
        assert not any("numbers" in note for note in report.notes)
