"""What the checkers of networks and of agents share: trees compared in words, keys, copies."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..core.loop.checkpoint import restore, save
from .messages import told
from .report import Failed

PyTree: TypeAlias = Any

# What the setting jax_disable_most_optimizations stands for; it takes 40 % off the time.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Case:
    """A part under examination; its subclasses compute once what several checks look at."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.notes: list[str] = []

    def key(self, number: int) -> jax.Array:
        """Derive a key that no other number gives."""
        return jax.random.fold_in(jax.random.key(self.seed), number)

    def call(self, what: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call the part's own code, its exceptions retold as findings."""
        try:
            return function(*args, **named)
        except Exception as error:
            raise Failed(f"{what} raised {told(error)}") from None


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile as quickly as can be: what is compiled here runs a few times only."""
    return jax.jit(function, compiler_options=QUICKLY, **options)


def is_key(leaf: Any) -> bool:
    """Tell typed keys from other arrays."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def is_inexact(leaf: Any) -> bool:
    """Tell floating-point (and complex) arrays from others."""
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def by_path(tree: PyTree) -> dict[str, Any]:
    """List the leaves by where they stand."""
    return {
        jax.tree_util.keystr(path, simple=True, separator=".") or "it": leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def look(leaf: Any) -> str:
    """Describe a leaf: dtype and shape of an array, the type of anything else."""
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return f"{leaf.dtype}{list(leaf.shape)}"
    if isinstance(leaf, np.ndarray | np.generic):
        return f"NumPy {leaf.dtype}{list(leaf.shape)}"
    if isinstance(leaf, bool | int | float | str):
        return f"the Python {type(leaf).__name__} {leaf!r}"
    return f"a {type(leaf).__name__}"


def in_short(tree: PyTree) -> str:
    """Describe a tree in one line."""
    leaves = by_path(tree)
    told = [f"{name} {look(leaf)}" for name, leaf in list(leaves.items())[:6]]
    return ", ".join(told) + (" ..." if len(leaves) > 6 else "") if told else "no arrays"


def what(given: Any) -> str:
    """Say what kind of thing was given."""
    if isinstance(given, type):
        return f"the class {given.__name__}"
    return "None" if given is None else f"a {type(given).__name__}"


def no_array(name: str, tree: PyTree) -> str:
    """Name the first leaf that is no JAX array; "" where all are."""
    for path, leaf in by_path(tree).items():
        if not isinstance(leaf, jax.Array):
            return f"{_join(name, path)} is {look(leaf)}, no JAX array"
    return ""


def unbatched(name: str, tree: PyTree, size: int) -> str:
    """Name the first leaf whose leading axis is not of this size; "" where all are."""
    for path, leaf in by_path(tree).items():
        if leaf.ndim == 0 or leaf.shape[0] != size:
            return f"{_join(name, path)} is {look(leaf)}, not [{size}, ...]"
    return ""


def different(name: str, before: PyTree, after: PyTree, *, weak: bool = False) -> str:
    """Name the first leaf whose place, shape or dtype differs; "" where none does.

    Args:
      name: of the tree, for the message.
      before, after: pytrees of arrays, or of their descriptions.
      weak: whether a weak dtype (a Python number's) is another than the same one that is not.
    """
    there, here = by_path(before), by_path(after)
    for path in [*there, *(path for path in here if path not in there)]:
        looks = [look(tree[path]) if path in tree else "absent" for tree in (there, here)]
        if weak and len(set(looks)) == 1:
            looks = [
                text + (" of weak type" if getattr(tree[path], "weak_type", False) else "")
                for text, tree in zip(looks, (there, here), strict=True)
            ]
        if looks[0] != looks[1]:
            return f"{_join(name, path)} was {looks[0]} and is {looks[1]}"
    if jax.tree.structure(before) != jax.tree.structure(after):
        return f"{name} has another pytree structure, though its arrays look the same"
    return ""


def unequal(
    name: str, first: PyTree, second: PyTree, *, rtol: float = 0.0, atol: float = 0.0
) -> str:
    """Name the first leaf whose values differ beyond a tolerance; "" where none does.

    Half-precision arrays are compared as coarsely as they are stored. NaN equals NaN.
    """
    there, here = by_path(first), by_path(second)
    for path in [*there, *(path for path in here if path not in there)]:
        if path not in there or path not in here:
            return f"{_join(name, path)} is in one only"
        one, other = numbers(there[path]), numbers(here[path])
        if one.shape != other.shape:
            return f"{_join(name, path)} is {list(one.shape)} in one and {list(other.shape)}"
        coarse = 10 * _epsilon(there[path]) if rtol or atol else 0.0
        close = np.isclose(one, other, max(rtol, coarse), max(atol, coarse), equal_nan=True)
        if not close.all():
            return (
                f"{_join(name, path)} {list(one.shape)} differs in {np.sum(~close)} of "
                f"{close.size} elements, such as {one[~close][0]:.6g} against "
                f"{other[~close][0]:.6g}"
            )
    return ""


def numbers(leaf: Any) -> np.ndarray:
    """Bring an array, be it of keys, to the host as float64."""
    if isinstance(leaf, jax.Array) and is_key(leaf):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).astype(np.float64)


def not_finite(name: str, tree: PyTree) -> str:
    """Name the first floating-point leaf that holds NaN or infinity; "" where none does."""
    for path, leaf in by_path(tree).items():
        if is_inexact(leaf) and not np.isfinite(numbers(leaf)).all():
            bad = ~np.isfinite(numbers(leaf))
            return (
                f"{_join(name, path)} {list(leaf.shape)} holds {numbers(leaf)[bad].flat[0]} "
                f"in {bad.sum()} of {bad.size} elements"
            )
    return ""


def copied(tree: PyTree) -> PyTree:
    """Rebuild a tree, so that a change of its containers or NumPy arrays stays in the copy."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


def changed(name: str, before: PyTree, after: PyTree) -> str:
    """Say what a call did to its argument, of which `before` is a copy."""
    return different(name, before, after) or unequal(name, before, after)


def reused_key(function: Callable[..., Any], *args: PyTree) -> str:
    """Say where a function uses a key twice, as JAX's own checker finds while tracing; or ""."""
    shapes = jax.eval_shape(lambda: args)
    try:
        with jax.debug_key_reuse(True):  # pyright: ignore[reportAttributeAccessIssue]
            jax.eval_shape(jax.jit(lambda *args: function(*args)), *shapes)
    except jax.errors.KeyReuseError as error:
        cause = error.__cause__
        # JAX's sentence counts arguments of inner functions; its cause knows the person's line.
        line = re.search(
            r" \([^()]*, line \d+\)$", told(cause if isinstance(cause, Exception) else error)
        )
        return "a key is used a second time" + (line.group() if line else "")
    except Exception:  # JAX's checker knows no rule for some primitive: nothing was found
        return ""
    return ""


def lost_on_disk(name: str, tree: PyTree) -> str:
    """Say what a checkpoint makes of a tree of arrays; "" where it comes back as it was."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        save(path, tree)
        return changed(name, tree, restore(path, tree))


def _join(name: str, path: str) -> str:
    return name if path == "it" else f"{name}.{path}"


def _epsilon(leaf: Any) -> float:
    return float(jnp.finfo(leaf.dtype).eps) if is_inexact(leaf) else 0.0
