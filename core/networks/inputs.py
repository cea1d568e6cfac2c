"""What the default networks read: arrays, of which images are read by convolutions."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..errors import TriglotError
from ..specs import Box, Dict, Spec, floats, leaves, vector, vector_size


class Convolution(NamedTuple):
    """A square convolution without padding: `channels` outputs, `size` and `stride` in pixels."""

    channels: int
    size: int
    stride: int

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Compute the shape of its output from that of an image `[H, W, C]`."""
        return (*((side - self.size) // self.stride + 1 for side in shape[:2]), self.channels)


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
        for one in self.convolutions:
            shape = one.output_shape(shape)
        return shape


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
    found, rest = [], []
    for spec, shape in zip(inputs, shapes, strict=True):
        if convolutions is None or not is_image(spec):
            rest.append(shape)
        else:
            found.append(Path(shape, convolutions, len(convolutions) * len(found)))
    if rest:
        found.append(Path(rest[0] if len(rest) == 1 else (sum(map(math.prod, rest)),)))
    return tuple(found)


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


def plain(spec: Spec, value: Any, *, with_images: bool) -> Iterator[jax.Array]:
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


def check_sizes(found: Mapping[str, Box], convolutions: Sequence[Convolution]) -> None:
    """Check that images are large enough for convolutions without padding.

    Raises:
      TriglotError: if one is not.
    """
    least = 1
    for _, size, stride in reversed(convolutions):
        least = (least - 1) * stride + size
    for name, image in found.items():
        if min(image.shape[:2]) < least:
            sizes = listed(one.size for one in convolutions)
            strides = listed(one.stride for one in convolutions)
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


def joined(specs: Sequence[Any], inputs: Sequence[jax.Array], *, batched: bool = True) -> jax.Array:
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
