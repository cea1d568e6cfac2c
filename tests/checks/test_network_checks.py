"""`check_network` passes correct networks, and reports each defect with one check."""

from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from tests.checks.broken_networks import BROKEN, Broken
from tests.checks.defects import cases, only_failure
from tests.checks.sound_network import OBS, network, recurrent
from triglot import check_network, combine, from_linen, from_nnx
from triglot.backends import build
from triglot.checks.network.check import CHECKS
from triglot.checks.report import Report, Result
from triglot.core import specs
from triglot.core.network import Network, Variables
from triglot.core.networks.architecture import CNN, MLP, NetworkSpec, Table, policy_head, value_head
from triglot.core.networks.combinators import freeze, start_from

BACKENDS = ("haiku", "linen", "nnx", "equinox")
HEADS = (("logits", policy_head(3)), ("value", value_head()))
VECTOR = NetworkSpec(specs.Box((4,)), MLP((8,)), HEADS)
IMAGE = NetworkSpec(specs.Box((5, 5, 2)), CNN((3,), 2, (8,)), HEADS)
INDEX = NetworkSpec(specs.Discrete(5), Table(), HEADS)


def assert_passes(given: object, obs_spec: object) -> None:
    report = check_network(given, obs_spec)
    assert report.passed, str(report)
    assert len(report.results) == len(CHECKS.checks)


@pytest.mark.covering(10)
@pytest.mark.parametrize("broken", cases(BROKEN))
def test_one_check_finds_the_defect_and_no_other(broken: Broken) -> None:
    only_failure(check_network(broken.network, OBS), broken.check)


def test_every_check_has_a_broken_network() -> None:
    assert {broken.check for broken in BROKEN} == {check.name for check in CHECKS.checks}


def test_the_base_of_the_broken_networks_passes() -> None:
    assert_passes(network(), OBS)


@pytest.mark.slow
def test_a_recurrent_network_passes_alone_and_combined() -> None:
    assert_passes(recurrent(), OBS)
    assert_passes(combine({"actor": recurrent(), "critic": network()}), OBS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    [
        "linen",
        *(pytest.param(name, marks=pytest.mark.slow) for name in BACKENDS if name != "linen"),
    ],
)
def test_the_zoos_networks_pass(backend: str) -> None:
    assert_passes(build(backend, {"actor_critic": VECTOR}, arithmetic="canonical"), VECTOR.obs_spec)


QUICK = [("nnx", "images"), ("equinox", "indices")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "spec"),
    [
        pytest.param(
            backend,
            spec,
            id=f"{backend}-{what}",
            marks=() if (backend, what) in QUICK else pytest.mark.slow,
        )
        for backend in BACKENDS
        for what, spec in {"images": IMAGE, "indices": INDEX}.items()
    ],
)
def test_the_zoos_other_networks_pass(backend: str, spec: NetworkSpec) -> None:
    assert_passes(build(backend, {"net": spec}), spec.obs_spec)


@pytest.mark.slow
def test_tables_pass() -> None:
    assert_passes(build("table", {"net": INDEX}), INDEX.obs_spec)


def test_given_weights_pass() -> None:
    given = network()
    assert_passes(start_from(given, given.init(jax.random.key(3))), OBS)


@pytest.mark.slow
def test_frozen_weights_pass() -> None:
    assert_passes(freeze(build("equinox", {"net": VECTOR}), "net/torso/*"), VECTOR.obs_spec)


def test_the_report_says_what_why_and_how() -> None:
    (broken,) = [b for b in BROKEN if b.defect == "a Python number among the parameters"]
    text = str(check_network(broken.network, OBS))
    for words in (
        "params.scale is the Python float 2.0",
        "why it matters",
        "how to fix it",
        "FAILED",
    ):
        assert words in text


def test_another_seed_tries_other_numbers() -> None:
    assert check_network(network(), OBS, seed=1).passed


class Recurrent(nn.Module):
    """An LSTM; `flax_order` returns (carry, outputs)."""

    flax_order: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array, carry: tuple[jax.Array, jax.Array]) -> Any:
        carry, hidden = nn.LSTMCell(3)(carry, obs)
        outputs = {"value": nn.Dense(1)(hidden)[:, 0]}
        return (carry, outputs) if self.flax_order else (outputs, carry)


def initial_carry(num_envs: int) -> tuple[jax.Array, jax.Array]:
    return jnp.zeros((num_envs, 3)), jnp.zeros((num_envs, 3))


def result(report: Report, name: str) -> Result:
    return next(result for result in report.results if result.name == name)


class RecurrentNNX(nnx.Module):
    """A module whose carry is required or, with a default, optional."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.value = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, obs: jax.Array, carry: jax.Array) -> Any:
        return {"value": self.value(obs)[:, 0] + carry[:, 0]}, carry + obs


class OptionalCarry(RecurrentNNX):
    def __call__(self, obs: jax.Array, carry: jax.Array | None = None) -> Any:
        return super().__call__(obs, jnp.zeros_like(obs) if carry is None else carry)


@pytest.mark.slow
def test_a_module_that_takes_a_carry_is_advised_to_pass_initial_carry() -> None:
    assert_passes(from_linen(Recurrent(), OBS, initial_carry=initial_carry), OBS)
    report = check_network(from_nnx(RecurrentNNX), OBS)
    assert report.failed == ("apply",), str(report)
    assert "carry" in result(report, "apply").found
    assert "initial_carry=lambda num_envs" in result(report, "apply").fix
    (note,) = check_network(from_nnx(OptionalCarry), OBS).notes
    assert "pass initial_carry" in note


def test_a_network_with_recurrent_and_no_carry_is_advised_to_pass_initial_carry() -> None:
    report = check_network(network(recurrent=True), OBS)
    assert report.failed == ("carry",)
    assert "contains no arrays" in result(report, "carry").found
    assert "initial_carry" in result(report, "carry").fix


def swapped(variables: Variables, inputs: Any, **how: Any) -> Any:
    (outputs, carry), state = recurrent().apply(variables, inputs, **how)
    return (carry, outputs), state


@pytest.mark.parametrize(
    "given",
    [
        from_linen(Recurrent(flax_order=True), OBS, initial_carry=initial_carry),
        replace(recurrent(), apply=swapped),
    ],
    ids=["linen", "functions"],
)
def test_the_order_of_flax_cells_is_found(given: Network) -> None:
    report = check_network(given, OBS)
    assert report.failed in (("apply",), ("init",)), str(report)
    (failed,) = (r for r in report.results if r.outcome == "failed")
    assert "(carry, outputs)" in failed.found and "(outputs, carry)" in failed.found
    assert "carry" in failed.fix
