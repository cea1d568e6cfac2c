"""Bugs in ports of recorded models are found: their causes and places, and nothing else."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import triglot
from tests.diff.porting.recordings import ports
from triglot import diff_recording

HERE = Path(__file__).parent
RECORDER = Path(triglot.__file__).with_name("record.py")
INPUTS = {
    "resnet": "float32:2,3,12,12",
    "plain": "float32:2,3,18,14",
    "gpt": "int64:2,7:0..30",
    "net": "float32:2,12,12,3",
    "normed": "float32:3,4",
}


def make_recording(folder: Path, library: str, model: str, *options: str) -> Path:
    """Record a model in a process that cannot import triglot."""
    for file in (RECORDER, HERE / f"original_{library}.py"):
        shutil.copy(file, folder)
    out = folder / f"{model}.safetensors"
    command = [f"original_{library}:{model}", "--inputs", INPUTS[model], "--out", out.name]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "record.py", *command, *options],
        cwd=folder,
        env={**clean, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return the recording of a model, which is made once."""
    folder = tmp_path_factory.mktemp("recordings")

    def find(library: str, model: str) -> Path:
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
        path = folder / f"{model}.safetensors"
        return path if path.exists() else make_recording(folder, library, model)

    return find


# The library and the model that is recorded, its port, the bugs, and for each of them the cause and
# its place in the recording.
PLANTED: dict[str, tuple[str, str, Any, tuple[str, ...], list[tuple[str, str]]]] = {
    "torch resnet": ("torch", "resnet", ports.resnet, (), []),
    "torch resnet, epsilon": (
        "torch", "resnet", ports.resnet, ("epsilon",), [("norm_epsilon", "blocks.1.bn1")]),
    "torch resnet, gelu": (
        "torch", "resnet", ports.resnet, ("gelu",), [("activation", "between norm and blocks")]),
    "torch resnet, padding": (
        "torch", "resnet", ports.resnet, ("padding",), [("padding", "stem")]),
    "torch resnet, order": (
        "torch", "resnet", ports.resnet, ("order",), [("operation_order", "blocks.1.bn1")]),
    "torch resnet, several": (
        "torch", "resnet", ports.resnet, ("gelu", "padding", "order"),
        [("padding", "stem"), ("activation", "between norm and blocks"),
         ("operation_order", "blocks.1.bn1")]),
    "torch plain": ("torch", "plain", ports.plain, (), []),
    "torch plain, flatten": (
        "torch", "plain", ports.plain, ("flatten",), [("flatten_order", "classifier.1")]),
    "torch plain, pooling": (
        "torch", "plain", ports.plain, ("pooling",), [("pooling", "features.5")]),
    "torch plain, no activation": (
        "torch", "plain", ports.plain, ("no activation",),
        [("operation_missing", "classifier.2")]),
    "torch gpt": ("torch", "gpt", ports.gpt, (), []),
    "torch gpt, epsilon": (
        "torch", "gpt", ports.gpt, ("epsilon",), [("norm_epsilon", "h.1.ln_1")]),
    "torch gpt, gelu": ("torch", "gpt", ports.gpt, ("gelu",), [("activation", "h.1.act")]),
    "torch gpt, scale": (
        "torch", "gpt", ports.gpt, ("scale",),
        [("attention_scale", "between h.1.attn.c_attn and h.1.attn.c_proj")]),
    "torch gpt, mask": (
        "torch", "gpt", ports.gpt, ("mask",),
        [("attention_mask", "between h.1.attn.c_attn and h.1.attn.c_proj")]),
    "torch gpt, transposed": (
        "torch", "gpt", ports.gpt, ("transposed",), [("kernel_layout", "h.1.attn.c_proj")]),
    "torch gpt, residual": (
        "torch", "gpt", ports.gpt, ("residual",),
        [("residual_source", "between h.1.drop and h.1.ln_2")]),
    "torch gpt, several": (
        "torch", "gpt", ports.gpt, ("scale", "residual", "gelu"),
        [("attention_scale", "h.1.attn.c_attn"), ("residual_source", "h.1.drop"),
         ("activation", "h.1.act")]),
    "torch norm and activation behind it": (
        "torch", "normed", ports.normed, ("epsilon", "gelu"),
        [("norm_epsilon", "norm"), ("activation", "between norm and out")]),
    "keras": ("keras", "net", ports.of_keras, (), []),
    "keras, epsilon": (
        "keras", "net", ports.of_keras, ("epsilon",), [("norm_epsilon", "batch_normalization")]),
    "keras, several": (
        "keras", "net", ports.of_keras, ("epsilon", "padding", "slope", "gelu"),
        [("norm_epsilon", "batch_normalization"), ("padding", "conv2d_1"),
         ("activation", "leaky_re_lu"), ("activation", "dense")]),
}  # fmt: skip


@pytest.mark.covering(30)
@pytest.mark.parametrize(("library", "model", "port", "bugs", "causes"), PLANTED.values(),
                         ids=PLANTED)  # fmt: skip
def test_planted_bugs_are_found(
    library: str,
    model: str,
    port: Callable[..., Any],
    bugs: tuple[str, ...],
    causes: list[tuple[str, str]],
    recorded: Callable[[str, str], Path],
) -> None:
    report = diff_recording(recorded(library, model), port(*bugs))
    assert [cause.name for cause in report.causes] == [name for name, _ in causes], str(report)
    for cause, (_, place) in zip(report.causes, causes, strict=True):
        assert place in cause.where
        assert "ports.py:" in cause.where
    assert report.verdict == ("different" if causes else "equivalent")
    if causes:
        assert report.first_difference is not None and report.first_difference.one is not None
        assert causes[0][1].rpartition(" ")[2] in report.first_difference.one.scope
    else:
        assert {module.state for module in report.modules} == {"equal"}
