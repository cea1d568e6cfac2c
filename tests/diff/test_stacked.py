"""Separate layers against stacked ones: slices are paired, and only mistakes are reported."""

import itertools
import re
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.diff import stacked
from tests.diff.stacked import DEPTH, SEPARATE, SPEC, STACKED
from triglot.backends.translate import translate
from triglot.cli import main as cli
from triglot.core.network import Variables
from triglot.diff.loading import load_network
from triglot.diff.porting.files import write_weights
from triglot.diff.porting.names import load_weights, named_arrays
from triglot.diff.report import DIFFERENT

pytestmark = pytest.mark.filterwarnings("ignore::triglot.core.errors.Guessed")
PAIRS = [*itertools.product(SEPARATE, STACKED, ("to stacked", "to separate"))]


def pair_of(one: str, other: str, direction: str) -> tuple[Any, Any]:
    pair = SEPARATE[one], STACKED[other]
    return pair if direction == "to stacked" else pair[::-1]


@pytest.mark.covering(99)
@pytest.mark.parametrize(("one", "other", "direction"), PAIRS)
def test_slices_are_paired_without_false_positives(one: str, other: str, direction: str) -> None:
    report = triglot.diff_networks(*pair_of(one, other, direction), SPEC)
    assert report.verdict in ("identical", "equivalent"), report
    assert {cause.name for cause in report.causes} <= {"initializer"}, report
    assert report.pairing.is_complete
    assert not any("random" in note for note in report.notes)
    layers = {
        (int(_index(pair.one)), int(_index(pair.other)))
        for pair in report.pairing.pairs
        if not pair.one.startswith(("embed", "head"))
    }
    assert layers == {(index, index) for index in range(DEPTH)}


def _index(name: str) -> str:
    return re.sub(r"^.*?layers?/(?:remat/)?(?:stack/no/per/layer/)?(?:0/(?=\d))?", "", name)[0]


# The layouts of plain functions are unknown, so that only equal names are paired.
TRANSLATED = [pair for pair in PAIRS if pair[:2] == ("jax", "jax") or "jax" not in pair[:2]]


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other", "direction"), TRANSLATED)
def test_weights_are_translated(one: str, other: str, direction: str) -> None:
    source, target = (load_network(each, SPEC) for each in pair_of(one, other, direction))
    variables = source.init(jax.random.key(0))
    moved = translate(variables, source, target)
    x = jax.random.normal(jax.random.key(1), (5, stacked.SIZE))
    np.testing.assert_allclose(
        target.apply(moved, x)[0], source.apply(variables, x)[0], rtol=1e-5, atol=1e-5
    )
    back = translate(moved, target, source)
    jax.tree.map(np.testing.assert_array_equal, back.params, variables.params)


PLANTED = {
    "activation": (stacked.LinenScanned(activation=nn.gelu), "activation", "self.activation("),
    "epsilon": (stacked.LinenScanned(epsilon=1e-3), "norm_epsilon", "nn.LayerNorm("),
    "one layer less": (stacked.LinenScanned(depth=2), "layer_count", "self.norm(x)"),
    "reversed": (stacked.LinenScanned(reverse=True), "layer_order", "scanned("),
}


@pytest.mark.slow
@pytest.mark.parametrize("one", ["equinox", "linen"])
@pytest.mark.parametrize("planted", PLANTED)
def test_a_mistake_in_a_stack_is_named_with_its_line(planted: str, one: str) -> None:
    network, name, line = PLANTED[planted]
    if planted == "one layer less" and one == "linen":
        line = "nn.LayerNorm("
    report = triglot.diff_networks(SEPARATE[one], network, SPEC, level="quick")
    assert report.verdict == DIFFERENT
    assert [cause.name for cause in report.causes] == [name], report
    with open(stacked.__file__) as file:
        code = file.read().splitlines()
    numbers = re.findall(r"stacked\.py:(\d+)", report.causes[0].where)
    assert any(line in code[int(number) - 1] for number in numbers), report


@pytest.mark.slow
def test_a_stack_that_is_applied_in_reverse_is_named() -> None:
    other = stacked.plain_stacked("flipped")
    report = triglot.diff_networks(SEPARATE["jax"], other, SPEC, level="quick")
    assert report.verdict == DIFFERENT
    (cause,) = report.causes
    assert cause.name == "layer_order"
    assert "layers/0, layers/2 in this order" in cause.evidence
    assert "layers[2], layers[0]" in cause.evidence


@pytest.mark.slow
def test_a_stack_with_other_names_and_numbers_is_noted() -> None:
    other = stacked.plain_stacked("flipped")
    report = triglot.diff_networks(SEPARATE["linen"], other, SPEC, level="quick")
    assert report.verdict != DIFFERENT
    assert any("layers_0" in note and "layers[2]" in note for note in report.notes), report
    report = triglot.diff_networks(SEPARATE["linen"], STACKED["jax"], SPEC, level="quick")
    assert not any("numbers" in note for note in report.notes), report


@pytest.mark.slow
def test_a_missing_residual_is_located_in_the_body() -> None:
    report = triglot.diff_networks(
        SEPARATE["jax"], stacked.plain_stacked("no residual"), SPEC, level="quick"
    )
    assert report.verdict == DIFFERENT
    missing = [cause for cause in report.causes if cause.name == "operation_missing"]
    assert any("computes add in addition" in cause.evidence for cause in missing), report


def test_an_ensemble_is_compared_with_arrays_that_hold_all_members() -> None:
    class Members(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            shared: Any = {"in_axes": None, "out_axes": 1, "axis_size": 4}
            axes: Any
            keys: Any
            axes, keys = {"params": 0}, {"params": True}
            dense = nn.vmap(nn.Dense, variable_axes=axes, split_rngs=keys, **shared)
            return dense(7)(x).sum(1)

    def init(key: Any) -> Any:
        return {"w": jax.random.normal(key, (4, stacked.SIZE, 7)), "b": jnp.zeros((4, 7))}

    def apply(params: Any, x: Any) -> Any:
        return (jnp.einsum("bi,mio->bmo", x, params["w"]) + params["b"][None]).sum(1)

    report = triglot.diff_networks(Members(), (init, apply), SPEC, level="quick")
    assert report.verdict in ("identical", "equivalent") and not report.causes, report
    assert report.pairing.is_complete


class Normed(nn.Module):
    """Batch normalization in a stack, or in separate layers."""

    scanned: bool = False

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        if self.scanned:
            layers = nn.scan(
                NormedBody,
                variable_axes={"params": 0, "batch_stats": 0},
                split_rngs={"params": True},
                length=DEPTH,
            )
            return layers(train, name="layers")(x, None)[0]
        for index in range(DEPTH):
            x, _ = NormedBody(train, name=f"layers_{index}")(x, None)
        return x


class NormedBody(nn.Module):
    train: bool

    @nn.compact
    def __call__(self, x: Any, _: None) -> tuple[Any, None]:
        h = nn.BatchNorm(use_running_average=not self.train)(nn.Dense(stacked.SIZE)(x))
        return x + nn.relu(h), None


@pytest.mark.parametrize("direction", ["to stacked", "to separate"])
def test_running_statistics_of_a_stack_are_split_and_joined(direction: str) -> None:
    pair = Normed(), Normed(scanned=True)
    source, target = (
        load_network(each, SPEC) for each in (pair if direction == "to stacked" else pair[::-1])
    )
    variables = source.init(jax.random.key(0))
    for step in range(3):
        x = 3 * jax.random.normal(jax.random.key(step), (16, stacked.SIZE)) + step
        _, state = source.apply(variables, x, train=True)
        variables = Variables(params=variables.params, state=state)
    moved = translate(variables, source, target)
    x = jax.random.normal(jax.random.key(9), (5, stacked.SIZE))
    np.testing.assert_allclose(
        target.apply(moved, x)[0], source.apply(variables, x)[0], rtol=1e-5, atol=1e-5
    )
    back = translate(moved, target, source)
    jax.tree.map(np.testing.assert_array_equal, back.state, variables.state)


@pytest.mark.slow
@pytest.mark.parametrize("with_source", [True, False])
def test_a_file_of_separate_layers_is_translated_to_a_stack(
    with_source: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)
    source = load_network(SEPARATE["linen"], SPEC)
    variables = source.init(jax.random.key(0))
    write_weights(tmp_path / "weights.safetensors", named_arrays(variables, source))
    origin = (
        ["--source", "tests.diff.stacked:LinenSeparate"] if with_source else ["--from", "linen"]
    )
    command = [
        "translate", str(tmp_path / "weights.safetensors"), *origin,
        "--network", "tests.diff.stacked:LinenScanned",
        "--obs-shape", str(stacked.SIZE), "--out", str(tmp_path / "out.npz"),
    ]  # fmt: skip
    assert cli.main(command) == 0
    target = load_network(STACKED["linen"], SPEC)
    moved = load_weights(tmp_path / "out.npz", target)
    x = jax.random.normal(jax.random.key(1), (5, stacked.SIZE))
    np.testing.assert_allclose(
        target.apply(moved, x)[0], source.apply(variables, x)[0], rtol=1e-5, atol=1e-5
    )
