"""Gymnasium: its spaces and our specs, each from the other."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..core.errors import TriglotError, require
from ..core.specs import Bound, Box, Dict, Discrete, Spec

if TYPE_CHECKING:
    from gymnasium import Space


def spec_from_space(space: Any) -> Spec:
    """Convert a Gymnasium space to a spec of the dtype that JAX gives its values.

    Without `jax_enable_x64`, 64-bit values become 32-bit ones. A bound that is the dtype's largest
    float, which several libraries write where they mean "unbounded", becomes infinite.

    Args:
      space: a `gymnasium.Space`: a `Discrete` that starts at 0, a `Box`, or a `Dict` of these.

    Raises:
      MissingExtra: if Gymnasium is not installed.
      TriglotError: if the space has no counterpart among the specs.
    """
    spaces = require("gymnasium", "gymnasium").spaces
    if isinstance(space, spaces.Discrete):
        if space.start != 0:
            raise TriglotError(
                f"a Discrete space must start at 0, got {space}: subtract {space.start} from its "
                "values in a wrapper (gymnasium.wrappers.TransformAction or TransformObservation)."
            )
        return Discrete(int(space.n), _jax_dtype(space.dtype))
    if isinstance(space, spaces.Box):
        return Box(space.shape, _jax_dtype(space.dtype), _bound(space.low), _bound(space.high))
    if isinstance(space, spaces.Dict):
        children = ((name, spec_from_space(child)) for name, child in space.spaces.items())
        return Dict.of(**dict(children))
    raise TriglotError(
        f"the Gymnasium space {space} has no counterpart: expected a Discrete, a Box or a Dict of "
        "these; convert it in a wrapper (gymnasium.wrappers.TransformAction, TransformObservation "
        "or FlattenObservation)."
    )


def space_from_spec(spec: Spec) -> "Space[Any]":
    """Convert a spec to the Gymnasium space of the same values.

    Raises:
      MissingExtra: if Gymnasium is not installed.
      TriglotError: if `spec` is none of the specs.
    """
    spaces = require("gymnasium", "gymnasium").spaces
    match spec:
        case Discrete():
            return spaces.Discrete(spec.num_values, dtype=spec.dtype)
        case Box():
            low, high = spec.bounds()
            return spaces.Box(low, high, spec.shape, np.dtype(spec.dtype).type)
        case Dict():
            return spaces.Dict({name: space_from_spec(child) for name, child in spec.items})
    raise TriglotError(f"expected a Discrete, a Box or a Dict of triglot, got {spec!r}.")


def _jax_dtype(dtype: np.dtype) -> str:
    return str(jax.dtypes.canonicalize_dtype(dtype))


def _bound(array: np.ndarray) -> Bound:
    values = array.astype(np.float64)
    if np.issubdtype(array.dtype, np.floating):
        unbounded = np.abs(values) >= np.finfo(array.dtype).max
        values = np.where(unbounded, np.copysign(np.inf, values), values)
    flat = values.ravel().tolist()
    return flat[0] if len(set(flat)) == 1 else tuple(flat)
