"""Two networks are compared as a whole: verdict, causes of parameters, and the report."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import triglot
from tests.diff import networks as nets
from tests.diff.programs import families
from triglot import diff_networks
from triglot.diff.report import WIDTH, Report

# Each: the networks, the verdict, and the causes besides `initializer`.
PLANTED: dict[str, tuple[Any, Any, str, set[str]]] = {
    "missing bias": (nets.haiku_mlp, nets.haiku_without_bias, "different", {"missing_bias"}),
    "missing bias and activation": (
        nets.haiku_leaky(0.01), nets.haiku_leaky(0.02), "different", {"missing_bias", "activation"},
    ),
    "square matrix transposed": (
        nets.haiku_matrix(4), partial(nets.EquinoxMatrix, size=4, turned=True),
        "different", {"kernel_layout"},
    ),
    "square layer transposed": (
        nets.haiku_square, nets.EquinoxTurnedLinear, "different", {"kernel_layout"},
    ),
    "rectangular matrix transposed": (
        nets.haiku_matrix(6), partial(nets.EquinoxMatrix, turned=True),
        "equivalent", {"kernel_layout"},
    ),
    "shared against copied": (
        nets.haiku_shared, nets.LinenCopies(), "different", {"weight_sharing"},
    ),
    "copied against shared": (
        nets.LinenCopies(), nets.haiku_shared, "different", {"weight_sharing"},
    ),
    "tied against two layers": (
        nets.haiku_tied, nets.LinenUntied(), "different", {"weight_sharing"},
    ),
    "a constant of NumPy": (
        nets.haiku_matrix(6), partial(nets.EquinoxMatrix, constant=True),
        "different", {"not_trainable"},
    ),
    "a variable that is no parameter": (
        nets.haiku_matrix(6), nets.NNXFrozen, "different", {"not_trainable"},
    ),
    "a stopped gradient": (
        nets.haiku_matrix(6), partial(nets.EquinoxMatrix, stopped=True),
        "different", {"not_trainable"},
    ),
    "a stopped activation": (
        nets.haiku_activated(nets.gated), nets.Activated(nets.stopped_gate),
        "different", {"stop_gradient"},
    ),
    "another derivative": (
        nets.Activated(nets.halved_tanh), nets.haiku_activated(jnp.tanh),
        "different", {"custom_gradient"},
    ),
    "a gradient that is NaN": (
        nets.haiku_activated(nets.unsafe_root), nets.Activated(nets.safe_root),
        "different", {"nan_gradient"},
    ),
    "parameters in bfloat16": (
        nets.LinenMLP(), nets.LinenMLP(param_dtype=jnp.bfloat16), "different", {"dtype"},
    ),
    "computation in bfloat16": (
        nets.LinenMLP(), nets.LinenMLP(dtype=jnp.bfloat16), "different", {"dtype"},
    ),
    "variants of the GRU": (
        nets.haiku_gru(), nets.linen_gru(), "different", {"gru_variant"},
    ),
    "dropout in one": (
        nets.LinenDropout(0.0), nets.haiku_dropout(0.5), "different", {"dropout"},
    ),
    "dropout's rate": (
        nets.LinenDropout(0.5), nets.haiku_dropout(0.4), "different", {"dropout"},
    ),
}  # fmt: skip


QUICK = (
    "missing bias and activation",
    "square matrix transposed",
    "shared against copied",
    "a variable that is no parameter",
    "a stopped gradient",
    "computation in bfloat16",
    "dropout's rate",
)


def causes(report: Report) -> list[str]:
    """List the named causes besides the initializers."""
    return [cause.name for cause in report.causes if cause.name != "initializer"]


@pytest.mark.covering(99)
@pytest.mark.parametrize(
    "case", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PLANTED]
)
@pytest.mark.library_promotion("JAX's gradient of bfloat16 and Haiku's dropout promote")
def test_a_planted_cause_is_named(case: str) -> None:
    one, other, verdict, names = PLANTED[case]
    report = diff_networks(one, other, nets.INPUTS)
    assert report.verdict == verdict
    assert sorted(causes(report)) == sorted(names)
    assert all(cause.where and cause.evidence for cause in report.causes)
    assert not any("could not be aligned" in note for note in report.notes)
    assert (report.first_difference is None) == (verdict != "different")


@pytest.mark.slow
def test_two_libraries_are_equivalent_and_their_initializers_reported() -> None:
    report = diff_networks(nets.haiku_mlp, nets.equinox_mlp, nets.INPUTS)
    assert report.verdict in ("identical", "equivalent")
    assert report.first_difference is None
    assert report.max_abs_difference < 1e-6
    assert [cause.name for cause in report.causes] == ["initializer"]
    assert all(row.differs for row in report.initializers)


@pytest.mark.slow
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only a CPU computes both alike")
def test_a_precision_without_effect_is_reported_beside() -> None:
    precise = nets.LinenMLP(precision=jax.lax.Precision.HIGHEST)
    report = diff_networks(precise, nets.haiku_mlp, nets.INPUTS)
    assert report.verdict in ("identical", "equivalent")
    assert causes(report) == ["precision"]
    (cause,) = (each for each in report.causes if each.name == "precision")
    assert "HIGHEST in 1 of 2 products of LinenMLP (Flax Linen)" in cause.evidence
    assert "tests/diff/networks.py:" in cause.where


@pytest.mark.slow
@pytest.mark.library_promotion("norms broadcast and promote")
def test_forgotten_values_change_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = families.batch_norm("haiku", momentum=0.8), families.batch_norm("linen", epsilon=1e-2)
    reports = [diff_networks(*pair, families.FEATURES, level="quick")]
    monkeypatch.setattr("triglot.diff.search.MAX_KEPT", 0)
    reports.append(diff_networks(*pair, families.FEATURES, level="quick"))
    assert {"norm_momentum", "norm_epsilon"} <= {cause.name for cause in reports[0].causes}
    assert reports[0].causes == reports[1].causes
    assert reports[0].first_difference == reports[1].first_difference


@pytest.mark.slow
def test_the_report_fits_80_columns_and_json() -> None:
    report = diff_networks(nets.haiku_mlp, nets.haiku_without_bias, nets.INPUTS)
    text = str(report)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.startswith("different: ") and "missing_bias" in text
    stored = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert stored["verdict"] == "different"
    assert stored["max_abs_difference"] > 0
    (cause,) = stored["causes"]
    assert cause.keys() == {"name", "where", "evidence", "parameters", "effect"}
    assert stored["parameters"]["only_one"] == {"mlp/~/linear_0/b": [8]}


IN_THE_CHECKOUT = """
import haiku as hk
import jax

def one(obs):
    return jax.numpy.tanh(hk.Linear(3)(obs))

def other(obs):
    return jax.nn.sigmoid(hk.Linear(3)(obs))
"""


@pytest.mark.slow
def test_a_file_beside_the_packages_folders_is_the_users() -> None:
    """A reader of README writes networks in the checkout."""
    modules: dict[str, Any] = {}
    file = Path(triglot.__file__).resolve().parents[2] / "my_networks.py"
    exec(compile(IN_THE_CHECKOUT, file, "exec"), modules)
    first = diff_networks(modules["one"], modules["other"], triglot.Box((4,))).first_difference
    assert first is not None and first.one is not None and first.other is not None
    assert Path(first.one.source).name == "my_networks.py:6"
    assert Path(first.other.source).name == "my_networks.py:9"


def test_the_weights_of_a_made_module_are_used() -> None:
    module = nets.EquinoxMatrix(jax.random.key(7))
    report = diff_networks(module, nets.EquinoxMatrix, nets.INPUTS)
    assert report.verdict == "identical"
    assert report.initializers == ()
    assert "has its weights already" in " ".join(report.notes)


def test_networks_with_other_outputs_have_nothing_in_common() -> None:
    with pytest.raises(triglot.TriglotError, match=r"nothing in common.*logits"):
        diff_networks(nets.haiku_mlp, nets.ActorCritic(branchwise=True), nets.INPUTS)


def test_networks_without_a_common_parameter_are_refused() -> None:
    with pytest.raises(triglot.TriglotError, match="no parameter in common"):
        diff_networks(nets.haiku_mlp, nets.haiku_scales, nets.INPUTS)


@pytest.mark.covering(2)
@pytest.mark.parametrize("other", ["linen", "nnx"])
def test_a_stated_mapping_is_followed(other: str) -> None:
    inputs, names = {
        "linen": (nets.LinenMLP(), ("Dense_0", "Dense_1")),
        "nnx": (nets.NNXMLP, ("hidden", "out")),
    }[other]
    mapping = {f"mlp/linear_{index}": name for index, name in enumerate(names)}
    report = diff_networks(nets.haiku_mlp, inputs, nets.INPUTS, mapping=mapping)
    assert report.pairing.source == "stated"
    assert report.verdict in ("identical", "equivalent")
