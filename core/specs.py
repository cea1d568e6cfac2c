"""Specs of observations and actions: small, frozen, hashable descriptions."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .errors import TriglotError, shown
from .hyper import check_count, is_integer, is_number
from .types import PyTree

_ArrayT = TypeVar("_ArrayT", jax.Array, np.ndarray)

Bound: TypeAlias = float | tuple[float, ...]


@dataclass(frozen=True)
class Discrete:
    """An integer from 0 to `num_values - 1`, shape `[]`."""

    num_values: int
    dtype: str = "int32"

    def __post_init__(self) -> None:
        check_count("Discrete's num_values", self.num_values)
        object.__setattr__(self, "num_values", int(self.num_values))
        _check_dtype("Discrete", self.dtype, "iu")

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the minimum and the maximum, each an array of `shape` and `dtype`."""
        return _up_to(self.num_values, self.dtype)


def _check_dtype(kind: str, dtype: object, kinds: str) -> None:
    """Refuse what is not the name of a dtype of JAX of one of the kinds, as NumPy writes them."""
    try:
        parsed = jnp.dtype(dtype) if isinstance(dtype, str) else None
    except TypeError:
        parsed = None
    if parsed is None or not (parsed.kind in kinds or ("f" in kinds and "float" in parsed.name)):
        words = {"b": "bool", "i": "integers", "u": "unsigned integers", "f": "floats"}
        raise TriglotError(
            f"{kind} takes the name of a dtype of {', '.join(words[k] for k in kinds)}, such "
            f"as {'float32' if 'f' in kinds else 'int32'!r}; got {shown(dtype)}."
        )


def _as_bound(name: str, bound: object) -> Bound:
    """Return one number, or a tuple of one per element; arrays and lists become one."""
    if is_number(bound):
        return bound
    if isinstance(bound, list | np.ndarray | jax.Array):
        array = np.asarray(bound)
        bound = tuple(array.ravel().tolist()) if array.ndim else array.item()
    if is_number(bound) or (isinstance(bound, tuple) and all(map(is_number, bound))):
        return bound
    raise TriglotError(f"Box takes numbers as `{name}`, got {shown(bound)}.")


def _up_to(num_values: int | tuple[int, ...], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return 0 and the maximum of integers with so many values."""
    high = np.asarray(np.minimum(np.asarray(num_values) - 1, np.iinfo(dtype).max), dtype)
    return np.zeros_like(high), high


@dataclass(frozen=True)
class MultiDiscrete:
    """Integers, number `i` from 0 to `num_values[i] - 1`, shape `[n]`.

    >>> spec = MultiDiscrete((2, 3))
    >>> spec.shape, spec.bounds()[1].tolist()
    ((2,), [1, 2])
    """

    num_values: tuple[int, ...]
    dtype: str = "int32"

    def __post_init__(self) -> None:
        counts = self.num_values
        if not isinstance(counts, tuple) or not all(map(is_integer, counts)):
            raise TriglotError(
                "MultiDiscrete takes a tuple with the number of values of each integer, such as "
                f"(2, 3), so that it can be hashed; got {counts!r}."
            )
        if not counts or min(counts) < 1:
            raise TriglotError(
                "MultiDiscrete needs at least one integer and at least one value for each, got "
                f"{counts}."
            )
        object.__setattr__(self, "num_values", tuple(map(int, counts)))
        _check_dtype("MultiDiscrete", self.dtype, "iu")

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.num_values),)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the minima and the maxima, each an array of `shape` and `dtype`."""
        return _up_to(self.num_values, self.dtype)


@dataclass(frozen=True)
class Box:
    """An array of `shape` and `dtype` within `low` and `high`, inclusive.

    A bound is one number for all elements, or a tuple with one per element in row-major order.
    Floats that are all whole numbers (`whole`), such as a mask, are replayed from fewer bytes.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: Bound = -float("inf")
    high: Bound = float("inf")
    whole: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple) or not isinstance(self.dtype, str):
            raise TriglotError(
                "Box takes a tuple as shape and a string as dtype, so that it can be hashed; got "
                f"{self.shape!r} and {self.dtype!r}."
            )
        for size in self.shape:
            check_count("each size in the shape of a Box", size, 0)
        object.__setattr__(self, "shape", tuple(map(int, self.shape)))
        _check_dtype("Box", self.dtype, "biuf")
        size = math.prod(self.shape)
        for name in ("low", "high"):
            bound = _as_bound(name, getattr(self, name))
            object.__setattr__(self, name, bound)
            if isinstance(bound, tuple) and len(bound) != size:
                raise TriglotError(
                    f"Box of shape {self.shape} needs {size} values for `{name}`, or one number "
                    f"for all; got {len(bound)}."
                )
        # Not by `bounds`, which allocates arrays of the whole shape.
        if not np.all(np.asarray(self.low, np.float64) <= np.asarray(self.high, np.float64)):
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
    def stored_dtype(self) -> str:
        """The dtype of fewest bytes that holds every value exactly.

        >>> Box((10, 10, 4), "float32", 0, 1, whole=True).stored_dtype
        'uint8'
        """
        if not self.whole or not self.bounded:
            return self.dtype
        low, high = np.min(self.low), np.max(self.high)
        for dtype in ("uint8", "int8", "uint16", "int16"):
            holds = np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max
            if holds and np.dtype(dtype).itemsize < np.dtype(self.dtype).itemsize:
                return dtype
        return self.dtype

    def within(self, scale: float) -> "Box":
        """Bound what has no bounds: by `-scale` and `scale`, or within `scale` of its one bound.

        Actions are sampled and learned within bounds, so unbounded ones need such a scale.

        Raises:
          TriglotError: if every element has two bounds, or `scale` is not finite and above 0.

        >>> Box((2,), low=(0.0, -float("inf"))).within(2.0)
        Box(shape=(2,), dtype='float32', low=(0.0, -2.0), high=2.0, whole=False)
        """
        if not 0 < scale < math.inf:
            raise TriglotError(f"a scale must be finite and above 0, got {scale}.")
        if self.bounded:
            raise TriglotError(f"{self} has bounds already: leave out the scale.")
        low, high = (np.asarray(bound, np.float64) for bound in (self.low, self.high))
        low, high = np.broadcast_arrays(low, high)
        no_low, no_high = np.isneginf(low), np.isposinf(high)
        bounds = (
            np.where(no_low, np.where(no_high, -scale, high - scale), low),
            np.where(no_high, np.where(no_low, scale, low + scale), high),
        )
        low, high = (
            float(limits.flat[0]) if len(set(limits.flat)) == 1 else tuple(limits.tolist())
            for limits in bounds
        )
        return replace(self, low=low, high=high)

    @property
    def bounded(self) -> bool:
        """Whether every element has two finite bounds."""
        low, high = self.bounds()
        return bool(np.isfinite(low).all() and np.isfinite(high).all())


def bound_of(array: np.ndarray) -> Bound:
    """Convert the bounds of a box's entries: one number if they are equal."""
    flat = np.asarray(array, np.float64).ravel().tolist()
    return flat[0] if len(set(flat)) == 1 else tuple(flat)


@dataclass(frozen=True, init=False)
class Dict:
    """A dictionary of values, each with its own spec.

    Such an observation is a plain `dict` of arrays. Dict specs may be nested.

    Attributes:
      items: `(name, spec)` pairs, sorted by name so that equal specs have equal hashes.

    >>> spec = Dict({"speed": Box((2,)), "image": Box((8, 8, 3), "uint8", 0, 255)})
    >>> {name: value.shape for name, value in zeros(spec, 5).items()}
    {'image': (5, 8, 8, 3), 'speed': (5, 2)}
    """

    items: tuple[tuple[str, "Spec"], ...]

    def __init__(self, items: "Mapping[str, Spec] | Iterable[tuple[str, Spec]]") -> None:
        """Build it from `{name: spec}` or from `(name, spec)` pairs.

        Raises:
          TriglotError: if a name is not a string or a value is not a spec.
        """
        try:
            children = dict(items)
        except (TypeError, ValueError):
            raise TriglotError(f"Dict takes {{name: spec}}, got {shown(items)}.") from None
        for name, spec in children.items():
            if not isinstance(name, str) or not isinstance(spec, Spec):
                raise TriglotError(
                    "Dict takes {name: spec} with a string as name and a Discrete, MultiDiscrete, "
                    f"Box or Dict as spec; got {name!r}: {spec!r}."
                )
        object.__setattr__(self, "items", tuple(sorted(children.items())))


Leaf: TypeAlias = Discrete | MultiDiscrete | Box
"""The description of one array."""

HOW_TO_BOUND = (
    "declare the scale of the actions, as Box(...).within(1.0) in the environment's action_spec, "
    "or with the option action_scale=1.0 of an environment of Gymnasium"
)
"""Advice for actions without bounds."""

Spec: TypeAlias = Leaf | Dict
"""The description of an observation or of an action."""


class Specified(Protocol):
    """What environments of both kinds say of themselves."""

    @property
    def name(self) -> str:
        """Display name in errors and reports."""
        ...

    @property
    def obs_spec(self) -> Spec:
        """Describe one observation."""
        ...

    @property
    def action_spec(self) -> Spec:
        """Describe one action."""
        ...


def short_spec(spec: Spec) -> str:
    """Describe a spec without bounds, for a message.

    >>> short_spec(Dict({"place": Box((2,)), "pixels": Box((8, 8), "uint8")}))
    '{pixels: uint8[8, 8], place: float32[2]}'
    """
    if isinstance(spec, Dict):
        return "{" + ", ".join(f"{name}: {short_spec(child)}" for name, child in spec.items) + "}"
    return f"{spec.dtype}{list(spec.shape)}" if isinstance(spec, Box) else shown(spec)


def short_pair(spec: Spec, other: Spec) -> tuple[str, str]:
    """Describe two specs that differ, with their bounds if nothing else does."""
    pair = short_spec(spec), short_spec(other)
    return pair if pair[0] != pair[1] else (shown(spec), shown(other))


def zeros(spec: Spec, *leading: int) -> PyTree:
    """Build zeros with the structure, shapes and dtypes of `spec`.

    Args:
      spec: of one value.
      leading: sizes of leading axes, such as the batch.

    >>> zeros(Box((4,)), 2).shape
    (2, 4)
    """
    if isinstance(spec, Dict):
        return {name: zeros(child, *leading) for name, child in spec.items}
    return jnp.zeros((*leading, *spec.shape), jax.dtypes.canonicalize_dtype(spec.dtype))


def one_hot_spec(spec: Spec) -> Spec:
    """Describe what `one_hot` makes of a value."""
    return Box((spec.num_values,), low=0, high=1) if isinstance(spec, Discrete) else spec


def one_hot(spec: Spec, value: PyTree) -> PyTree:
    """Convert integers `[...]` of a `Discrete` to float32 `[..., num_values]`; others stay."""
    return jax.nn.one_hot(value, spec.num_values) if isinstance(spec, Discrete) else value


def leaves(spec: Spec, name: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield the specs of the arrays in a value, in the order of `jax.tree.leaves`.

    Args:
      spec: of the value.
      name: of the value, which starts the names.

    Returns:
      Pairs of a name, such as `hand/sum`, and a spec; a spec that is no Dict keeps `name`.

    >>> spec = Dict({"hand": Dict({"sum": Discrete(32)}), "ace": Discrete(2)})
    >>> [name for name, _ in leaves(spec)]
    ['ace', 'hand/sum']
    """
    if not isinstance(spec, Dict):
        yield name, spec
        return
    for part, child in spec.items:
        yield from leaves(child, f"{name}/{part}" if name else part)


def vector_size(spec: Spec) -> int:
    """Count the entries of `vector`'s result."""
    return sum(mask_size(leaf) or math.prod(leaf.shape) for _, leaf in leaves(spec))


def vector(spec: Spec, value: PyTree, *, num_axes: int = 1) -> jax.Array:
    """Convert a value to one vector of floats, such as a network reads.

    Args:
      spec: of the value.
      value: arrays `[..., *shape]`, in nested dictionaries where `spec` is a Dict.
      num_axes: leading axes, such as 1 for a batch.

    Returns:
      float32 `[..., vector_size(spec)]`: the arrays in the order of `leaves`. Each integer of a
      Discrete or a MultiDiscrete is one-hot; a Box is flattened, and its bytes are scaled as in
      `floats`.

    >>> spec = Dict({"speed": Box((2,)), "gear": Discrete(3)})
    >>> vector(spec, {"speed": jnp.ones((1, 2)), "gear": jnp.array([1])}).tolist()
    [[0.0, 1.0, 0.0, 1.0, 1.0]]
    """
    parts = []
    for (_, leaf), array in zip(leaves(spec), jax.tree.leaves(value), strict=True):
        if isinstance(leaf, Box):
            parts.append(floats(leaf, array).reshape((*array.shape[:num_axes], -1)))
            continue
        counts = leaf.num_values if isinstance(leaf, MultiDiscrete) else (leaf.num_values,)
        columns = array.reshape((*array.shape[:num_axes], len(counts)))
        parts += [jax.nn.one_hot(columns[..., i], count) for i, count in enumerate(counts)]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def byte_range(spec: Box) -> tuple[float, float] | tuple[np.ndarray, np.ndarray] | None:
    """Return the minimum of bytes (uint8) and the span to their maximum, by the declared bounds.

    Returns:
      Two floats if the bounds are the same for all elements, two float32 arrays of `spec.shape`
      otherwise; None if the values are not bytes. A span of 0 is returned as 1.

    >>> byte_range(Box((8, 8, 3), "uint8", 0, 255)), byte_range(Box((2,), "uint8", 0, 1))
    ((0.0, 255.0), (0.0, 1.0))
    """
    if spec.dtype != "uint8":
        return None
    low, high = (bound.astype(np.float32) for bound in spec.bounds())
    span = np.maximum(high - low, np.float32(1))
    if low.size and np.ptp(low) == 0 and np.ptp(span) == 0:
        return float(low.flat[0]), float(span.flat[0])
    return low, span


def floats(spec: Box, array: _ArrayT) -> _ArrayT:
    """Convert an array to float32; the declared bounds of bytes (uint8) become 0 and 1.

    An image within 0 and 255 is divided by 255, and bits within 0 and 1 keep their values. An array
    that is given as floats is taken as scaled.

    Args:
      spec: of one value.
      array: `[..., *spec.shape]`.

    >>> floats(Box((3,), "uint8", 1, 5), jnp.array([1, 3, 5], "uint8")).tolist()
    [0.0, 0.5, 1.0]
    """
    converted = array.astype(jnp.float32)
    if array.dtype != jnp.uint8:
        return converted
    return scaled_bytes(spec, converted)


def scaled_bytes(
    spec: Box, converted: Any, constant: Callable[[np.ndarray], Any] = jnp.asarray
) -> Any:
    """Scale float32 values `[..., *spec.shape]` as `floats` does.

    Args:
      spec: of one value.
      converted: an array of any library.
      constant: makes such an array from NumPy's.
    """
    if (limits := byte_range(spec)) is None:
        return converted
    low, span = limits
    if isinstance(low, float) or isinstance(span, float):
        return (converted - low if low else converted) / span
    leading = (1,) * (converted.ndim - len(spec.shape))
    low, span = (constant(bound.reshape(leading + spec.shape)) for bound in (low, span))
    return (converted - low) / span


def check_fits(spec: Spec, described: str = "") -> None:
    """Check that JAX's types hold every value that a spec declares.

    Without `jax_enable_x64`, JAX has no 64-bit types: integers would wrap and floats overflow.
    Infinite bounds declare nothing; values beyond the type are then refused when they occur
    (`core.host_environment.to_dtype`).

    Args:
      spec: of observations or actions that come from or go to Python.
      described: what declares the bounds, for the message; by default the spec.

    Raises:
      TriglotError: with the first declared bound that its type cannot hold.
    """
    for name, leaf in leaves(spec):
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        if dtype.kind not in "iuf":
            continue
        info = jnp.finfo(dtype) if dtype.kind == "f" else jnp.iinfo(dtype)
        ends = (leaf.low, leaf.high) if isinstance(leaf, Box) else (0, np.max(leaf.num_values) - 1)
        for bound in ends:
            values = np.asarray(bound, np.float64)
            outside = np.isfinite(values) & (
                (values < float(info.min)) | (values > float(info.max))
            )
            if outside.any():
                place = f"{name!r} in " if name else ""
                raise TriglotError(
                    f"{place}{described or spec} may be {values[outside].flat[0]:.17g}, which "
                    f"JAX's {dtype} cannot hold (from {info.min} to {info.max}): declare "
                    f"{'a smaller range' if dtype.kind == 'f' else 'float32 or a smaller range'}, "
                    "and convert the values in the environment or in a wrapper."
                )


def mask_size(spec: Spec) -> int | None:
    """Count the entries of an action mask; None if such actions have no mask.

    >>> mask_size(Discrete(4)), mask_size(MultiDiscrete((2, 3))), mask_size(Box((4,)))
    (4, 5, None)
    """
    if isinstance(spec, MultiDiscrete):
        return sum(spec.num_values)
    return spec.num_values if isinstance(spec, Discrete) else None


def to_stored(spec: Spec, value: PyTree) -> PyTree:
    """Convert a value `[..., *shape]` of `spec` to the dtypes of fewest bytes, exactly."""
    if isinstance(spec, Dict):
        return {name: to_stored(child, value[name]) for name, child in spec.items}
    return value.astype(spec.stored_dtype) if isinstance(spec, Box) else value


def from_stored(spec: Spec, value: PyTree) -> PyTree:
    """Undo `to_stored`."""
    if isinstance(spec, Dict):
        return {name: from_stored(child, value[name]) for name, child in spec.items}
    return value.astype(jax.dtypes.canonicalize_dtype(spec.dtype))


def sample(spec: Spec, key: jax.Array) -> PyTree:
    """Draw one value uniformly from `spec`.

    A Box element with one finite bound is drawn within 1 (2 below `high`) of it, one without bounds
    from [-1, 1].
    """
    if isinstance(spec, Dict):
        keys = jax.random.split(key, len(spec.items))
        return {name: sample(child, k) for (name, child), k in zip(spec.items, keys, strict=True)}
    if isinstance(spec, Discrete):
        return jax.random.randint(key, (), 0, spec.num_values, spec.dtype)
    low, high = spec.bounds()
    if isinstance(spec, MultiDiscrete):
        below = np.asarray(spec.num_values, np.int32)
        return jax.random.randint(key, spec.shape, 0, below, "int32").astype(spec.dtype)
    if spec.dtype == "bool":
        return jax.random.bernoulli(key, shape=spec.shape)
    if np.issubdtype(spec.dtype, np.integer):
        # `randint` excludes its upper end, and the span must fit int32.
        span = np.minimum(high.astype(np.int64) - low.astype(np.int64) + 1, 2**31 - 1)
        drawn = jax.random.randint(key, spec.shape, 0, span.astype(np.int32), "int32")
        return drawn.astype(spec.dtype) + jnp.asarray(low)
    finite_high = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 1, 1))
    finite_low = np.where(np.isfinite(low), low, finite_high - 2)
    drawn = jax.random.uniform(
        key, spec.shape, spec.dtype, finite_low.astype(spec.dtype), finite_high.astype(spec.dtype)
    )
    return jnp.round(drawn) if spec.whole else drawn


def mismatch(spec: Spec, value: PyTree) -> str | None:
    """Compare a concrete `value` with `spec`: structure, shape, dtype and bounds.

    Returns:
      The first difference in words, or None if the value fits.
    """
    if isinstance(spec, Dict):
        if not isinstance(value, dict) or sorted(value) != [name for name, _ in spec.items]:
            return f"expected a dictionary with {[name for name, _ in spec.items]}, got {value!r}"
        texts = (mismatch(child, value[name]) for name, child in spec.items)
        return next((text for text in texts if text), None)
    array = np.asarray(value)
    if array.shape != spec.shape or str(array.dtype) != spec.dtype:
        wanted = f"expected shape {spec.shape} and dtype {spec.dtype}"
        return f"{wanted}, got {array.shape} and {array.dtype}"
    low, high = spec.bounds()
    if not np.all((array >= low) & (array <= high)):  # also true for NaN
        return f"expected values within [{np.min(low)}, {np.max(high)}], got {array.tolist()}"
    if isinstance(spec, Box) and spec.whole and np.any(array != np.round(array)):
        return f"expected whole numbers, got {array.tolist()}"
    return None
