"""`check_network` passes what is sound, and finds each defect by the check meant for it."""

import jax
import pytest

from tests.checks.broken_networks import BROKEN, Broken
from tests.checks.sound_network import OBS, network, recurrent
from tests.conformance import custom_networks as own
from triglot import check_network, combine, from_equinox, from_haiku, from_linen, from_nnx
from triglot.backends import build
from triglot.checks.network.check import CHECKS
from triglot.core import specs
from triglot.core.networks.architecture import CNN, MLP, NetworkSpec, Table, policy_head, value_head
from triglot.core.networks.combinators import freeze, start_from

BACKENDS = ("haiku", "linen", "nnx", "equinox")
HEADS = (("logits", policy_head(3)), ("value", value_head()))
VECTOR = NetworkSpec(specs.Box((4,)), MLP((8,)), HEADS)
IMAGE = NetworkSpec(specs.Box((5, 5, 2)), CNN((3,), 2, (8,)), HEADS)
INDEX = NetworkSpec(specs.Discrete(5), Table(), HEADS)
REASON = "haiku's and flax's normalisation mix dtypes and ranks"


def assert_passes(given: object, obs_spec: object) -> None:
    report = check_network(given, obs_spec)
    assert report.passed, str(report)
    assert len(report.results) == len(CHECKS.checks)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: f"{broken.check}: {broken.defect}")
def test_one_check_finds_the_defect_and_no_other(broken: Broken) -> None:
    report = check_network(broken.network, OBS)
    assert report.failed == (broken.check,), str(report)
    (result,) = [r for r in report.results if r.outcome == "failed"]
    assert result.found and result.fix and result.why
    assert "\n" not in result.found and "Traceback" not in str(report)


def test_every_check_has_a_broken_network() -> None:
    assert {broken.check for broken in BROKEN} == {check.name for check in CHECKS.checks}


def test_the_network_that_the_broken_ones_part_from_is_sound() -> None:
    assert_passes(network(), OBS)


def test_a_recurrent_network_is_sound_alone_and_combined() -> None:
    assert_passes(recurrent(), OBS)
    assert_passes(combine({"actor": recurrent(), "critic": network()}), OBS)


@pytest.mark.parametrize(
    "backend",
    [
        "linen",
        *(pytest.param(name, marks=pytest.mark.slow) for name in BACKENDS if name != "linen"),
    ],
)
def test_the_zoos_networks_pass(backend: str) -> None:
    assert_passes(build(backend, {"actor_critic": VECTOR}, arithmetic="canonical"), VECTOR.obs_spec)


@pytest.mark.parametrize(
    ("backend", "spec"),
    [
        pytest.param(
            backend,
            spec,
            id=f"{backend}-{what}",
            marks=() if (backend, what) == ("equinox", "indices") else pytest.mark.slow,
        )
        for backend in BACKENDS
        for what, spec in {"images": IMAGE, "indices": INDEX}.items()
    ],
)
def test_the_zoos_other_networks_pass(backend: str, spec: NetworkSpec) -> None:
    assert_passes(build(backend, {"net": spec}), spec.obs_spec)


def test_a_convolution_passes() -> None:
    assert_passes(build("nnx", {"net": IMAGE}), IMAGE.obs_spec)


def test_tables_pass() -> None:
    assert_passes(build("table", {"net": INDEX}), INDEX.obs_spec)


OWN = {
    "haiku": lambda: from_haiku(own.normalised_haiku, OBS),
    "linen": lambda: from_linen(own.Normalised(), OBS),
    "nnx": lambda: from_nnx(own.NormalisedNNX),
    "equinox": lambda: from_equinox(own.NormalisedEquinox),
}


@pytest.mark.library_promotion(REASON)
@pytest.mark.parametrize(
    "library", ["equinox", *(pytest.param(n, marks=pytest.mark.slow) for n in list(OWN)[:3])]
)
def test_batchnorm_and_dropout_pass(library: str) -> None:
    assert_passes(OWN[library](), OBS)


def test_given_weights_pass() -> None:
    sound = network()
    assert_passes(start_from(sound, sound.init(jax.random.key(3))), OBS)


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
