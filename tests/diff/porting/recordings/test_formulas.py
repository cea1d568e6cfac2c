"""Each listed formula computes what its layer does: a recorded result, from canonical arrays."""

from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
from keras import layers as kl

from triglot.backends.libraries import find
from triglot.diff.porting.recordings.layers import canonical_arrays, layer_of
from triglot.diff.porting.recordings.reading import read_recording
from triglot.record import record

torch: Any = pytest.importorskip("torch", reason="the extra torch is not installed")
tn = torch.nn

pytestmark = pytest.mark.library_promotion("Keras's norms broadcast")

# Layers whose kernels are of like rank are in `test_kernels.py`.
TORCH: dict[str, tuple[Any, tuple[int, ...]]] = {
    "LayerNorm": (tn.LayerNorm(4), (2, 3, 4)),
    "LayerNorm of two axes": (tn.LayerNorm((3, 4)), (2, 3, 4)),
    "RMSNorm": (tn.RMSNorm(4), (2, 4)),
    "GroupNorm": (tn.GroupNorm(2, 4), (2, 4, 5)),
    "BatchNorm1d": (tn.BatchNorm1d(4), (3, 4)),
    "BatchNorm2d": (tn.BatchNorm2d(4), (3, 4, 2, 2)),
    "BatchNorm3d": (tn.BatchNorm3d(4), (3, 4, 2, 2, 2)),
    "MaxPool1d": (tn.MaxPool1d(2), (2, 3, 8)),
    "MaxPool2d": (tn.MaxPool2d(3, 2, 1), (2, 3, 7, 7)),
    "AvgPool2d": (tn.AvgPool2d(3, 2, 1), (2, 3, 7, 7)),
    "AvgPool2d of what is there": (
        tn.AvgPool2d(3, 2, 1, count_include_pad=False),
        (2, 3, 7, 7),
    ),
    "AdaptiveAvgPool2d": (tn.AdaptiveAvgPool2d(1), (2, 3, 4, 5)),
    "Conv2d that keeps the size": (tn.Conv2d(3, 4, 3, padding="same"), (2, 3, 5, 4)),
    "ConvTranspose2d with all settings": (
        tn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2, dilation=2),
        (2, 4, 5, 3),
    ),
    "Flatten": (tn.Flatten(), (2, 3, 4)),
    **{
        kind: (getattr(tn, kind)(), (3, 5))
        for kind in (
            *("ReLU", "Tanh", "Sigmoid", "SiLU", "Mish", "ReLU6", "SELU", "Hardswish"),
            *("Hardsigmoid", "GELU", "Softplus", "LeakyReLU", "ELU"),
        )
    },
    "GELU by tanh": (tn.GELU("tanh"), (3, 5)),
    "Softmax": (tn.Softmax(1), (3, 5)),
}
KERAS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "LayerNormalization": (kl.LayerNormalization(), (2, 3, 4)),
    "RMSNormalization": (kl.RMSNormalization(), (2, 4)),
    "GroupNormalization": (kl.GroupNormalization(2), (2, 5, 4)),
    "BatchNormalization": (kl.BatchNormalization(), (2, 3, 4)),
    "Conv2DTranspose of the same size": (
        kl.Conv2DTranspose(5, 3, 2, padding="same", activation="tanh"),
        (2, 4, 3, 2),
    ),
    "Conv2DTranspose with more outputs": (
        kl.Conv2DTranspose(5, 3, 2, padding="same", output_padding=1),
        (2, 4, 3, 2),
    ),
    "Conv1DTranspose with holes": (kl.Conv1DTranspose(5, 2, dilation_rate=2), (2, 4, 3)),
    "DepthwiseConv1D": (kl.DepthwiseConv1D(2, depth_multiplier=2), (2, 5, 3)),
    "GlobalAveragePooling2D": (kl.GlobalAveragePooling2D(), (2, 3, 4, 5)),
    "Flatten": (kl.Flatten(), (2, 3, 4)),
    "ReLU": (kl.ReLU(), (3, 5)),
    "LeakyReLU": (kl.LeakyReLU(0.1), (3, 5)),
    "ELU": (kl.ELU(), (3, 5)),
    "Softmax": (kl.Softmax(), (3, 5)),
    "Activation": (kl.Activation("gelu"), (3, 5)),
}


def torch_model(layer: Any, x: np.ndarray) -> Any:
    torch.manual_seed(0)
    for array in layer.parameters():
        array.data.add_(torch.randn_like(array) * 0.3)
    for name, array in layer.named_buffers():
        if name.startswith("running"):
            array.data.uniform_(0.5, 2)
    return tn.Sequential(layer)


def keras_model(layer: Any, x: np.ndarray) -> Any:
    model = keras.Sequential([keras.Input(x.shape[1:]), layer])
    random = np.random.default_rng(1)
    model.set_weights([random.uniform(0.5, 2, each.shape) for each in model.get_weights()])
    return model


@pytest.mark.parametrize(
    ("build", "layer", "shape"),
    [
        pytest.param(build, *case, id=f"{library} {name}")
        for library, build, cases in (
            ("torch", torch_model, TORCH),
            ("keras", keras_model, KERAS),
        )
        for name, case in cases.items()
    ],
)
def test_a_formula_gives_the_recorded_result(
    build: Any, layer: Any, shape: tuple[int, ...], tmp_path: Path
) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    record(build(layer, x), x, out=str(tmp_path / "one.safetensors"))
    recording = read_recording(tmp_path / "one.safetensors")
    call = recording.calls[-1]
    layer = layer_of(recording, call)
    assert layer is not None and layer.formula is not None
    arrays = canonical_arrays(recording, call, layer)
    settings = {"training": False, **call.settings}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        y = layer.formula(settings, arrays, [recording.arrays[name] for name in call.inputs])
    np.testing.assert_allclose(y, recording.arrays[call.outputs[0]], atol=2e-5)


def test_every_formula_is_in_the_table() -> None:
    for library, cases, others in (
        ("torch", TORCH, "Linear Conv Embedding MultiheadAttention SyncBatchNorm"),
        ("keras", KERAS, "Dense Conv Embedding Depthwise"),
    ):
        listed_layers = find(library).storage.layers
        with_formula = {name for name, layer in listed_layers.items() if layer.formula}
        tested = {name.split()[0] for name in cases}
        left = {n for n in with_formula - tested if not n.startswith(tuple(others.split()))}
        assert not left
