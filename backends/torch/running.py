"""The context in which PyTorch code computes with JAX arrays."""

import functools
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.nn.modules import transformer
from torch.utils._mode_utils import no_dispatch

from ...core.errors import TriglotError
from ...core.types import PyTree
from . import operations
from .importing import load_torchax

torchax: Any = load_torchax()
Tensor, View, mappings = torchax.tensor.Tensor, torchax.view.View, torchax.ops.mappings
Operator: Any = torchax.ops.ops_registry.Operator

# PyTorch's modes are set for a whole thread, and a module holds the tensors of one call at a time.
LOCK = threading.RLock()

VALUES_NEEDED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


class JaxEnvironment(torchax.tensor.Environment):
    """torchax's operations; every tensor that a module makes or moves is a JAX array.

    It is a subclass, so that other uses of torchax in this process are not changed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._generators = Generators()
        for function, replacement in operations.REPLACED.items():
            self.define(function, replacement)
        self.define(torch.Tensor.view_as, _view_as, is_view=True)
        for function in (torch.ops.aten.add, torch.ops.aten.sub):
            for overload in (function.Tensor, function.Scalar):
                self._ops[overload] = _without_factor(self._ops[overload])
        convolution = torch.ops.aten.convolution
        for overload in (convolution, convolution.default):
            if overload in self._ops:
                self._ops[overload] = _with_groups(self._ops[overload])
        for norm in (torch.ops.aten.linalg_vector_norm, torch.ops.aten.linalg_vector_norm.default):
            if norm in self._ops:
                self._ops[norm] = _with_gradient_at_zero(self._ops[norm])
        for kind, in_place in (("uniform", "uniform_"), ("normal", "normal_")):
            self.define(getattr(torch.ops.aten, in_place), partial(self._fill, kind))
        for kind, constructor in (("uniform", torch.rand), ("normal", torch.randn)):
            self._ops[constructor] = Operator(
                constructor, partial(self._construct, kind), False, True, False, False
            )
        # PyTorch's `orthogonal_` calls it; torchax's own gives wrong results.
        self.define(torch.ops.aten.t_, _transpose_)
        # torchax's tensors are said to be on the device `meta`, which initializers leave alone.
        is_meta: Any = torch.Tensor.is_meta
        self.define(is_meta.__get__, lambda self: False)

    def define(
        self, function: Any, replacement: Callable[..., Any], *, is_view: bool = False
    ) -> None:
        """Compute a function of PyTorch by another one, of tensors."""
        self._ops[function] = Operator(function, replacement, False, True, False, is_view)

    def draw(
        self, kind: str, shape: tuple[int, ...], generator: torch.Generator | None
    ) -> jax.Array:
        """Draw from [0, 1) if `kind` is `uniform`, from the standard normal if it is `normal`."""
        draw = jax.random.uniform if kind == "uniform" else jax.random.normal
        return draw(self.get_and_rotate_prng_key(generator), shape)

    def _fill(
        self,
        kind: str,
        tensor: Any,
        first: float = 0.0,
        second: float = 1.0,
        *,
        generator: torch.Generator | None = None,
    ) -> Any:
        """Compute `uniform_(low, high)` and `normal_(mean, std)`; torchax's fails on the latter."""
        scale = second - first if kind == "uniform" else second
        drawn = self.draw(kind, tuple(tensor.shape), generator) * scale + first
        return tensor.copy_(Tensor(drawn, self))

    def _construct(
        self, kind: str, *size: Any, generator: torch.Generator | None = None, **options: Any
    ) -> jax.Array:
        """Compute `torch.rand` and `torch.randn`."""
        size = options.pop("size", size)
        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)
        drawn = self.draw(kind, shape, generator)
        dtype = options.get("dtype")
        return drawn if dtype is None else drawn.astype(mappings.t2j_dtype(dtype))

    def _should_use_torchax_tensor(self, device: object) -> bool:
        return True

    def _to_copy(self, the_tensor: Any, new_dtype: Any, new_device: Any) -> Any:
        return super()._to_copy(the_tensor, new_dtype, "jax")

    def get_and_rotate_prng_key(self, generator: torch.Generator | None = None) -> jax.Array:
        """Return a new key; with a generator, the next one of its own sequence.

        torchax's own gives all draws of a generator the same key.
        """
        if generator is not None:
            return self._generators.next_key(generator)
        if self.param.prng is None:
            self.param.prng = jax.random.key(0)
        return super().get_and_rotate_prng_key()

    @contextmanager
    def drawing(self, generators: "Generators") -> Iterator[None]:
        """Take the keys of PyTorch's generators from these."""
        before, self._generators = self._generators, generators
        try:
            yield
        finally:
            self._generators = before


class Generators:
    """The keys of PyTorch's generators in one call; those in an equal state draw alike."""

    def __init__(self, key: jax.Array | None = None) -> None:
        """Derive all keys from one; without one they are the same in every call."""
        self._key = jax.random.key(0) if key is None else key
        # The generators themselves: the `id` of one that is freed may be that of the next.
        self._counts: dict[torch.Generator, int] = {}

    def next_key(self, generator: torch.Generator) -> jax.Array:
        """Return the next key of a `torch.Generator`."""
        with no_dispatch(), torch._C.DisableTorchFunction():
            state = zlib.crc32(generator.get_state().numpy().tobytes())
        count = self._counts[generator] = self._counts.get(generator, 0) + 1
        return jax.random.fold_in(jax.random.fold_in(self._key, state), count)


class _Reshaped(torchax.view.ViewInfo):
    """A view of another shape, which writes to the tensor itself, as `orthogonal_` does."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def transform_tensor(self, jax_array: jax.Array) -> jax.Array:
        return jax_array.reshape(self.shape)

    def update_tensor(self, new_value: jax.Array, jax_array: jax.Array) -> jax.Array:
        return new_value.reshape(jax_array.shape)

    def calculate_output_shape(self, source: object) -> list[int]:
        return list(self.shape)


def _without_factor(operator: Any) -> Any:
    """Leave out the factor `alpha` of a sum where it is 1; torchax multiplies by it."""

    def compute(x: Any, y: Any, *, alpha: Any = 1) -> Any:
        return operator.func(x, y, alpha=One() if alpha == 1 else alpha)

    return replace(operator, func=compute)


def _with_groups(operator: Any) -> Any:
    """Order the inputs and outputs of a transposed convolution's groups as torchax reads them.

    It reads the kernel `[groups * in, out, ...]` as `[in, groups * out, ...]`, which is right with
    one input a group only.
    """

    def compute(x: Any, kernel: Any, bias: Any, *settings: Any) -> Any:
        is_transposed, groups = settings[3], settings[5]
        if is_transposed and groups != 1:
            parts = kernel.reshape(groups, -1, *kernel.shape[1:])
            kernel = jnp.moveaxis(parts, 0, 1).reshape(kernel.shape)
        return operator.func(x, kernel, bias, *settings)

    return replace(operator, func=compute)


def _with_gradient_at_zero(operator: Any) -> Any:
    """Give an L2 norm the gradient 0 where it is 0, as PyTorch does; torchax's is NaN there."""

    def compute(
        x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, **options: Any
    ) -> Any:
        if (
            ord != 2
            or not jnp.issubdtype(x.dtype, jnp.floating)
            or any(option is not None for option in options.values())
        ):
            return operator.func(x, ord, dim, keepdim, **options)
        axes = dim if dim is None or isinstance(dim, int) else tuple(dim) or None
        total = jnp.sum(jnp.square(x), axes, keepdims=keepdim)
        is_zero = total == 0
        root = jnp.sqrt(jnp.where(is_zero, jnp.ones_like(total), total))
        return jnp.where(is_zero, jnp.zeros_like(total), root)

    return replace(operator, func=compute)


class One:
    """Leaves what it is multiplied with as it is."""

    def __rmul__(self, other: Any) -> Any:
        return other


def _transpose_(tensor: Any) -> Any:
    tensor._elem = tensor._elem.T
    return tensor


def _view_as(self: Any, other: Any) -> Any:
    return View(self, _Reshaped(tuple(other.shape)), self._env)


@functools.cache
def environment() -> JaxEnvironment:
    """Build the environment, once."""
    with jax.ensure_compile_time_eval():
        return JaxEnvironment()


def _as_stated(mask: object, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Return whether a module states that its mask is causal.

    `nn.TransformerEncoder` reads the mask's values to find out, which a traced one does not have; a
    mask that is not said to be causal is applied as it is.
    """
    return is_causal is True


@contextmanager
def running(
    key: jax.Array | None, env: JaxEnvironment | None = None, generators: Generators | None = None
) -> Iterator[JaxEnvironment]:
    """Compute PyTorch's operations with JAX while this context is active.

    Args:
      key: of random operations, such as dropout; None for a fixed one.
      env: None for the common one.
      generators: of random operations with a `torch.Generator`; None for ones that follow from
        `key`.
    """
    env = env or environment()
    generators = generators or Generators(key)
    fast_path = torch.backends.mha.get_fastpath_enabled()
    detect_causal = transformer._detect_is_causal_mask
    # PyTorch promotes dtypes and ranks, and its integers are int64.
    promotions = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
    with LOCK, warnings.catch_warnings(), promotions[0], promotions[1]:
        warnings.filterwarnings("ignore", "Explicitly requested dtype")
        torch.backends.mha.set_fastpath_enabled(False)
        transformer._detect_is_causal_mask = _as_stated
        try:
            with env.override_property(prng=key), env.drawing(generators), env:
                yield env
        finally:
            torch.backends.mha.set_fastpath_enabled(fast_path)
            transformer._detect_is_causal_mask = detect_causal


@contextmanager
def explained(shown: str) -> Iterator[None]:
    """Say in one sentence what of a module cannot be traced.

    Args:
      shown: the module.

    Raises:
      TriglotError: for an operation without a counterpart, or one that needs values of tensors.
    """
    try:
        yield
    except torchax.tensor.OperatorNotFound as error:
        name = str(error).removeprefix("Operator with name ").removesuffix(" has no lowering")
        raise TriglotError(
            f"{shown} uses PyTorch's operation {name}, which torchax cannot convert to JAX: write "
            "it with other operations."
        ) from None
    except VALUES_NEEDED:
        raise TriglotError(
            f"{shown} needs values of its tensors while it is traced, such as in `if x.sum() > 0`, "
            "`.item()` or a boolean index: use torch.where, so that one program serves all inputs."
        ) from None


def to_arrays(tree: PyTree, shown: str) -> PyTree:
    """Convert the tensors of a module's outputs to JAX arrays.

    Raises:
      TriglotError: if there is anything else.
    """

    def convert(leaf: Any) -> jax.Array:
        if isinstance(leaf, Tensor | View):
            return leaf.jax()
        if isinstance(leaf, torch.Tensor):
            return jnp.asarray(leaf.detach().numpy())
        raise TriglotError(
            f"{shown} returned a {type(leaf).__name__}: return tensors, or dictionaries and tuples "
            "of them."
        )

    return jax.tree.map(convert, tree)
