"""Network architectures independent of the library: an algorithm asks, a library builds."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp

from ..errors import TriglotError, unknown
from ..hyper import PerLayer, check_count, one_of, only_for
from ..specs import Box, Discrete, Spec
from ..types import AnyConfig, Obs, PyTree
from .inputs import (
    Convolution,
    Path,
    check_sizes,
    images,
    is_image,
    joined,
    listed,
    paths,
    plain,
    plain_specs,
    section,
)

SQRT_2 = 2.0**0.5


NORMALIZATIONS = ("none", "layer", "batch")
"""What may normalize the outputs of a torso's layers."""

# One function in all libraries, whose defaults differ; the epsilons of PQN's and CrossQ's authors.
# A running statistic is momentum * itself + (1 - momentum) * the batch's. Both factors are float32
# numbers, which 0.99 is not: libraries compute its complement in different precisions.
LAYER_NORM_EPSILON = 1e-6
BATCH_NORM_EPSILON = 1e-3
BATCH_NORM_MOMENTUM = 1.0 - 5 / 512


@dataclass(frozen=True)
class MLP:
    """Dense layers of `hidden_sizes`, each orthogonal at `scale` with a zero bias.

    A `scale` of None leaves the library's default initializers.

    Attributes:
      normalization: of each layer's outputs before the activation, with a scale and a bias of its
        own: `layer` over the features, of images over the channels (Ba et al. 2016,
        https://arxiv.org/abs/1607.06450), or `batch` (Ioffe and Szegedy 2015,
        https://arxiv.org/abs/1502.03167), by running statistics except in training.
      normalize_inputs: whether the inputs are normalized alike.
      normalize_after_activation: normalize what the activations return, not what they read.
    """

    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    scale: float | None = SQRT_2
    normalization: str = "none"
    normalize_inputs: bool = False
    normalize_after_activation: bool = False

    # Libraries build an MLP as a CNN without convolutions.
    channels: ClassVar[tuple[int, ...]] = ()
    convolutions: ClassVar[tuple[Convolution, ...]] = ()


@dataclass(frozen=True)
class CNN:
    """Square convolutions, then dense layers; inputs `[B, H, W, C]`.

    The defaults are the Maze network of the Equinox tutorial: 4x4 with 3 channels, relu, flatten,
    64 units, relu. `CNN((32, 64, 64), (8, 4, 3), (512,), stride=(4, 2, 1))` is the network of
    Mnih et al. 2015, https://doi.org/10.1038/nature14236, section "Model architecture".

    Attributes:
      channels: of the convolutions, one number each.
      kernel_size, stride: one number for all convolutions, or one each.
      hidden_sizes, activation, scale, normalization: as those of an MLP.
      normalize_inputs, normalize_after_activation: likewise.
      residual: whether each of `channels` is a section of IMPALA's network instead of a
        convolution: a convolution, max pooling of 3x3 pixels at a stride of 2, and two residual
        blocks of two convolutions each (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561,
        figure 3). Kernels are 3x3, and images are padded so that a convolution keeps their size.
    """

    channels: tuple[int, ...] = (3,)
    kernel_size: PerLayer = 4
    hidden_sizes: tuple[int, ...] = (64,)
    activation: str = "relu"
    scale: float | None = SQRT_2
    stride: PerLayer = 1
    normalization: str = "none"
    normalize_inputs: bool = False
    normalize_after_activation: bool = False
    residual: bool = False

    @property
    def convolutions(self) -> tuple[Convolution, ...]:
        """The convolutions in order.

        Raises:
          TriglotError: if there are more or fewer sizes or strides than convolutions, or residual
            blocks of other sizes or strides.
        """
        if self.residual:
            if (self.kernel_size, self.stride) != (3, 1):
                raise TriglotError(
                    "residual blocks have convolutions of 3x3 at a stride of 1, got kernel_size "
                    f"{self.kernel_size} and stride {self.stride}: leave both out."
                )
            return tuple(convolution for width in self.channels for convolution in section(width))
        sizes = self._for_each("kernel_size", self.kernel_size)
        strides = self._for_each("stride", self.stride)
        return tuple(map(Convolution, self.channels, sizes, strides))

    def _for_each(self, name: str, setting: PerLayer) -> tuple[int, ...]:
        number = len(self.channels)
        values = setting if isinstance(setting, tuple) else (setting,)
        if len(values) not in (1, number):
            raise TriglotError(
                f"{number} convolutions (channels {listed(self.channels)}) take one {name} for "
                f"all or {number}, got {len(values)}: {listed(values)}."
            )
        return values if len(values) == number else values * number


@dataclass(frozen=True)
class Table:
    """A lookup table: one row of values per head and discrete observation, `init` at the start."""

    init: float = 0.0


@dataclass(frozen=True)
class RecurrentCell:
    """A recurrent cell between torso and heads, with the same initializers in all libraries.

    Its carry is a dictionary of float32 `[N, size]`: `hidden`, and `cell` for an LSTM; zeros at an
    episode's start.

    Attributes:
      kind: `lstm` or `gru`. Haiku's GRU computes a different function (it applies the reset gate
        before the recurrent product), so its weights cannot be translated.
      size: number of units.
    """

    kind: str = "lstm"
    size: int = 64

    def __post_init__(self) -> None:
        if self.kind not in CELLS:
            raise unknown("recurrent cell", self.kind, CELLS)
        check_count("a recurrent cell's size", self.size)

    def initial_carry(self, num_envs: int) -> dict[str, jax.Array]:
        """Build the carry at an episode's start."""
        names = ("cell", "hidden") if self.kind == "lstm" else ("hidden",)
        return {name: jnp.zeros((num_envs, self.size), jnp.float32) for name in names}


CELLS = ("lstm", "gru")
"""The kinds of recurrent cells."""

Layers: TypeAlias = MLP | CNN
Torso: TypeAlias = Layers | Table


@dataclass(frozen=True)
class Head:
    """One output of a network.

    Attributes:
      size: number of outputs `[B, size]`; None for a scalar, `[B]`.
      scale: gain of its orthogonal initializer; None for the library's default initializers.
      dueling: sum a value and mean-free advantages (Wang et al. 2016, equation 9,
        https://arxiv.org/abs/1511.06581) instead of one dense layer.
      state_independent: the initial value of `size` parameters that are the output for every
        observation, instead of a dense layer; None for a layer.
      atoms: outputs for each of the `size`, `[B, size, atoms]`, such as a distribution for each
        action; None for one number each.
      offset: added to the outputs.
    """

    size: int | None = None
    scale: float | None = 1.0
    dueling: bool = False
    state_independent: float | None = None
    atoms: int | None = None
    offset: float = 0.0

    def __post_init__(self) -> None:
        if self.offset and (self.state_independent is not None or self.atoms is not None):
            raise TriglotError("a head with an offset is a dense layer without atoms.")
        if self.state_independent is not None and (self.size is None or self.dueling):
            raise TriglotError("a state-independent head needs a size and cannot be dueling.")
        if self.atoms is not None and (self.size is None or self.state_independent is not None):
            raise TriglotError("a head with atoms needs a size and cannot be state-independent.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its output, without the batch axis."""
        return tuple(size for size in (self.size, self.atoms) if size is not None)


def policy_head(num_actions: int) -> Head:
    """Describe the logits of a categorical policy, nearly uniform at the start."""
    return Head(size=num_actions, scale=0.01)


def gaussian_heads(
    num_actions: int, initial_std: float, *, state_dependent_std: bool = False
) -> tuple[tuple[str, Head], ...]:
    """Describe a diagonal Gaussian's `mean` and `log_std`."""
    start = math.log(initial_std)
    log_std = Head(size=num_actions, state_independent=start)
    if state_dependent_std:
        log_std = Head(size=num_actions, scale=0.01, offset=start)
    return ("mean", policy_head(num_actions)), ("log_std", log_std)


def value_head() -> Head:
    """Describe a state value `[B]`."""
    return Head(size=None, scale=1.0)


def q_head(num_actions: int, *, dueling: bool = False) -> Head:
    """Describe action values `[B, num_actions]`."""
    return Head(size=num_actions, scale=1.0, dueling=dueling)


@dataclass(frozen=True)
class NetworkSpec:
    """A torso with named heads over one observation.

    It is checked when the network is built, not when it is described: an algorithm may describe
    default networks for observations that only a custom network can read.

    Attributes:
      obs_spec: one observation; an MLP flattens it (`core.specs.vector`), a CNN reads each image
        `[H, W, C]` in it by convolutions of its own and flattens the rest, a table takes a
        `Discrete`. A tuple of several specs becomes several arguments.
      torso: the shared layers.
      heads: `(name, head)` pairs; the outputs are a dictionary by these names.
      cell: a recurrent cell before the heads, or None.
      ensemble_size: members of an ensemble (`ensemble`), such as 2 for twin critics; 1 for none.
      noise: if given, all dense layers are noisy (`core.networks.noise`), and this is their noise
        at the start, such as 0.5.
      lecun_normal: draw kernels as Flax does, from a truncated normal of variance 1 / inputs.
      dropout: probability with which each output of a dense layer of the torso is 0 in a call with
        a key, before its normalization (`core.networks.noise`).
    """

    obs_spec: Spec | tuple[Spec, ...]
    torso: Torso
    heads: tuple[tuple[str, Head], ...]
    cell: RecurrentCell | None = None
    ensemble_size: int = 1
    noise: float | None = None
    lecun_normal: bool = False
    dropout: float = 0.0

    def check(self) -> None:
        """Reject a torso that cannot read such observations; called when the network is built.

        Raises:
          TriglotError: naming the observation and the torso.
        """
        spec, torso = self.obs_spec, self.torso
        if isinstance(torso, Table) and not isinstance(spec, Discrete):
            raise TriglotError(f"a table reads a Discrete observation, got {spec}; use an MLP.")
        if isinstance(torso, Table) and self.cell is not None:
            raise TriglotError(
                "a table has no recurrent cell: use an MLP over one-hot observations."
            )
        if self.noise is not None and (isinstance(torso, Table) or self.cell is not None):
            raise TriglotError(
                "noisy layers are dense ones of a network without a recurrent cell: use an MLP or "
                "a CNN."
            )
        if not 0.0 <= self.dropout < 1.0:
            raise TriglotError(f"dropout must be at least 0 and below 1, got {self.dropout}.")
        if self.dropout and (isinstance(torso, Table) or self.cell or self.noise is not None):
            raise TriglotError(
                "dropout is for the dense layers of a network without a recurrent cell and without "
                "noisy layers: use an MLP or a CNN."
            )
        if isinstance(torso, MLP | CNN):
            for size in (*torso.channels, *torso.hidden_sizes):
                check_count("a layer's number of units", size)
            if torso.normalization not in NORMALIZATIONS:
                raise unknown("normalization", torso.normalization, NORMALIZATIONS)
            if torso.normalize_inputs and torso.normalization == "none":
                raise TriglotError(
                    "inputs are normalized as the layers are: choose the normalization layer or "
                    "batch."
                )
            if torso.normalize_after_activation and isinstance(torso, CNN) and torso.residual:
                raise TriglotError(
                    "residual blocks are normalized before the activations: choose another torso."
                )
            if torso.normalize_after_activation and torso.normalization == "none":
                raise TriglotError(
                    "nothing is normalized after the activations: choose the normalization layer "
                    "or batch."
                )
        if isinstance(torso, MLP | CNN) and not self.plain.inputs:
            raise TriglotError(f"a network reads numbers, and there are none in {spec}.")
        if isinstance(torso, CNN):
            self._check_images(torso)

    def _check_images(self, torso: CNN) -> None:
        image_groups = [images(spec) for spec in self.inputs]
        if not any(image_groups):
            raise TriglotError(f"a CNN reads [H, W, C] images, got {self.obs_spec}; use an MLP.")
        if torso.normalize_inputs and len(self.plain.paths) > 1:
            raise TriglotError(
                "inputs are normalized where they are one array, and this network reads "
                f"{self.obs_spec}: use an algorithm that does not normalize them, or a custom "
                "network."
            )
        for image in image_groups:
            check_sizes(image, torso.convolutions)

    def with_library_initializers(self) -> "NetworkSpec":
        """Leave all layers' initializers to the library; a table and a `log_std` keep theirs."""
        torso = self.torso if isinstance(self.torso, Table) else replace(self.torso, scale=None)
        heads = tuple((name, replace(head, scale=None)) for name, head in self.heads)
        return replace(self, torso=torso, heads=heads, lecun_normal=False)

    def flat(self) -> "NetworkSpec":
        """Describe the layers that a library builds: a head with atoms as plain ones, `[B, n]`.

        A library builds no offsets; `arranged` adds them.
        """
        heads: list[tuple[str, Head]] = []
        for name, head in self.heads:
            if head.atoms is None:
                heads.append((name, head))
                continue
            assert head.size is not None  # for the type checker
            row = replace(head, size=head.atoms, dueling=False, atoms=None)
            all_rows = replace(row, size=head.size * head.atoms)
            names = (f"{name}_advantage", f"{name}_value") if head.dueling else (name,)
            heads += zip(names, (all_rows, row), strict=False)
        return replace(self, heads=tuple(heads))

    def arranged(self, outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Reshape and sum the outputs of `flat` to those of the heads, `[B, size, atoms]`."""
        heads = {}
        for name, head in self.heads:
            if head.atoms is None:
                heads[name] = outputs[name] + head.offset if head.offset else outputs[name]
                continue
            all_rows = outputs[f"{name}_advantage" if head.dueling else name]
            heads[name] = rows = all_rows.reshape((all_rows.shape[0], -1, head.atoms))
            if head.dueling:
                value = outputs[f"{name}_value"][:, None]
                heads[name] = value + rows - rows.mean(axis=1, keepdims=True)
        return heads

    def normalized(
        self, normalization: str, *, inputs: bool = False, after_activation: bool = False
    ) -> "NetworkSpec":
        """Normalize the outputs of its layers, and its `inputs`; a table has none."""
        if isinstance(self.torso, Table):
            return self
        torso = replace(
            self.torso,
            normalization=normalization,
            normalize_inputs=inputs,
            normalize_after_activation=after_activation,
        )
        return replace(self, torso=torso)

    @property
    def layers(self) -> Layers:
        """The torso, which must have layers."""
        if isinstance(self.torso, Table):
            raise TriglotError("a table has no layers: use an MLP or a CNN.")
        return self.torso

    @property
    def table(self) -> Table:
        """The torso, which must be a table."""
        if not isinstance(self.torso, Table):
            raise TriglotError(f"expected a Table as torso, got {self.torso}.")
        return self.torso

    @property
    def inputs(self) -> tuple[Spec, ...]:
        """The specs of the inputs, one per argument."""
        return self.obs_spec if isinstance(self.obs_spec, tuple) else (self.obs_spec,)

    @property
    def plain(self) -> "NetworkSpec":
        """The network that reads what `to_plain` returns: arrays instead of dictionaries.

        A table stays as it is.
        """
        if isinstance(self.torso, Table):
            return self
        has_images = isinstance(self.torso, CNN)
        specs = tuple(
            part for spec in self.inputs for part in plain_specs(spec, with_images=has_images)
        )
        return replace(self, obs_spec=specs[0] if len(specs) == 1 else specs)

    def to_plain(self, inputs: PyTree) -> PyTree:
        """Convert inputs `[B, ...]`, as a network takes them, to those of the `plain` network."""
        obs, carry = inputs if self.cell is not None else (inputs, None)
        parts = obs if isinstance(self.obs_spec, tuple) else (obs,)
        has_images = isinstance(self.torso, CNN)
        pairs = zip(self.inputs, parts, strict=True)
        arrays = tuple(
            array for spec, value in pairs for array in plain(spec, value, with_images=has_images)
        )
        arrays = arrays[0] if len(arrays) == 1 else arrays
        return arrays if self.cell is None else (arrays, carry)

    def split(self, arguments: tuple[PyTree, ...]) -> tuple[tuple[Obs, ...], PyTree]:
        """Separate the observations from what follows: a carry, noise or masks, or nothing."""
        if self.cell is not None:
            obs, carry = arguments
            return obs if isinstance(obs, tuple) else (obs,), carry
        count = len(self.inputs)
        return arguments[:count], arguments[count] if self.drawn_sizes else {}

    def parts(
        self, observations: tuple[Obs, ...], joined: Callable[..., Any] = joined
    ) -> list[Any]:
        """Convert the observations of a `plain` network to floats, one array for each path.

        Args:
          observations: as `split` returns them.
          joined: `core.networks.inputs.joined`, or that of a library whose arrays are not JAX's.
        """
        if len(self.paths) == 1:
            return [joined(self.inputs, observations)]
        pairs = list(zip(self.inputs, observations, strict=True))
        pictures = [joined((spec,), (array,)) for spec, array in pairs if is_image(spec)]
        rest = [(spec, array) for spec, array in pairs if not is_image(spec)]
        return [*pictures, joined(*zip(*rest, strict=True))] if rest else pictures

    @property
    def paths(self) -> tuple[Path, ...]:
        """What a `plain` network computes before its dense layers, for each array it reads.

        A CNN has a path for each image, and one for all other inputs; an MLP has one.
        """
        torso = self.layers
        return paths(self.inputs, torso.convolutions if isinstance(torso, CNN) else None)

    @property
    def convolutions(self) -> tuple[tuple[int, Convolution], ...]:
        """The convolutions over all images, each with the number of channels that it reads."""
        pairs: list[tuple[int, Convolution]] = []
        for path in self.paths:
            channels = [
                *path.shape[-1:],
                *(convolution.channels for convolution in path.convolutions),
            ]
            pairs += zip(channels, path.convolutions, strict=False)
        return tuple(pairs)

    @property
    def num_convolutions(self) -> int:
        """The number of convolutions over all images; the dense layers are numbered after them."""
        return len(self.convolutions)

    @property
    def widths(self) -> tuple[int, ...]:
        """The numbers of outputs of all layers of the torso."""
        return (
            *(convolution.channels for _, convolution in self.convolutions),
            *self.layers.hidden_sizes,
        )

    @property
    def num_features(self) -> int:
        """The number of inputs of the first dense layer."""
        return sum(math.prod(path.output_shape) for path in self.paths)

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """The shape of one observation; of several inputs, that of all flattened and joined."""
        shapes = [path.shape for path in self.paths]
        return shapes[0] if len(shapes) == 1 else (sum(map(math.prod, shapes)),)

    @property
    def noise_sizes(self) -> dict[str, int]:
        """The numbers of noise that each noisy layer reads: one per input, one per output."""
        if self.noise is None:
            return {}
        sizes, size = {}, self.num_features
        for index, width in enumerate(self.layers.hidden_sizes, self.num_convolutions):
            sizes[f"torso_{index}"], size = size + width, width
        for name, head in self.heads:
            if head.dueling:
                sizes[f"head_{name}_value"] = size + 1
                sizes[f"head_{name}_advantage"] = size + (head.size or 1)
            elif head.state_independent is None:
                sizes[f"head_{name}"] = size + (head.size or 1)
        return sizes

    @property
    def drawn_sizes(self) -> dict[str, int]:
        """The sizes of the noise or of the masks that are drawn in each call, by layer."""
        if not self.dropout:
            return self.noise_sizes
        indices = range(
            self.num_convolutions, self.num_convolutions + len(self.layers.hidden_sizes)
        )
        widths = zip(indices, self.layers.hidden_sizes, strict=True)
        return {f"torso_{index}": width for index, width in widths}

    @property
    def num_rows(self) -> int:
        """The number of rows of a table, one per discrete observation."""
        if not isinstance(self.obs_spec, Discrete):
            raise TriglotError(f"{self.obs_spec} cannot index a table.")
        return self.obs_spec.num_values


IMAGE_TORSOS = {
    "minatar": CNN((16,), 3, (128,)),
    "nature": CNN((32, 64, 64), (8, 4, 3), (512,), stride=(4, 2, 1)),
    "impala": CNN((16, 32, 32), 3, (256,), residual=True),
}
"""Published networks for images: of Young and Tian 2019 (https://arxiv.org/abs/1903.03176, section
3), Mnih et al. 2015 (section "Model architecture"), and Espeholt et al. 2018 (figure 3, right)."""

SOURCES = {
    "minatar": "Young and Tian 2019",
    "nature": "Mnih et al. 2015",
    "impala": "Espeholt et al. 2018",
}

# The smallest images that the three convolutions of Mnih et al. can read, and that of MinAtar.
NATURE_SIDE = 36
MINATAR_SIDE = 3


@dataclass(frozen=True, kw_only=True)
class ConvolutionConfig:
    """Options of an algorithm whose network may read images.

    Attributes:
      torso: the network for images: `minatar` (one convolution of 16 filters of 3x3, 128 units),
        `nature` (32 8x8, 64 4x4 and 64 3x3 filters at strides 4, 2 and 1, 512 units), `impala`
        (residual sections of 16, 32 and 32 channels, 256 units); `auto` for `nature` from 36 pixels
        on each side, `minatar` below, or the given `channels`.
      channels: of the convolutions, one number each, for image observations; of `impala`, of the
        residual sections. None: those of the torso. No number: dense layers alone.
      kernel_size: of the convolutions, in pixels: one number for all, or one each. None: that of
        the torso; 4 for given `channels`.
      stride: of the convolutions, in pixels, likewise; 1 for given `channels`.
    """

    torso: str = only_for("networks", one_of("auto", *IMAGE_TORSOS))
    channels: tuple[int, ...] | None = only_for("networks", None)
    kernel_size: PerLayer | None = only_for("networks", None)
    stride: PerLayer | None = only_for("networks", None)

    def image_torso(self, image_specs: Mapping[str, Box]) -> tuple[str, CNN]:
        """Choose the network for images.

        Args:
          image_specs: the images of an observation by name.

        Returns:
          Its name, a key of `IMAGE_TORSOS` or "" for one that the options describe; and the torso.
        """
        side = min(min(image.shape[:2]) for image in image_specs.values())
        name, chosen = self.torso, CNN()
        if name == "auto" and self.channels is not None:
            name = ""
        elif name == "auto":
            name = "nature" if side >= NATURE_SIDE else "minatar" if side >= MINATAR_SIDE else ""
            chosen = CNN((), hidden_sizes=IMAGE_TORSOS["minatar"].hidden_sizes)
        layer_options = {
            option: value
            for option in ("channels", "kernel_size", "stride")
            if (value := getattr(self, option)) is not None
        }
        return name, replace(IMAGE_TORSOS.get(name, chosen), **layer_options)


def default_torso(
    obs_spec: Spec,
    hidden_sizes: tuple[int, ...] | None = None,
    convolutions: ConvolutionConfig = ConvolutionConfig(),
    activation: str = MLP.activation,
    vector_sizes: tuple[int, ...] = MLP.hidden_sizes,
) -> Torso:
    """Choose a torso by observation: a table for Discrete, a CNN if it has images, else an MLP.

    Args:
      obs_spec: one observation.
      hidden_sizes: units of the dense layers; None for the torso's default.
      convolutions: for images.
      activation: of an MLP.
      vector_sizes: the default of an MLP.
    """
    if isinstance(obs_spec, Discrete):
        return Table()
    if image_specs := images(obs_spec):
        _, torso = convolutions.image_torso(image_specs)
        return torso if hidden_sizes is None else replace(torso, hidden_sizes=hidden_sizes)
    return MLP(
        hidden_sizes=vector_sizes if hidden_sizes is None else hidden_sizes, activation=activation
    )


def describe_image_torso(spec: NetworkSpec, config: AnyConfig) -> str | None:
    """Say which network was chosen for images, and why; None where the options name it.

    Args:
      spec: of a network that reads the observation.
      config: of the algorithm.
    """
    image_specs = {
        name: image for obs_spec in spec.inputs for name, image in images(obs_spec).items()
    }
    torso = spec.torso
    if not (image_specs and isinstance(torso, CNN) and isinstance(config, ConvolutionConfig)):
        return None
    if config.torso != "auto" or config.channels is not None:
        return None
    name, _ = config.image_torso(image_specs)
    sizes = " and ".join(
        sorted({"x".join(map(str, image.shape)) for image in image_specs.values()})
    )
    layers = [
        f"{width} of {size}x{size} at stride {stride}"
        for width, size, stride, *_ in torso.convolutions
    ]
    filters = (
        f"convolution filters ({', '.join(layers)}), then " if layers else "no convolutions, and "
    )
    units = f"dense layers of {listed(torso.hidden_sizes)} units"
    if name == "nature":
        why = f"a side of {NATURE_SIDE} pixels or more"
    elif name == "minatar":
        why = f"a side below {NATURE_SIDE} pixels"
    else:
        why = f"a side below {MINATAR_SIDE} pixels"
    source = f", as {SOURCES[name]}" if name else ""
    return (
        f"images of {sizes} have {why}, so the network has {filters}{units}{source} (--torso, "
        "--channels and --hidden-sizes change it)"
    )
