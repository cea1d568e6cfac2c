"""What observations and actions look like: small, frozen, hashable descriptions."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from .errors import TriglotError

Bound: TypeAlias = float | tuple[float, ...]


@dataclass(frozen=True)
class Discrete:
    """One of `num_values` integers, from 0."""

    num_values: int
    dtype: str = "int32"

    def __post_init__(self) -> None:
        if self.num_values < 1:
            raise TriglotError(f"Discrete needs at least one value, got {self.num_values}.")

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True)
class Box:
    """An array of `shape` and `dtype` within `low` and `high`, inclusive.

    A bound is one number for all elements, or a tuple with one per element in row-major order.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: Bound = -float("inf")
    high: Bound = float("inf")

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple) or not isinstance(self.dtype, str):
            raise TriglotError(
                f"Box takes its shape as a tuple and its dtype as a string, so that it can be "
                f"hashed; got {self.shape!r} and {self.dtype!r}."
            )
        for name, bound in (("low", self.low), ("high", self.high)):
            if isinstance(bound, tuple) and len(bound) != int(np.prod(self.shape)):
                raise TriglotError(
                    f"Box of shape {self.shape} needs {int(np.prod(self.shape))} values for "
                    f"`{name}`, or one for all; got {len(bound)}."
                )
        low, high = self.bounds()
        if np.any(low > high):
            raise TriglotError(f"Box needs low <= high, got {self.low} and {self.high}.")

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return `low` and `high`, each an array of `shape` and `dtype`."""

        def expand(bound: Bound) -> np.ndarray:
            values = np.asarray(bound, np.float64)
            if self.dtype == "bool":
                values = np.clip(values, 0, 1)
            elif np.issubdtype(self.dtype, np.integer):
                info = np.iinfo(self.dtype)
                values = np.clip(values, info.min, info.max)
            values = values.reshape(self.shape) if values.ndim else np.full(self.shape, values)
            return values.astype(self.dtype)

        return expand(self.low), expand(self.high)

    @property
    def bounded(self) -> bool:
        """Tell whether every element has two finite bounds."""
        low, high = self.bounds()
        return bool(np.isfinite(low).all() and np.isfinite(high).all())


@dataclass(frozen=True)
class Dict:
    """A dictionary of specs, kept as sorted `(name, spec)` pairs so that it can be hashed."""

    items: tuple[tuple[str, "Spec"], ...]

    @classmethod
    def of(cls, **specs: "Spec") -> "Dict":
        return cls(tuple(sorted(specs.items())))


Spec: TypeAlias = Discrete | Box | Dict


def zeros(spec: Spec, *leading: int) -> Any:
    """Build an array, or a dictionary of arrays, of zeros that fits `spec`.

    >>> zeros(Box((4,)), 2).shape
    (2, 4)
    """
    if isinstance(spec, Dict):
        return {name: zeros(child, *leading) for name, child in spec.items}
    return jnp.zeros((*leading, *spec.shape), spec.dtype)


def sample(spec: Spec, key: jax.Array) -> Any:
    """Draw one value uniformly from `spec`; an unbounded side is cut at 1 from the other or 0."""
    if isinstance(spec, Dict):
        keys = jax.random.split(key, len(spec.items))
        return {name: sample(child, k) for (name, child), k in zip(spec.items, keys, strict=True)}
    if isinstance(spec, Discrete):
        return jax.random.randint(key, (), 0, spec.num_values, spec.dtype)
    low, high = spec.bounds()
    if spec.dtype == "bool":
        return jax.random.bernoulli(key, shape=spec.shape)
    if np.issubdtype(spec.dtype, np.integer):
        # `randint` leaves its upper end out; a span that int32 cannot count is cut.
        span = np.minimum(high.astype(np.int64) - low.astype(np.int64) + 1, 2**31 - 1)
        drawn = jax.random.randint(key, spec.shape, 0, span.astype(np.int32), "int32")
        return drawn.astype(spec.dtype) + jnp.asarray(low)
    finite_high = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 1, 1))
    finite_low = np.where(np.isfinite(low), low, finite_high - 2)
    return jax.random.uniform(
        key,
        spec.shape,
        spec.dtype,
        finite_low.astype(spec.dtype),
        finite_high.astype(spec.dtype),
    )


def mismatch(spec: Spec, value: Any) -> str | None:
    """Say how a concrete `value` departs from `spec` in structure, shape, dtype or bounds.

    Returns:
      A sentence, or None where the value fits.
    """
    if isinstance(spec, Dict):
        if not isinstance(value, dict) or sorted(value) != [name for name, _ in spec.items]:
            return f"expected a dictionary with {[name for name, _ in spec.items]}, got {value!r}"
        found = (mismatch(child, value[name]) for name, child in spec.items)
        return next((text for text in found if text), None)
    array = np.asarray(value)
    if array.shape != spec.shape or str(array.dtype) != spec.dtype:
        return (
            f"expected shape {spec.shape} and dtype {spec.dtype}, "
            f"got {array.shape} and {array.dtype}"
        )
    low, high = (0, spec.num_values - 1) if isinstance(spec, Discrete) else spec.bounds()
    if not np.all((array >= low) & (array <= high)):  # NaN is within no bounds
        return f"expected values within [{np.min(low)}, {np.max(high)}], got {array.tolist()}"
    return None
