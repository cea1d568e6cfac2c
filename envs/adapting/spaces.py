"""Gymnasium's spaces and triglot's specs, and values of both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np

from ...core.errors import TriglotError, prefixed, require
from ...core.host_environment import to_dtype
from ...core.specs import (
    Bound,
    Box,
    Dict,
    Discrete,
    Leaf,
    MultiDiscrete,
    Spec,
    bound_of,
    check_fits,
)
from ...core.types import PyTree

if TYPE_CHECKING:
    from gymnasium import Space

AnySpace: TypeAlias = Any  # a `gymnasium.Space`; each class has attributes of its own

_SMALLEST = [float(np.finfo(dtype).tiny) for dtype in ("float32", "float64")]


def map_leaves(function: Callable[..., Any], spec: Spec, *values: Any, into: type = dict) -> Any:
    """Apply a function to each leaf of a spec, with the parts of values that it describes.

    Args:
      function: called with a leaf, and one part of each value.
      spec: of the values.
      values: dictionaries, tuples or objects with the structure of `spec`, such as observations or
        spaces.
      into: `Dict` if the function returns specs.

    Returns:
      What the function returns, in dictionaries with the structure of `spec`.
    """
    if not isinstance(spec, Dict):
        return function(spec, *values)
    return into(
        {
            name: map_leaves(function, child, *(part(v, name) for v in values), into=into)
            for name, child in spec.items
        }
    )


def part(whole: Any, name: str) -> Any:
    """Return a part of a dictionary, a tuple, whose parts have numbers as names, or an object."""
    if isinstance(whole, Mapping):
        return whole[name]
    return whole[int(name)] if name.isdecimal() else getattr(whole, name)


def as_returned(spec: Spec, returned: PyTree) -> Spec:
    """Put the dtypes of returned values into a spec, where a library declares others."""

    def corrected(leaf: Leaf, value: jax.Array | np.ndarray | jax.ShapeDtypeStruct) -> Leaf:
        return replace(leaf, dtype=str(value.dtype))

    return map_leaves(corrected, spec, returned, into=Dict)


def channels_last(spec: Spec) -> Spec:
    """Move the channels of images to the end: their first axis, if shorter than the others."""

    def moved(leaf: Leaf) -> Leaf:
        is_image = leaf.dtype == "uint8" and len(leaf.shape) == 3
        if not isinstance(leaf, Box) or not is_image or leaf.shape[0] >= min(leaf.shape[1:]):
            return leaf
        return replace(leaf, shape=(*leaf.shape[1:], leaf.shape[0]))

    return map_leaves(moved, spec, into=Dict)


def as_declared(spec: Spec, batch: PyTree) -> PyTree:
    """Copy a batch to the dtypes of a spec, and images to channels last where the spec has them."""

    def copied(leaf: Leaf, values: np.ndarray) -> np.ndarray:
        if values.shape[1:] != leaf.shape and len(leaf.shape) == 3:
            values = np.moveaxis(values, 1, -1)
        return np.ascontiguousarray(to_dtype(values, leaf.dtype, "an observation"))

    return map_leaves(copied, spec, batch)


def observed(space: AnySpace) -> AnySpace:
    """Convert a space to one of what networks read: without texts, and integers from 0 on.

    Args:
      space: of observations, a `gymnasium.Space`. `adapting.host` converts its values.

    Raises:
      TriglotError: if nothing but texts is in it.
    """
    spaces = require("gymnasium", "gymnasium").spaces
    readable = _observed(spaces, space)
    if readable is None:
        raise TriglotError(
            f"an observation of {space} has no numbers, and a text is left out, since networks "
            "read numbers only: encode it in a wrapper (gymnasium.wrappers.TransformObservation)."
        )
    return readable


def _observed(spaces: ModuleType, space: AnySpace) -> AnySpace | None:
    if isinstance(space, spaces.Text):
        return None
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(space.n, dtype=space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec, space.dtype)
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return space
    parts = {name: _observed(spaces, child) for name, child in _named(spaces, space).items()}
    parts = {name: part for name, part in parts.items() if part is not None}
    return spaces.Dict(parts) if parts else None


def _named(spaces: ModuleType, space: AnySpace) -> dict[str, AnySpace]:
    """Name the parts of a `Dict`, and those of a `Tuple` by their numbers."""
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    return {str(index): child for index, child in enumerate(space.spaces)}


def spec_from_space(space: AnySpace) -> Spec:
    """Convert a Gymnasium space to a spec with JAX's dtype.

    Without `jax_enable_x64`, 64-bit dtypes become 32-bit ones, if these hold every value within the
    declared bounds. A bound equal to the dtype's largest float, signed or 64-bit integer, which
    several libraries use for "unbounded", becomes infinite, and so does a lower bound equal to the
    smallest positive float, C++'s `numeric_limits::min()`.

    Args:
      space: a `gymnasium.Space`: a `Discrete` or `MultiDiscrete` that starts at 0, a `MultiBinary`,
        which becomes a `MultiDiscrete` of two values each, a `Box`, a `Dict` of these, or a
        `Tuple`, which becomes a `Dict` with the names "0", "1" and so on.

    Raises:
      MissingExtra: if Gymnasium is not installed.
      TriglotError: if no spec describes the space, or JAX's types cannot hold its values.
    """
    spec = _spec_from_space(space)
    if not isinstance(spec, Dict):  # its parts are checked already
        check_fits(spec, f"a value of the Gymnasium space {space}")
    return spec


def _spec_from_space(space: AnySpace) -> Spec:
    spaces = require("gymnasium", "gymnasium").spaces
    if isinstance(space, spaces.Discrete):
        if space.start != 0:
            raise TriglotError(
                f"a Discrete space must start at 0, got {space}: subtract {space.start} from its "
                "values in a wrapper (gymnasium.wrappers.TransformAction or TransformObservation)."
            )
        return Discrete(int(space.n), _jax_dtype(space.dtype))
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary) and len(space.shape) == 1:
        start = getattr(space, "start", np.zeros(()))
        if start.any():
            raise TriglotError(
                f"a MultiDiscrete space must start at 0, got {space}, which starts at {start}: "
                "subtract them in a wrapper (gymnasium.wrappers.TransformAction or "
                "TransformObservation)."
            )
        counts = getattr(space, "nvec", np.full(space.shape, 2))
        return MultiDiscrete(tuple(counts.tolist()), _jax_dtype(space.dtype))
    if isinstance(space, spaces.Box):
        return Box(
            space.shape, _jax_dtype(space.dtype), _bound(space.low, _SMALLEST), _bound(space.high)
        )
    if isinstance(space, spaces.Dict | spaces.Tuple):
        specs = {}
        for name, child in _named(spaces, space).items():
            with prefixed(f"in {name!r}, "):
                specs[name] = spec_from_space(child)
        return Dict(specs)
    raise TriglotError(
        f"the Gymnasium space {space} has no counterpart: expected a Discrete, a MultiDiscrete or "
        "MultiBinary with one axis, a Box, or a Dict or Tuple of these; convert it in a wrapper "
        "(gymnasium.wrappers.TransformAction, TransformObservation or FlattenObservation)."
    )


def action_spec_from_space(space: AnySpace, scale: float | None = None) -> Spec:
    """Convert a space of actions to a spec.

    Args:
      space: a `gymnasium.Space`.
      scale: bounds actions without bounds, as `Box.within` does; None leaves them.

    Raises:
      TriglotError: if no spec describes the space, or it takes no scale.
    """
    spec = spec_from_space(space)
    if scale is None:
        return spec
    if not isinstance(spec, Box):
        raise TriglotError(f"action_scale is for a Box of actions, got {spec}: leave it out.")
    return spec.within(scale)


def space_from_spec(spec: Spec) -> "Space[Any]":
    """Convert a spec to the Gymnasium space of the same values.

    Raises:
      MissingExtra: if Gymnasium is not installed.
      TriglotError: if `spec` is not one of triglot's.
    """
    spaces = require("gymnasium", "gymnasium").spaces
    match spec:
        case Discrete():
            return spaces.Discrete(spec.num_values, dtype=spec.dtype)
        case MultiDiscrete():
            return spaces.MultiDiscrete(spec.num_values, np.dtype(spec.dtype).type)
        case Box():
            low, high = spec.bounds()
            return spaces.Box(low, high, spec.shape, np.dtype(spec.dtype).type)
        case Dict():
            return spaces.Dict({name: space_from_spec(child) for name, child in spec.items})
    raise TriglotError(
        f"expected a Discrete, a MultiDiscrete, a Box or a Dict of triglot, got {spec!r}."
    )


def _jax_dtype(dtype: np.dtype) -> str:
    return str(jax.dtypes.canonicalize_dtype(dtype))


def _bound(array: np.ndarray, none: Sequence[float] = ()) -> Bound:
    values = array.astype(np.float64)
    if array.dtype.kind in "fi" or array.dtype == np.uint64:
        info = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
        if info.min < 0:
            values = np.where((values <= info.min) | np.isin(values, none), -np.inf, values)
        values = np.where(values >= info.max, np.inf, values)
    return bound_of(values)
