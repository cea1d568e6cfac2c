"""Compare pytrees and describe the first difference in words.

The functions that return a string return "" if they find nothing.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ..core.types import PyTree, by_path, is_key
from .report import describe_value


def is_inexact(leaf: jax.Array | np.ndarray) -> bool:
    """Return True for floating-point and complex arrays."""
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def summarize(tree: PyTree) -> str:
    """Describe the first leaves of a tree in one line."""
    leaves = by_path(tree)
    text = ", ".join(
        f"{path} {describe_value(leaf)}".strip() for path, leaf in list(leaves.items())[:6]
    )
    return text + (" ..." if len(leaves) > 6 else "") if leaves else "no arrays"


def find_non_array(name: str, tree: PyTree) -> str:
    """Describe the first leaf that is not a JAX array."""
    for path, leaf in by_path(tree).items():
        if not isinstance(leaf, jax.Array):
            return f"{_join(name, path)} is {describe_value(leaf)}; expected a JAX array"
    return ""


def find_unbatched(name: str, tree: PyTree, size: int) -> str:
    """Describe the first leaf that is not a JAX array, or whose leading axis has another size."""
    if problem := find_non_array(name, tree):
        return problem
    for path, leaf in by_path(tree).items():
        if leaf.ndim == 0 or leaf.shape[0] != size:
            return f"{_join(name, path)} is {describe_value(leaf)}; expected shape [{size}, ...]"
    return ""


def find_weak_type(name: str, tree: PyTree) -> str:
    """Describe the first leaf that has a weak dtype."""
    for path, leaf in by_path(tree).items():
        if getattr(leaf, "weak_type", False):
            return f"{_join(name, path)} {describe_value(leaf)} has a weak dtype"
    return ""


def find_type_change(name: str, before: PyTree, after: PyTree) -> str:
    """Describe the first leaf whose path, shape or dtype changed.

    Args:
      name: of the tree, for the message.
      before, after: pytrees of arrays, or of their descriptions.
    """
    old, new = by_path(before), by_path(after)
    for path in {**old, **new}:
        first, second = (
            describe_value(tree[path]) if path in tree else "absent" for tree in (old, new)
        )
        if first != second:
            return f"{_join(name, path)} was {first} and is {second}"
    if jax.tree.structure(before) != jax.tree.structure(after):
        return f"{name or 'it'} has another pytree structure, with equal array shapes and dtypes"
    return ""


def find_value_difference(
    name: str,
    first: PyTree,
    second: PyTree,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    of_largest: float = 0.0,
) -> str:
    """Describe the first leaf whose values differ by more than a tolerance; NaN equals NaN.

    With a tolerance, half-precision arrays are compared to ten units of their own precision.

    Args:
      name: of the tree, for the message.
      first, second: pytrees of arrays.
      rtol, atol: of each number, as of `numpy.isclose`.
      of_largest: further tolerance, relative to the largest number of each floating-point array.
    """
    old, new = by_path(first), by_path(second)
    for path in {**old, **new}:
        if path not in old or path not in new:
            return f"{_join(name, path)} is missing in one of them"
        one, other = to_float64(old[path]), to_float64(new[path])
        if one.shape != other.shape:
            return f"{_join(name, path)} has shape {list(one.shape)} and {list(other.shape)}"
        relative, absolute = rtol, atol
        if (rtol or atol) and is_inexact(old[path]):
            coarse = 10 * float(jnp.finfo(old[path].dtype).eps)
            largest = np.max(np.abs(one), where=np.isfinite(one), initial=0.0)
            relative, absolute = max(rtol, coarse), max(atol, coarse, of_largest * largest)
        close = np.isclose(one, other, relative, absolute, equal_nan=True)
        if not close.all():
            return (
                f"{_join(name, path)} {list(one.shape)} differs in {np.sum(~close)} of "
                f"{close.size} elements, such as {one[~close][0]:.6g} and {other[~close][0]:.6g}"
            )
    return ""


def find_change(name: str, before: PyTree, after: PyTree) -> str:
    """Describe the first leaf whose path, shape, dtype or values changed."""
    return find_type_change(name, before, after) or find_value_difference(name, before, after)


def find_not_finite(name: str, tree: PyTree) -> str:
    """Describe the first floating-point leaf that contains NaN or infinity."""
    for path, leaf in by_path(tree).items():
        if is_inexact(leaf) and not np.isfinite(to_float64(leaf)).all():
            values = to_float64(leaf)
            bad = values[~np.isfinite(values)]
            return (
                f"{_join(name, path)} {list(leaf.shape)} contains {bad.flat[0]} in {bad.size} of "
                f"{values.size} elements"
            )
    return ""


def to_float64(leaf: jax.Array | np.ndarray) -> np.ndarray:
    """Copy an array, or the data of random keys, to the host as float64."""
    if isinstance(leaf, jax.Array) and is_key(leaf):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).astype(np.float64)


def flat(tree: PyTree, leading: int) -> np.ndarray:
    """Concatenate the values of a tree: float64 `[prod(leading axes), D]`."""
    rows = [to_float64(leaf) for leaf in jax.tree.leaves(tree)]
    if not rows:
        return np.zeros((0, 0))
    count = int(np.prod(rows[0].shape[:leading]))
    return np.concatenate([row.reshape(count, -1) for row in rows], axis=1)


def copied(tree: PyTree) -> PyTree:
    """Copy the containers and the NumPy arrays of a tree, so that in-place changes show."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


def _join(name: str, path: str) -> str:
    return ".".join(part for part in (name, path) if part) or "it"
