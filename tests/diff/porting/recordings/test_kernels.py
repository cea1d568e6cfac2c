"""Layers that store kernels of like rank: recorded, or in a file without their network."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from keras import layers as kl

from tests.backends import layer_cases as cases
from tests.backends.layer_cases import Case, network
from triglot import TriglotError, diff_recording, from_linen
from triglot.backends.layers.kinds import CONVOLUTION, TRANSPOSED
from triglot.backends.translate import move
from triglot.core.network import Network, Variables
from triglot.core.specs import Box
from triglot.diff.porting.layouts import network_of
from triglot.diff.porting.names import named_arrays
from triglot.diff.porting.pairs import pair
from triglot.diff.porting.recordings.layers import canonical_arrays, layer_of
from triglot.diff.porting.recordings.reading import Recording, read_recording
from triglot.record import record

torch: Any = pytest.importorskip("torch", reason="the extra torch is not installed")
weight_norm: Any = pytest.importorskip("torch.nn.utils.parametrizations").weight_norm

pytestmark = pytest.mark.library_promotion("norms broadcast and promote")


class Kernel(NamedTuple):
    """A layer, how its own library builds it, and the other libraries that have it."""

    case: Case
    make: Callable[[], Any]


def transposed(rank: int, n: int, m: int) -> Case:
    return cases.transposed(n, m, (3, 2, 3)[:rank], stride=2)


def grouped(rank: int) -> Case:
    return cases.grouped_transposed(6, 4, (3, 2, 3)[:rank], groups=2)


def window(rank: int) -> Any:
    return (3, 2, 3)[:rank]


tn = torch.nn
TORCH: dict[str, Kernel] = {
    "Linear": Kernel(cases.dense(4, 4), lambda: tn.Linear(4, 4)),
    **{
        f"Conv{rank}d": Kernel(
            cases.convolution(4, 6, window(rank), stride=2),
            lambda rank=rank, layer=layer: layer(4, 6, window(rank), 2),
        )
        for rank, layer in ((1, tn.Conv1d), (2, tn.Conv2d), (3, tn.Conv3d))
    },
    "Conv2d, equal": Kernel(cases.convolution(4, 4, (2, 2)), lambda: tn.Conv2d(4, 4, 2)),
    "Conv2d, groups": Kernel(
        cases.convolution(4, 6, (3, 2), groups=2), lambda: tn.Conv2d(4, 6, (3, 2), groups=2)
    ),
    **{
        f"ConvTranspose{rank}d": Kernel(
            transposed(rank, 6, 5), lambda rank=rank, layer=layer: layer(6, 5, window(rank), 2)
        )
        for rank, layer in (
            (1, tn.ConvTranspose1d),
            (2, tn.ConvTranspose2d),
            (3, tn.ConvTranspose3d),
        )
    },
    "ConvTranspose2d, equal": Kernel(
        transposed(2, 5, 5), lambda: tn.ConvTranspose2d(5, 5, (3, 2), 2)
    ),
    **{
        f"ConvTranspose{rank}d, groups": Kernel(
            grouped(rank), lambda rank=rank, layer=layer: layer(6, 4, window(rank), 2, groups=2)
        )
        for rank, layer in (
            (1, tn.ConvTranspose1d),
            (2, tn.ConvTranspose2d),
            (3, tn.ConvTranspose3d),
        )
    },
    "weight norm": Kernel(
        cases.weight_norm("dense", "outputs"), lambda: weight_norm(tn.Linear(2, 5))
    ),
    "weight norm, convolution": Kernel(
        cases.weight_norm("convolution", "outputs"),
        lambda: weight_norm(tn.Conv2d(2, 5, (3, 2))),
    ),
    "weight norm, transposed": Kernel(
        cases.weight_norm("transposed", "inputs"),
        lambda: weight_norm(tn.ConvTranspose2d(2, 5, (3, 2), 2)),
    ),
}
KERAS: dict[str, Kernel] = {
    "Dense": Kernel(cases.dense(4, 4), lambda: kl.Dense(4)),
    **{
        f"Conv{rank}D": Kernel(
            cases.convolution(4, 6, window(rank), stride=2),
            lambda rank=rank, layer=layer: layer(6, window(rank), 2),
        )
        for rank, layer in ((1, kl.Conv1D), (2, kl.Conv2D), (3, kl.Conv3D))
    },
    "Conv2D, groups": Kernel(
        cases.convolution(4, 6, (3, 2), groups=2), lambda: kl.Conv2D(6, (3, 2), groups=2)
    ),
    "DepthwiseConv2D": Kernel(
        cases.convolution(2, 6, (3, 2), groups=2), lambda: kl.DepthwiseConv2D((3, 2), 1, "valid", 3)
    ),
    **{
        f"Conv{rank}DTranspose": Kernel(
            transposed(rank, 6, 5), lambda rank=rank, layer=layer: layer(5, window(rank), 2)
        )
        for rank, layer in (
            (1, kl.Conv1DTranspose),
            (2, kl.Conv2DTranspose),
            (3, kl.Conv3DTranspose),
        )
    },
    "Conv2DTranspose, equal": Kernel(transposed(2, 5, 5), lambda: kl.Conv2DTranspose(5, (3, 2), 2)),
}


class One(tn.Module):
    """One layer of PyTorch with other numbers than 0 and 1, called `layers.0`."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layers = tn.ModuleList([layer])
        for array in self.parameters():
            array.data.add_(torch.randn_like(array) * 0.3)

    def forward(self, x: Any) -> Any:
        return self.layers[0](x)


def batch(case: Case) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2, *case.obs_spec.shape)).astype(np.float32)


def torch_model(kernel: Kernel) -> tuple[Any, np.ndarray]:
    torch.manual_seed(0)
    x = batch(kernel.case)
    return One(kernel.make()), np.moveaxis(x, -1, 1) if x.ndim > 2 else x


def keras_model(kernel: Kernel) -> tuple[Any, np.ndarray]:
    keras.utils.set_random_seed(0)
    x = batch(kernel.case)
    model = keras.Sequential([keras.Input(x.shape[1:]), kernel.make()])
    random = np.random.default_rng(1)
    model.set_weights([each + random.normal(0, 0.3, each.shape) for each in model.get_weights()])
    return model, x


RECORDED = {
    **{f"torch {name}": (torch_model, kernel) for name, kernel in TORCH.items()},
    **{f"keras {name}": (keras_model, kernel) for name, kernel in KERAS.items()},
}


def check_formula(recording: Recording) -> None:
    """Compute the layer by its formula."""
    layers = [(each, layer_of(recording, each)) for each in recording.calls]
    ((call, layer),) = [(each, layer) for each, layer in layers if layer and layer.parameters]
    assert layer.formula is not None
    arrays = canonical_arrays(recording, call, layer)
    settings = {"training": False, **call.settings}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        y = layer.formula(settings, arrays, [recording.arrays[name] for name in call.inputs])
    np.testing.assert_allclose(y, recording.arrays[call.outputs[0]], atol=1e-5)


@pytest.mark.covering(12)
@pytest.mark.parametrize(("build", "kernel"), RECORDED.values(), ids=RECORDED)
def test_a_recorded_kernel_is_read_as_that_of_its_class(
    build: Callable[[Kernel], tuple[Any, np.ndarray]], kernel: Kernel, tmp_path: Path
) -> None:
    model, x = build(kernel)
    path = tmp_path / "recording.safetensors"
    record(model, x, out=str(path))
    check_formula(read_recording(path))
    for library, built in kernel.case.built.items():
        report = diff_recording(path, network(library, kernel.case.obs_spec, [built]))
        assert report.verdict == "equivalent" and not report.causes, f"{library}: {report}"
        assert {module.state for module in report.modules} == {"equal"}


def moved(arrays: Mapping[str, np.ndarray], library: str, target: Network, x: Any) -> Variables:
    """Put a file's arrays into a network."""
    source, variables, _ = network_of(arrays, library, target, "the file")
    paired = pair(source, variables, target, None, x, list(source.require_codec("").by_name))
    return move(variables, source, target, paired.targets)


@pytest.mark.covering(9)
@pytest.mark.parametrize("kernel", TORCH.values(), ids=TORCH)
def test_a_kernel_in_a_file_is_read_as_that_of_the_target(kernel: Kernel) -> None:
    model, x = torch_model(kernel)
    arrays = {name: array.detach().numpy() for name, array in model.state_dict().items()}
    expected = model(torch.from_numpy(np.array(x))).detach().numpy()
    if x.ndim > 2:
        x, expected = np.moveaxis(x, 1, -1), np.moveaxis(expected, 1, -1)
    for library, built in kernel.case.built.items():
        target = network(library, kernel.case.obs_spec, [built])
        variables = moved(arrays, "torch", target, jnp.asarray(x))
        outputs = target.apply(variables, jnp.asarray(x))[0]
        np.testing.assert_allclose(outputs, expected, atol=1e-4, err_msg=library)


def two_layers(*names: str) -> Network:
    """Build a convolution and a transposed one, whose kernels have equal shapes."""

    class Two(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = nn.Conv(3, (2, 2), name=names[0])(x)
            return nn.ConvTranspose(3, (2, 2), name=names[1])(x)

    return from_linen(Two(), Box((4, 4, 3)))


def test_a_kernel_that_fits_two_layers_of_the_target_is_refused() -> None:
    arrays = {
        f"{name}.{part}": np.ones(shape, np.float32)
        for name in ("one", "other")
        for part, shape in (("weight", (3, 3, 2, 2)), ("bias", (3,)))
    }
    with pytest.raises(TriglotError, match=r"one may be .*convolution or .*the target has both"):
        network_of(arrays, "torch", two_layers("first", "second"), "file")
    source, _, notes = network_of(arrays, "torch", two_layers("one", "other"), "file")
    kinds = {name: leaf.layer for name, leaf in source.require_codec("").by_name.items()}
    assert kinds["one/kernel"] == CONVOLUTION and kinds["other/kernel"] == TRANSPOSED
    assert [note.partition(" ")[0] for note in notes] == ["one", "other"]
    assert TRANSPOSED in notes[0] and CONVOLUTION in notes[1]


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_transposed_kernel_of_flax_is_read_by_its_shape(is_reversed: bool) -> None:
    case = transposed(2, 6, 5)
    x = jnp.asarray(batch(case))
    name = "linen reversed" if is_reversed else "linen"
    source, target = (network(n, case.obs_spec, [case.built[n]]) for n in (name, "equinox"))
    variables = source.init(jax.random.key(0))
    arrays = named_arrays(variables, source)
    output = target.apply(moved(arrays, "linen", target, x), x)[0]
    np.testing.assert_allclose(output, source.apply(variables, x)[0], atol=1e-5)


def test_a_transposed_kernel_of_flax_with_equal_channels_is_refused() -> None:
    case = transposed(2, 5, 5)
    source, target = (network(n, case.obs_spec, [case.built[n]]) for n in ("linen", "equinox"))
    arrays = named_arrays(source.init(jax.random.key(0)), source)
    with pytest.raises(TriglotError, match=r"--source"):
        network_of(arrays, "linen", target, "file")
