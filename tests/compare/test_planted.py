"""A defect planted in one of two trainings is named, and where none was planted none is named."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors.numpy import load_file, save_file

import triglot
from triglot.compare.results import Record
from triglot.compare.rungs import rung_named
from triglot.compare.training.library import LibraryExperiment
from triglot.compare.verdict.causes import find_causes, find_growth
from triglot.compare.verdict.pairs import Pair
from triglot.core.loop.chunks import Chunk
from triglot.core.loop.state import RunnerState
from triglot.core.network import Variables

from .in_process import OPTIONS, initial_weights, probe, train


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Path]:
    """Train Haiku without a defect; its folder has the shared weights."""
    folder = tmp_path_factory.mktemp("sound")
    return train(folder, backend="haiku"), folder


@pytest.fixture
def folder(sound: tuple[Record, Path], tmp_path: Path) -> Path:
    """Copy the shared weights into a new folder."""
    shutil.copy(sound[1] / "initial_params.safetensors", tmp_path)
    return tmp_path


def names(one: Record, other: Record, rung: str = "weights") -> list[str]:
    """Name the causes."""
    return [cause["name"] for cause in find_causes(one, other, rung_named(rung))]


def rebuilt(library: LibraryExperiment, **changes: Any) -> LibraryExperiment:
    """Change the agent of an experiment."""
    agent: Any = library.agent
    return replace(library, agent=replace(agent, **changes))


def another_epsilon(library: LibraryExperiment) -> LibraryExperiment:
    """Use Adam with a larger epsilon, which no hyperparameter shows."""

    def optimizer(hyper: Any) -> optax.GradientTransformation:
        clip = optax.clip_by_global_norm(hyper.max_grad_norm)
        return optax.chain(clip, optax.adam(hyper.learning_rate, eps=1e-3))

    return rebuilt(library, optimizer=optimizer)


def no_clipping(library: LibraryExperiment) -> LibraryExperiment:
    """Leave the global norm as it is."""
    return rebuilt(library, optimizer=lambda hyper: optax.adam(hyper.learning_rate, eps=1e-5))


def with_apply(library: LibraryExperiment, change: Any) -> LibraryExperiment:
    """Change what the network computes."""
    network: Any = library.agent.network

    def changed(part: Any) -> Any:
        def apply(variables: Variables, inputs: Any, **options: Any) -> Any:
            outputs, state = part.apply(variables, inputs, **options)
            return jax.tree.map(change, outputs), state

        return replace(part, apply=apply)

    parts = {name: changed(part) for name, part in network.parts.items()}
    return rebuilt(library, network=replace(changed(network), parts=parts))


def scaled_outputs(library: LibraryExperiment) -> LibraryExperiment:
    """Multiply the outputs by 1.001."""
    return with_apply(library, lambda output: output * jnp.float32(1.001))


def rounded_outputs(library: LibraryExperiment) -> LibraryExperiment:
    """Round the outputs to bfloat16, as a network in lower precision does."""
    return with_apply(library, lambda output: output.astype(jnp.bfloat16).astype(output.dtype))


def half_outputs(library: LibraryExperiment) -> LibraryExperiment:
    """Return the outputs in bfloat16."""
    return with_apply(library, lambda output: output.astype(jnp.bfloat16))


def half_gradients(library: LibraryExperiment) -> LibraryExperiment:
    """Halve the gradients, not the outputs."""
    return with_apply(library, lambda out: jax.lax.stop_gradient(out / 2) + out / 2)


class Nudged(LibraryExperiment):
    """Adds 1e-7 to one of the shared weights."""

    def start_from(self, path: Path) -> RunnerState:
        arrays = load_file(path)
        name = next(name for name in sorted(arrays) if name.endswith("kernel"))
        arrays[name].reshape(-1)[3] += np.float32(1e-7)
        other = path.with_name("nudged.safetensors")
        save_file(arrays, other)
        return super().start_from(other)


def nudged_weight(library: LibraryExperiment) -> LibraryExperiment:
    """Nudge one weight."""
    return Nudged(**{each.name: getattr(library, each.name) for each in fields(library)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        pytest.param(nudged_weight, ["weights"], id="one-weight-nudged"),
        pytest.param(another_epsilon, ["optimizer"], id="optimizer-epsilon"),
        pytest.param(no_clipping, ["optimizer"], id="no-clipping"),
        pytest.param(scaled_outputs, ["network"], id="scaled-outputs"),
        pytest.param(rounded_outputs, ["network"], id="bfloat16-inside"),
        pytest.param(half_gradients, ["gradient"], id="half-gradients"),
        pytest.param(None, [], id="nothing"),
    ],
)
def test_a_planted_defect_is_named(
    plant: Any, expected: list[str], sound: tuple[Record, Path], folder: Path
) -> None:
    assert names(sound[0], probe(folder, plant=plant)) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"seed": 1}, ["seed"], id="wrong-seed"),
        pytest.param({"hyper": {"learning_rate": 2e-3}}, ["hyperparameters"], id="learning-rate"),
        pytest.param({"env": "probe:obs-reward"}, ["environment"], id="another-environment"),
    ],
)
def test_another_option_is_named(
    changes: dict[str, Any], expected: list[str], sound: tuple[Record, Path], folder: Path
) -> None:
    assert names(sound[0], probe(folder, **changes)) == expected


def test_the_default_initializers_are_named(sound: tuple[Record, Path], folder: Path) -> None:
    other = probe(folder, rung="defaults")
    assert names(sound[0], other, "defaults") == ["initializer"]


def test_another_draw_of_the_weights_is_named(sound: tuple[Record, Path], folder: Path) -> None:
    assert names(sound[0], probe(folder, rung="initializers"), "initializers") == ["draw"]


@pytest.mark.slow
def test_the_order_of_leaves_is_named(tmp_path: Path) -> None:
    """Equinox orders weight before bias; in `leaf_order` arithmetic that alone is changed."""
    layers = {"config": {"hidden_sizes": [32, 32]}, "num_seeds": 1}  # a norm of many entries
    weights = initial_weights(replace(OPTIONS, **layers), "equinox")
    save_file(weights, tmp_path / "initial_params.safetensors")
    own = probe(tmp_path, backend="equinox", rung="weights", **layers)
    in_order = probe(tmp_path, backend="equinox", rung="leaf_order", **layers)
    (cause,) = find_causes(own, in_order, rung_named("weights"))
    assert (cause["name"], cause["part"]) == ("leaf_order", "optimizer")


def test_the_side_of_a_product_is_rounding(sound: tuple[Record, Path], folder: Path) -> None:
    found = set(names(sound[0], probe(folder, backend="equinox")))
    assert found and found <= {"summation_order", "leaf_order"}


@pytest.mark.slow
def test_a_difference_is_judged_with_its_place(sound: tuple[Record, Path], folder: Path) -> None:
    other = train(folder, plant=scaled_outputs)
    pair = Pair(
        names=("haiku", "linen"), records=(sound[0], other), rung=rung_named("weights"), margin=1.0
    ).judge()
    assert (pair["level"], pair["identical"]) == ("different", False)
    assert pair["first_difference"]["update"] == 1
    assert pair["max_abs_param_difference"] > 0
    assert [cause["name"] for cause in pair["causes"]] == ["network"]
    assert pair["sentence"].startswith("Flax Linen diverges from Haiku at update 1 in ")
    distance = pair["divergence"]
    assert distance["updates"][0] == 0 and distance["updates"][-1] == 24
    assert distance["params_abs"][0] == 0 < distance["params_abs"][-1]
    assert distance["outputs_abs"][0] > 0


class Leaking(triglot.Experiment):
    """Keeps 8 MB of each chunk."""

    def chunks(self, *args: Any, **options: Any) -> Iterator[Chunk]:
        for chunk in super().chunks(*args, **options):
            KEPT.append(bytearray(b"x") * 2**23)
            yield chunk


KEPT: list[bytearray] = []


class LeakingLibrary(LibraryExperiment):
    @cached_property
    def experiment(self) -> Leaking:
        sound = super().experiment
        parts = {each.name: getattr(sound, each.name) for each in fields(sound)}
        return Leaking(**parts)


def leaking(library: LibraryExperiment) -> LibraryExperiment:
    """Leak memory."""
    return LeakingLibrary(**{each.name: getattr(library, each.name) for each in fields(library)})


def growth(folder: Path, plant: Any) -> dict[str, Any] | None:
    """Find the growth of the memory of this process while it trains."""
    return find_growth(train(folder, plant=plant))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "expected"),
    [pytest.param(leaking, "memory_leak", id="leak"), pytest.param(None, None, id="nothing")],
)
def test_a_memory_leak_is_named(plant: Any, expected: str | None, folder: Path) -> None:
    # In a new process: what earlier tests left here is freed whenever the collector likes.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as new:
        found = new.submit(growth, folder, plant).result()
    assert (found and found["name"]) == expected
    assert found is None or "MB per chunk" in found["evidence"]
