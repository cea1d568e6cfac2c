"""Type aliases shared by the whole package."""

from typing import Any, TypeAlias

import jax

# Any nesting of tuples, lists, dictionaries and registered dataclasses, with arrays as leaves.
PyTree: TypeAlias = Any
# A JAX random key, shape [].
Key: TypeAlias = jax.Array
# Scalar metrics by name, each of shape [] inside one update.
Metrics: TypeAlias = dict[str, jax.Array]
