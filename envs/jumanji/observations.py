"""jumanji's observations as nested dictionaries, and as one vector."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ...core.specs import Box, Dict, Discrete, Leaf, MultiDiscrete, Spec, bound_of
from ...core.types import PyTree
from ...core.wrappers.observations import flat, flat_spec
from ..adapting.spaces import map_leaves

# Fields excluded from vectors: the mask is a field of TimeStep, and the step count is irrelevant to
# a task whose time limit truncates.
_NOT_IN_VECTOR = ("action_mask", "step_count")


def spec_of(spec: Any) -> Spec:
    """Convert jumanji's spec of an observation or of an action."""
    if getattr(spec, "_specs", None):
        return Dict({name: spec_of(child) for name, child in spec._specs.items()})
    dtype = str(spec.dtype)
    if hasattr(spec, "num_values"):
        counts = tuple(np.ravel(spec.num_values).tolist())
        return MultiDiscrete(counts, dtype) if spec.shape else Discrete(counts[0], dtype)
    bounds = getattr(spec, "minimum", -math.inf), getattr(spec, "maximum", math.inf)
    low, high = (bound_of(np.broadcast_to(bound, spec.shape)) for bound in bounds)
    return Box(tuple(spec.shape), dtype, low, high)


def to_dict(spec: Any, obs: Any) -> PyTree:
    """Convert jumanji's observation to nested dictionaries."""
    children = getattr(spec, "_specs", None)
    if not children:
        return obs
    return {name: to_dict(child, getattr(obs, name)) for name, child in children.items()}


def dict_spec(spec: Any, returned: Any) -> Spec:
    """Describe `to_dict`'s result, with the dtypes of the returned observation."""

    def described(leaf: Leaf, value: Any) -> Leaf:
        if isinstance(leaf, Discrete):
            # Values include -1 (no position yet) and `num_values` (after the last step).
            leaf = Box((), low=-1, high=leaf.num_values)
        return replace(leaf, dtype=str(value.dtype))

    return map_leaves(described, spec_of(spec), to_dict(spec, returned), into=Dict)


def to_vector(spec: Any, obs: Any) -> jax.Array:
    """Flatten an observation to one float32 vector, in jumanji's order.

    A `DiscreteArray` becomes one-hot, with zeros for -1.
    """
    return flat(*_numbered(spec, obs))


def vector_spec(spec: Any, returned: Any) -> Box:
    """Describe `to_vector`'s result."""
    return flat_spec(_numbered(spec, returned)[0])


def _numbered(spec: Any, obs: Any) -> tuple[Dict, PyTree]:
    """Name the arrays by numbers, which keep jumanji's order where names are sorted."""
    leaves = {f"{index:03}": leaf for index, leaf in enumerate(_leaves(spec, obs))}
    return Dict({n: leaf for n, (leaf, _) in leaves.items()}), {
        n: v for n, (_, v) in leaves.items()
    }


def _leaves(spec: Any, obs: Any) -> Iterator[tuple[Spec, Any]]:
    for name, child in spec._specs.items():
        if getattr(child, "_specs", None):
            yield from _leaves(child, getattr(obs, name))
        elif name not in _NOT_IN_VECTOR:
            leaf = spec_of(child)
            # As floats, integers without bounds stay so.
            leaf = replace(leaf, dtype="float32") if isinstance(leaf, Box) else leaf
            yield leaf, getattr(obs, name)
