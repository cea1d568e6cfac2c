"""PyTorch's layers: the list is complete, and they are translated right from and to all others."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.backends import layer_cases as cases
from tests.backends.layer_cases import Case, network
from triglot import from_torch, translate
from triglot.backends.torch.layers import STORAGE
from triglot.core.errors import TriglotError
from triglot.core.network import Network, Variables
from triglot.core.specs import Box

torch: Any = pytest.importorskip("torch", reason="the extra torch is not installed")
nn: Any = torch.nn
weight_norm: Any = pytest.importorskip("torch.nn.utils.parametrizations").weight_norm

pytestmark = [
    pytest.mark.library_promotion("norms, attention and cells broadcast and promote"),
    pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning"),
]

# Classes without arrays or a formula; those that hold layers hold listed ones.
WITHOUT_PARAMETERS = """
AdaptiveAvgPool1d AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d AdaptiveMaxPool2d
AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool3d BCELoss BCEWithLogitsLoss CELU CTCLoss
ChannelShuffle CircularPad1d CircularPad2d CircularPad3d Container ConstantPad1d ConstantPad2d
ConstantPad3d CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss CrossMapLRN2d DataParallel
Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout Fold FractionalMaxPool2d
FractionalMaxPool3d GLU GaussianNLLLoss Hardshrink Hardtanh HingeEmbeddingLoss HuberLoss Identity
KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d LinearCrossEntropyLoss LocalResponseNorm LogSigmoid
LogSoftmax MSELoss MarginRankingLoss MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d Module ModuleDict
ModuleList MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d
PairwiseDistance PixelShuffle PixelUnshuffle PoissonNLLLoss RReLU ReflectionPad1d ReflectionPad2d
ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d Sequential SmoothL1Loss
SoftMarginLoss Softmax2d Softmin Softshrink Softsign Tanhshrink Threshold Transformer
TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer
TripletMarginLoss TripletMarginWithDistanceLoss Unflatten Unfold Upsample UpsamplingBilinear2d
UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d
"""
NEWER = {"LinearCrossEntropyLoss"}  # not in all versions


def test_every_public_layer_is_on_exactly_one_list() -> None:
    public = {
        name
        for name, member in vars(nn).items()
        if inspect.isclass(member) and issubclass(member, nn.Module) and name[0] != "_"
    }
    listed = [*STORAGE.layers, *WITHOUT_PARAMETERS.split()]
    assert sorted(name for name in listed if name not in NEWER - public) == sorted(public)


class Layer(NamedTuple):
    """How PyTorch builds a layer, and calls it on a batch with the channels last."""

    case: Case
    make: Callable[[], Any]
    call: Callable[[Any, Any], Any] = lambda layer, x: layer(x)


def channels_first(layer: Any, x: Any) -> Any:
    # PyTorch 2.13 crashes in the gradient of a group norm whose input is not contiguous.
    return layer(x.movedim(-1, 1).contiguous()).movedim(1, -1)


LISTED: dict[str, Layer] = {
    "dense": Layer(cases.dense(3, 3), lambda: nn.Linear(3, 3)),
    "dense, unequal": Layer(cases.dense(2, 3), lambda: nn.Linear(2, 3)),
    "convolution 1D": Layer(
        cases.convolution(2, 4, (3,), stride=2), lambda: nn.Conv1d(2, 4, 3, 2), channels_first
    ),
    "convolution 2D": Layer(
        cases.convolution(3, 3, (3, 3)), lambda: nn.Conv2d(3, 3, 3), channels_first
    ),
    "convolution 2D, groups": Layer(
        cases.convolution(4, 6, (2, 2), groups=2),
        lambda: nn.Conv2d(4, 6, 2, groups=2),
        channels_first,
    ),
    "convolution 3D": Layer(
        cases.convolution(2, 4, (3, 2, 1)), lambda: nn.Conv3d(2, 4, (3, 2, 1)), channels_first
    ),
    "transposed 1D": Layer(
        cases.transposed(3, 3, (3,)), lambda: nn.ConvTranspose1d(3, 3, 3), channels_first
    ),
    "transposed 2D": Layer(
        cases.transposed(2, 5, (3, 2), stride=2),
        lambda: nn.ConvTranspose2d(2, 5, (3, 2), 2),
        channels_first,
    ),
    "transposed 3D": Layer(
        cases.transposed(2, 2, (2, 2, 2)), lambda: nn.ConvTranspose3d(2, 2, 2), channels_first
    ),
    "transposed 2D, groups": Layer(
        cases.grouped_transposed(4, 6, (3, 2), groups=2),
        lambda: nn.ConvTranspose2d(4, 6, (3, 2), 2, groups=2),
        channels_first,
    ),
    "weight normalization": Layer(
        cases.weight_norm("dense", "outputs"), lambda: weight_norm(nn.Linear(2, 5))
    ),
    "weight normalization, inputs": Layer(
        cases.weight_norm("dense", "inputs"), lambda: weight_norm(nn.Linear(2, 5), dim=1)
    ),
    "weight normalization, one norm": Layer(
        cases.weight_norm("dense", "the kernel"),
        lambda: weight_norm(nn.Linear(2, 5), dim=None),
    ),
    "weight normalization, by a hook": Layer(
        cases.weight_norm("dense", "outputs"), lambda: nn.utils.weight_norm(nn.Linear(2, 5))
    ),
    "weight normalization, convolution": Layer(
        cases.weight_norm("convolution", "outputs"),
        lambda: weight_norm(nn.Conv2d(2, 5, (3, 2))),
        channels_first,
    ),
    "weight normalization, transposed": Layer(
        cases.weight_norm("transposed", "outputs"),
        lambda: weight_norm(nn.ConvTranspose2d(2, 5, (3, 2), 2), dim=1),
        channels_first,
    ),
    "weight normalization, transposed, inputs": Layer(
        cases.weight_norm("transposed", "inputs"),
        lambda: weight_norm(nn.ConvTranspose2d(2, 5, (3, 2), 2)),
        channels_first,
    ),
    "embedding": Layer(
        cases.embedding(3, 3),
        lambda: nn.Embedding(3, 3),
        lambda layer, x: layer(torch.arange(x.shape[0]) % 3) + x,
    ),
    "layer normalization": Layer(cases.layer_norm(4), lambda: nn.LayerNorm(4)),
    "RMS normalization": Layer(cases.rms_norm(4), lambda: nn.RMSNorm(4, eps=1e-5)),
    "group normalization": Layer(
        cases.group_norm(4, 2), lambda: nn.GroupNorm(2, 4), channels_first
    ),
    "PReLU": Layer(cases.prelu(4), nn.PReLU),
    "attention": Layer(
        cases.attention(4, 2, 2),
        lambda: nn.MultiheadAttention(4, 2, batch_first=True),
        lambda layer, x: layer(x, x, x)[0],
    ),
}


def of_torch(layer: Layer) -> Network:
    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([layer.make()])

        def forward(self, x: Any) -> Any:
            return layer.call(self.layers[0], x)

    return from_torch(One, layer.case.obs_spec)


@pytest.mark.covering(12)
@pytest.mark.parametrize("name", LISTED)
def test_a_layer_is_translated_from_and_to_all_libraries(name: str) -> None:
    layer = LISTED[name]
    target = of_torch(layer)
    shapes = jax.eval_shape(target.init, jax.random.key(0)).params
    x = jax.random.normal(jax.random.key(1), (3, *layer.case.obs_spec.shape))
    rng = np.random.default_rng(0)
    params = {
        n: jnp.asarray(rng.normal(size=a.shape), jnp.float32) for n, a in sorted(shapes.items())
    }
    variables = Variables(params=params, state={})
    expected = jax.jit(lambda: target.apply(variables, x)[0])()
    for library, built in layer.case.built.items():
        other = network(library, layer.case.obs_spec, [built])
        moved = translate(variables, target, other)
        found = jax.jit(lambda other=other, moved=moved: other.apply(moved, x)[0])()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=library)
        chex.assert_trees_all_equal(translate(moved, other, target), variables)


def test_what_is_not_listed_is_refused_with_a_reason() -> None:
    spec = Box((3,))
    source = from_torch(lambda: nn.Sequential(nn.Linear(3, 3)), spec)
    squared = of_torch(
        Layer(Case(spec, {}), lambda: nn.Bilinear(3, 3, 3), lambda layer, x: layer(x, x))
    )
    with pytest.raises(TriglotError, match="no other library has it"):
        translate(squared.init(jax.random.key(0)), squared, source)

    class Turned(nn.Linear):
        def forward(self, x: Any) -> Any:
            return x @ self.weight + self.bias

    turned = from_torch(lambda: nn.Sequential(Turned(3, 3)), spec)
    with pytest.raises(TriglotError, match=r"only its author knows its layout"):
        translate(turned.init(jax.random.key(0)), turned, source)


def test_the_shape_of_a_batch_norm_is_that_of_the_others() -> None:
    target = from_torch(lambda: nn.Sequential(nn.BatchNorm1d(3)), Box((3,)))
    assert target.codec is not None
    assert sorted(target.codec.by_name) == ["0/bias", "0/scale"]
