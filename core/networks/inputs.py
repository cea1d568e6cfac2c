"""What the default networks read: arrays, of which images are read by convolutions.

Only these networks scale bytes. Replay and rollouts store images as bytes, and a custom network
gets them so.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..errors import TriglotError
from ..specs import Box, Dict, Spec, floats, leaves, vector, vector_size
from ..types import ArrayT, PyTree

POOL_SIZE, POOL_STRIDE = 3, 2  # of max pooling, padded so that every pixel is in a window
SECTION_SIZE = 5  # convolutions in a residual section


class Convolution(NamedTuple):
    """A square convolution: `channels` outputs, `size` and `stride` in pixels.

    Attributes:
      same: whether the image is padded with zeros, so that a stride of 1 keeps its size.
      pooled: whether max pooling follows.
    """

    channels: int
    size: int
    stride: int
    same: bool = False
    pooled: bool = False

    @property
    def padding(self) -> str:
        """The padding's name in most libraries."""
        return "SAME" if self.same else "VALID"

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Compute the shape of its output from that of an image `[H, W, C]`."""
        sides = shape[:2]
        if self.same:
            sides = [-(-side // self.stride) for side in sides]
        else:
            sides = [(side - self.size) // self.stride + 1 for side in sides]
        if self.pooled:
            sides = [-(-side // POOL_STRIDE) for side in sides]
        return (*sides, self.channels)


def section(channels: int) -> tuple[Convolution, ...]:
    """List the convolutions of a residual section, see `core.networks.architecture.CNN`."""
    convolution = Convolution(channels, 3, 1, same=True)
    return (convolution._replace(pooled=True), *[convolution] * (SECTION_SIZE - 1))


def pool_padding(side: int) -> tuple[int, int]:
    """Compute the padding of max pooling before and after a side, as TensorFlow's `SAME`."""
    total = max((-(-side // POOL_STRIDE) - 1) * POOL_STRIDE + POOL_SIZE - side, 0)
    return total // 2, total - total // 2


class Path(NamedTuple):
    """What is computed from one array before the dense layers: convolutions, or nothing.

    Attributes:
      shape: of the array, without the batch.
      convolutions: over it.
      first: the index of the first one among all layers of the torso.
    """

    shape: tuple[int, ...]
    convolutions: tuple[Convolution, ...] = ()
    first: int = 0

    @property
    def indices(self) -> range:
        """The indices of the convolutions among the layers of the torso."""
        return range(self.first, self.first + len(self.convolutions))

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape after the convolutions."""
        shape = self.shape
        for convolution in self.convolutions:
            shape = convolution.output_shape(shape)
        return shape

    def convolved(
        self,
        features: ArrayT,
        convolution: Callable[[ArrayT, int], ArrayT],
        activated: Callable[[ArrayT, int], ArrayT],
        norm: Callable[[ArrayT, int], ArrayT],
        activation: Callable[[ArrayT], ArrayT],
        pooled: Callable[[ArrayT], ArrayT],
    ) -> ArrayT:
        """Apply the convolutions to a batch of images, with arrays of any library.

        Args:
          features: the images `[B, H, W, C]`, or what `convolution` reads.
          convolution: `convolution(features, index)` applies the convolution of an index.
          activated: `activated(features, index)`, its activation and normalization.
          norm: `norm(features, index)`, its normalization alone; does nothing without one.
          activation: alone.
          pooled: max pooling (`POOL_SIZE`, `POOL_STRIDE`, `pool_padding`).
        """
        if not any(convolution.pooled for convolution in self.convolutions):
            for index in self.indices:
                features = activated(convolution(features, index), index)
            return features
        for first in self.indices[::SECTION_SIZE]:
            features = pooled(norm(convolution(features, first), first))
            for index in (first + 1, first + 3):
                inner = norm(convolution(activation(features), index), index)
                inner = norm(convolution(activation(inner), index + 1), index + 1)
                features = features + inner
        return activation(features)


def paths(
    inputs: tuple[Spec, ...], convolutions: tuple[Convolution, ...] | None
) -> tuple[Path, ...]:
    """List the paths of arrays: one for each image, and one for all others joined.

    Args:
      inputs: the specs of the arrays.
      convolutions: over each image; None where images are no more than arrays.

    Raises:
      TriglotError: if an input is a dictionary.
    """
    shapes = [spec.shape for spec in inputs if not isinstance(spec, Dict)]
    if len(shapes) < len(inputs):
        raise TriglotError(f"{inputs} has no single shape.")
    found_paths, rest = [], []
    for spec, shape in zip(inputs, shapes, strict=True):
        if convolutions is None or not is_image(spec):
            rest.append(shape)
        else:
            found_paths.append(Path(shape, convolutions, len(convolutions) * len(found_paths)))
    if rest:
        found_paths.append(Path(rest[0] if len(rest) == 1 else (sum(map(math.prod, rest)),)))
    return tuple(found_paths)


def is_image(spec: Spec) -> bool:
    """Return whether a spec is that of an image, `[H, W, C]`."""
    return isinstance(spec, Box) and len(spec.shape) == 3


def images(spec: Spec) -> dict[str, Box]:
    """Collect the images of an observation by name."""
    return {name: leaf for name, leaf in leaves(spec) if isinstance(leaf, Box) and is_image(leaf)}


def plain_specs(spec: Spec, *, with_images: bool) -> Iterator[Box]:
    """Yield the specs of the arrays to which `plain` converts an input.

    Args:
      spec: of the input.
      with_images: whether images stay as they are; otherwise they are part of the vector.
    """
    if isinstance(spec, Box):
        yield spec
        return
    kept = images(spec) if with_images else {}
    yield from kept.values()
    if size := vector_size(spec) - sum(math.prod(image.shape) for image in kept.values()):
        yield Box((size,))


def plain(spec: Spec, value: PyTree, *, with_images: bool) -> Iterator[jax.Array]:
    """Convert an input to arrays: its images, then one vector of all else (`core.specs.vector`).

    A Box stays as it is. Arguments are those of `plain_specs`, and a batch `value`.
    """
    if isinstance(spec, Box):
        yield value
        return
    rest = []
    for (_, leaf), array in zip(leaves(spec), jax.tree.leaves(value), strict=True):
        if with_images and is_image(leaf):
            yield array
        else:
            rest.append(vector(leaf, array))
    if rest:
        yield concatenated(rest)


def check_sizes(image_specs: Mapping[str, Box], convolutions: Sequence[Convolution]) -> None:
    """Check that images are large enough for convolutions without padding.

    Raises:
      TriglotError: if one is not.
    """
    least = 1
    for convolution in reversed(convolutions):
        if not convolution.same:
            least = (least - 1) * convolution.stride + convolution.size
    for name, image in image_specs.items():
        if min(image.shape[:2]) < least:
            sizes = listed(convolution.size for convolution in convolutions)
            strides = listed(convolution.stride for convolution in convolutions)
            raise TriglotError(
                f"convolutions of size {sizes} and stride {strides} need images larger than "
                f"{least - 1}x{least - 1}, got {image.shape[:2]}{f' of {name!r}' * bool(name)}."
            )


def listed(numbers: Iterable[int]) -> str:
    """Join numbers for a message."""
    return ", ".join(map(str, numbers))


def concatenated(arrays: Sequence[jax.Array]) -> jax.Array:
    """Concatenate arrays along the last axis; one array stays as it is."""
    return arrays[0] if len(arrays) == 1 else jnp.concatenate(arrays, axis=-1)


def joined(specs: Sequence[Box], inputs: Sequence[jax.Array], *, batched: bool = True) -> jax.Array:
    """Convert inputs to one float32 array; several are flattened and concatenated.

    Args:
      specs: the `Box` of each input, whose bounds scale bytes (`core.specs.floats`).
      inputs: one array for each of them.
      batched: whether they have a leading batch axis.
    """
    scaled = [floats(spec, array) for spec, array in zip(specs, inputs, strict=True)]
    if len(inputs) == 1:
        return scaled[0]
    batch = inputs[0].shape[:1] if batched else ()
    return jnp.concatenate([array.reshape((*batch, -1)) for array in scaled], axis=-1)
