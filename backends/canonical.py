"""Three arithmetics of a network: `native`, `leaf_order` and `canonical`.

Two libraries may compute the same function and differ in the last bit, for three reasons: the order
in which parameters flatten (the global norm is summed in it), the layout of a kernel, and the side
of a product on which it is the operand (another matrix routine, another order of summation).
`leaf_order` removes the first, `canonical` all three.
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend import core as jex

from ..core.errors import TriglotError, unknown
from ..core.network import Codec, Network, Variables
from ..core.tracing.jaxprs import aval_of, bind, evaluate
from ..core.tracing.norms import has_norms
from ..core.tracing.products import in_one_order
from ..core.types import Carry, Params, PyTree

Arithmetic: TypeAlias = Literal["native", "leaf_order", "canonical"]
ARITHMETICS: tuple[Arithmetic, ...] = ("native", "leaf_order", "canonical")


def with_arithmetic(network: Network, arithmetic: str) -> Network:
    """Change the storage of a network's parameters and its order of summation.

    Args:
      network: a network with arithmetic `native`.
      arithmetic: `native` changes nothing. `leaf_order` stores the parameters in a dictionary by
        canonical name. `canonical` also stores them in the canonical layout, makes the parameters
        the right operand of every product and computes all convolutions in the same way.

    Returns:
      A network with other `params` and codec, whose outputs are equal up to rounding.

    Raises:
      TriglotError: if the arithmetic is unknown, the network has no codec, or its arithmetic is not
        `native`.
    """
    if arithmetic not in ARITHMETICS:
        raise unknown("arithmetic", arithmetic, ARITHMETICS)
    if arithmetic == "native":
        return network
    codec = network.codec
    if codec is None or network.arithmetic != "native":
        raise TriglotError(
            f"the {network.backend} network {network.name!r} (arithmetic {network.arithmetic}) "
            f"cannot be converted to {arithmetic!r}: give a native network with a codec."
        )
    layout = arithmetic == "canonical"

    def init(key: jax.Array) -> Variables:
        variables = network.init(key)
        return Variables(
            params=codec.encode(variables.params, layout=layout), state=variables.state
        )

    def decoded(variables: Variables) -> Variables:
        params = codec.decode(variables.params, layout=layout)
        return Variables(params=params, state=variables.state)

    def apply(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        def forward(params: Params, inputs: PyTree) -> tuple[PyTree, PyTree]:
            native = decoded(Variables(params=params, state=variables.state))
            return network.apply(native, inputs, key=key, train=train)

        if not layout:
            return forward(variables.params, inputs)
        rewritten = params_on_the_right(forward, recurrent=network.recurrent)
        return rewritten(variables.params, inputs)

    def scatter_add(params: Params, inputs: PyTree, changes: PyTree) -> Params:
        native = codec.decode(params, layout=layout)
        assert network.scatter_add is not None  # for the type checker
        return codec.encode(network.scatter_add(native, inputs, changes), layout=layout)

    def initial_carry(variables: Variables, num_envs: int) -> Carry:
        return network.initial_carry(decoded(variables), num_envs)

    named = replace(network, codec=_named_codec(codec, layout), arithmetic=arithmetic)
    add = network.scatter_add and scatter_add
    return replace(named, init=init, apply=apply, scatter_add=add, initial_carry=initial_carry)


def _named_codec(codec: Codec, layout: bool) -> Codec:
    """Build the codec of parameters stored by canonical name, in canonical or native layout."""
    if layout:
        leaves = [leaf.stored_canonically(n) for leaf in codec.leaves for n in leaf.names]
    else:
        leaves = list(codec.leaves)
    by_name = {leaf.name: leaf for leaf in sorted(leaves, key=lambda leaf: leaf.name)}
    return Codec.named(dict.fromkeys(by_name, 0), list(by_name.values()))


def params_on_the_right(
    function: Callable[[Params, PyTree], PyTree], *, recurrent: bool = False
) -> Callable[[Params, PyTree], PyTree]:
    """Rewrite the jaxpr of `function(params, inputs)` to a canonical order of summation.

    If the left operand of a product depends on the parameters only and the right one on the inputs,
    they are swapped and the result is transposed. On CPU, a convolution of any layout is computed
    as a product of patches and kernel, since XLA's gradients of convolutions are several times
    slower there; on other devices, and if it is grouped or empty, in `NCHW` with an `OIHW` kernel.
    All other equations are kept. So are products inside custom derivatives and control flow, and
    those whose result has a stated sharding. Each equation keeps the context of its trace.
    """

    def rewritten(params: Params, inputs: PyTree) -> PyTree:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(params, inputs)
        if recurrent or has_norms(closed.jaxpr):
            closed = in_one_order(closed, len(jax.tree.leaves(params)))
        values = [
            *(Value.of(leaf, PARAMS) for leaf in jax.tree.leaves(params)),
            *(Value.of(leaf, INPUTS) for leaf in jax.tree.leaves(inputs)),
        ]
        outputs = [value.array() for value in _evaluate(closed, values)]
        return jax.tree.unflatten(jax.tree.structure(shape), outputs)

    return rewritten


CONSTANT, PARAMS, INPUTS = 0, 1, 2  # bit mask of the dependencies of a value


@dataclass(frozen=True)
class Value:
    """An array with a pending transposition, so that two successive ones cancel.

    Attributes:
      base: the array before the transposition.
      axes: the value is `transpose(base, axes)`.
      source: bit mask of its dependencies.
    """

    base: jax.Array
    axes: tuple[int, ...]
    source: int

    @classmethod
    def of(cls, array: jax.Array, source: int) -> "Value":
        return cls(array, tuple(range(jnp.ndim(array))), source)

    def transposed(self, axes: Sequence[int]) -> "Value":
        return replace(self, axes=tuple(self.axes[axis] for axis in axes))

    def array(self) -> jax.Array:
        in_place = self.axes == tuple(range(len(self.axes)))
        return self.base if in_place else jnp.transpose(self.base, self.axes)


def _evaluate(closed: jex.ClosedJaxpr, values: Sequence[Value]) -> list[Value]:
    jaxpr = closed.jaxpr
    constants = [Value.of(constant, CONSTANT) for constant in closed.consts]
    known: dict[jex.Var, Value] = dict(zip(jaxpr.constvars, constants, strict=True))
    known.update(zip(jaxpr.invars, values, strict=True))
    read = evaluate(jaxpr.eqns, known, _rewrite, lambda value: Value.of(value, CONSTANT))
    return [read(atom) for atom in jaxpr.outvars]


def _rewrite(equation: jex.JaxprEqn, operands: list[Value]) -> list[Value]:
    name, params = equation.primitive.name, equation.params
    if name in ("jit", "pjit") and _holds_products(equation):
        return _evaluate(params["jaxpr"], operands)
    if name == "transpose":
        return [operands[0].transposed(params["permutation"])]
    if name == "dot_general" and _swaps(operands, params["out_sharding"]):
        return [_swapped_product(*operands, **params)]
    if name == "dot_general" and _is_turned(operands, params["out_sharding"]):
        return [_product_as_stored(*operands, **params)]
    if name == "broadcast_in_dim" and len(operands) == 1 and operands[0].source == PARAMS:
        shape = aval_of(equation.outvars[0]).shape
        if math.prod(shape) == operands[0].base.size:  # only axes of size 1 are added
            return [Value.of(operands[0].array().reshape(shape), PARAMS)]
    if name == "conv_general_dilated" and len(operands[0].axes) == 4:
        images, kernel = operands
        return [_convolution(images, kernel, aval_of(equation.outvars[0]).shape, **params)]
    source = functools.reduce(operator.or_, (operand.source for operand in operands), CONSTANT)
    arrays = [operand.array() for operand in operands]
    if name in ("add", "sub", "mul", "div"):
        shape = aval_of(equation.outvars[0]).shape
        arrays = [
            _spread(array, shape) if operand.source == PARAMS else array
            for operand, array in zip(operands, arrays, strict=True)
        ]
    return [Value.of(array, source) for array in bind(equation, arrays)]


def _spread(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Broadcast a bias in one step from its own axes, to fix its gradient's summation order."""
    if array.shape == shape:
        return array
    kept_axes = [axis for axis, size in enumerate(array.shape) if size == shape[axis] != 1]
    return jax.lax.broadcast_in_dim(
        array.reshape([shape[axis] for axis in kept_axes]), shape, kept_axes
    )


def _swaps(operands: list[Value], out_sharding: object) -> bool:
    left, right = operands
    # A sharding names the axes of the result in order.
    return left.source == PARAMS and bool(right.source & INPUTS) and out_sharding is None


def _is_turned(operands: list[Value], out_sharding: object) -> bool:
    left, right = operands
    turned = right.axes != tuple(range(len(right.axes)))
    return bool(left.source & INPUTS) and right.source == PARAMS and turned and out_sharding is None


def _holds_products(equation: jex.JaxprEqn) -> bool:
    name = equation.primitive.name
    if name in ("jit", "pjit"):
        return any(map(_holds_products, equation.params["jaxpr"].jaxpr.eqns))
    return name in ("dot_general", "conv_general_dilated")


def _swapped_product(
    left: Value,
    right: Value,
    *,
    dimension_numbers: jax.lax.DotDimensionNumbers,
    precision: jax.lax.PrecisionLike,
    **params: Any,
) -> Value:
    (left_contract, right_contract), (left_batch, right_batch) = dimension_numbers
    # Contract the parameter's stored axes, which avoids a transposition in the program.
    swapped = jax.lax.dot_general_p.bind(
        right.array(),
        left.base,
        dimension_numbers=(
            (right_contract, tuple(left.axes[axis] for axis in left_contract)),
            (right_batch, tuple(left.axes[axis] for axis in left_batch)),
        ),
        precision=_swapped_precision(precision),
        **params,
    )
    kept = [axis for axis in range(len(left.axes)) if axis not in (*left_contract, *left_batch)]
    num_batch, num_left = len(left_batch), len(kept)
    num_right = swapped.ndim - num_batch - num_left
    # The left operand's axes come last in the result, in the order of its base.
    in_base = sorted(kept, key=lambda axis: left.axes[axis])
    last = [num_batch + num_right + in_base.index(axis) for axis in kept]
    axes = [*range(num_batch), *last, *range(num_batch, num_batch + num_right)]
    return Value.of(swapped, left.source | right.source).transposed(axes)


def _product_as_stored(
    left: Value, right: Value, *, dimension_numbers: jax.lax.DotDimensionNumbers, **params: Any
) -> Value:
    """Multiply by a parameter on the right, along its stored axes."""
    (left_contract, right_contract), (left_batch, right_batch) = dimension_numbers
    product = jax.lax.dot_general_p.bind(
        left.array(),
        right.base,
        dimension_numbers=(
            (left_contract, tuple(right.axes[axis] for axis in right_contract)),
            (left_batch, tuple(right.axes[axis] for axis in right_batch)),
        ),
        **params,
    )
    kept = [axis for axis in range(len(right.axes)) if axis not in (*right_contract, *right_batch)]
    in_base = sorted(kept, key=lambda axis: right.axes[axis])
    first = range(product.ndim - len(kept))
    axes = [*first, *(len(first) + in_base.index(axis) for axis in kept)]
    return Value.of(product, left.source | right.source).transposed(axes)


def _swapped_precision(precision: Any) -> jax.lax.PrecisionLike:
    if isinstance(precision, jax.lax.DotAlgorithm):
        return precision._replace(
            lhs_precision_type=precision.rhs_precision_type,
            rhs_precision_type=precision.lhs_precision_type,
            lhs_component_count=precision.rhs_component_count,
            rhs_component_count=precision.lhs_component_count,
        )
    return precision[::-1] if isinstance(precision, tuple) else precision


def _convolution(
    images: Value,
    kernel: Value,
    shape: tuple[int, ...],
    *,
    dimension_numbers: jax.lax.ConvDimensionNumbers,
    **params: Any,
) -> Value:
    # A specification gives the positions of (batch, feature, height, width).
    numbers, source = dimension_numbers, images.source | kernel.source
    in_order = (0, 1, 2, 3)
    nchw, oihw = images.transposed(numbers.lhs_spec), kernel.transposed(numbers.rhs_spec)
    plain = params["feature_group_count"] == params["batch_group_count"] == 1
    plain = plain and params["lhs_dilation"] == (1, 1)
    empty = 0 in (*shape, *images.base.shape, *kernel.base.shape)
    if plain and not empty and jax.default_backend() == "cpu":
        result = Value.of(_patches_times_kernel(nchw, oihw, **params), source)
        result = result.transposed((0, 3, 1, 2))
    else:
        result = jax.lax.conv_general_dilated_p.bind(
            nchw.array(),
            oihw.array(),
            dimension_numbers=jax.lax.ConvDimensionNumbers(in_order, in_order, in_order),
            **params,
        )
        result = Value.of(result, source)
    return result.transposed([numbers.out_spec.index(axis) for axis in in_order])


def _patches_times_kernel(nchw: Value, oihw: Value, **params: Any) -> jax.Array:
    """Compute a convolution `[B, H, W, O]` as one product `[B * H * W, patch] x [patch, O]`."""
    low_high = [(low, high, 0) for low, high in params["padding"]]
    images = nchw.transposed((0, 2, 3, 1)).array()
    images = jax.lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), *low_high, (0, 0, 0)])
    hwio = oihw.transposed((2, 3, 1, 0)).array()
    for axis in (2, 1):  # the width first: fewer and longer copies than pixel by pixel
        size, stride = hwio.shape[axis - 1], params["window_strides"][axis - 1]
        dilation = params["rhs_dilation"][axis - 1]
        last = images.shape[axis] - (size - 1) * dilation
        shifted = [
            jax.lax.slice_in_dim(images, start, start + last, stride, axis)
            for start in range(0, size * dilation, dilation)
        ]
        images = jnp.concatenate(shifted, axis=-1)
    return jax.lax.dot_general(
        images,
        hwio.reshape(-1, hwio.shape[-1]),
        (((3,), (0,)), ((), ())),
        precision=params["precision"],
        preferred_element_type=params["preferred_element_type"],
    )
