"""Another dtype or precision: the values agree in float64, not as the programs state them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.typing import DTypeLike

from ...core.tracing.jaxprs import aval_of, context_of, walk
from ..types import Cause, Difference, Operation
from . import places
from .catalogue import features
from .conditioning import difference_of_outputs
from .divergence import Divergence
from .tape import Tape, evaluation_types
from .values import View, largest_difference
from .wide import bind_wide, is_floating, widen

# The relative error of float32 programs against float64, with room for long sums.
ROUNDING = 2e-5
FLOAT32_EPS = float(np.finfo(np.float32).eps)
SIGNIFICANT = 1 / 16  # of the eps of a type: a result that it rounds
Operations: TypeAlias = tuple[Operation | None, Operation | None]
PRODUCTS = ("dot_general", "conv_general_dilated")
DEFAULT = "default"
ROUNDING_PREFIX = "rounding"


def mixes_types(tape: Tape) -> bool:
    """Return whether a program computes in another type than float32 or states a precision."""
    return any(
        step.name == "reduce_precision"
        or step.equation.params.get("precision") is not None
        or any(
            is_floating(dtype) and dtype != np.float32
            for dtype in (aval_of(var).dtype for var in step.equation.outvars)
        )
        for step in tape.steps
    )


def is_rounded_constant(divergence: Divergence) -> bool:
    """Return whether two results differ by a factor that is the rounding of a constant.

    A program in bfloat16 holds 0.3535 and another one 2.828 to three digits, which float64 shows.
    """
    factor = features.ratio(divergence)
    if factor is None:
        return False
    types = {
        aval_of(step.equation.outvars[0]).dtype
        for part in divergence.parts
        for step in part.steps
        if features.constants(part.tape, step)
    }
    rounded = [_eps(dtype) for dtype in types if is_floating(dtype)]
    return max(rounded, default=0.0) > FLOAT32_EPS and abs(factor - 1) <= max(rounded)


def arithmetic_difference(
    wide: Sequence[View], native: Sequence[Tape], labels: tuple[str, str]
) -> tuple[list[Cause], Difference | None]:
    """Compare the types in which two programs compute equal values.

    Args:
      wide: both programs in float64, the second one with the first one's results wherever another
        cause was found.
      native: both programs as traced.
      labels: the labels of both networks.

    Returns:
      The causes, `dtype` and `precision`, and the first operations with other types; none if both
      programs are as exact as float32.
    """
    errors = [_error(tape, view.tape) for tape, view in zip(native, wide, strict=True)]
    if max(errors) <= ROUNDING:
        return [], None
    equations = [[(step.equation, step.callers) for step in view.tape.steps] for view in wide]
    deviation = (
        f"; the outputs deviate from float64 by {errors[0]:.2g} and {errors[1]:.2g} of their size"
    )
    findings: list[tuple[Cause, Operations]] = []
    if (types := _other_types(wide, native)) is not None:
        values, type_names = types
        first_operation, second_operation = (
            places.operation(v.tape, value) for v, value in zip(wide, values, strict=True)
        )
        evidence = f"{type_names[0]} in {labels[0]}, {type_names[1]} in {labels[1]}{deviation}"
        cause = Cause(
            "dtype", places.describe_both((first_operation, second_operation), labels), evidence
        )
        findings.append((cause, (first_operation, second_operation)))
    if (precision := compare_precisions(equations, labels)) is not None:
        cause, operations = precision
        findings.append((replace(cause, evidence=cause.evidence + deviation), operations))
    if not findings:
        return [], None
    return [cause for cause, _ in findings], difference_of_outputs(native, findings[0][1])


def _error(native: Tape, wide: Tape) -> float:
    """Return the largest error of the outputs, relative to the largest output."""
    pairs = zip(native.outputs, wide.outputs, strict=True)
    return max(
        (
            largest_difference(np.asarray(native.arrays[a], np.float64), wide.arrays[b])[1]
            for a, b in pairs
        ),
        default=0.0,
    )


def _other_types(
    wide: Sequence[View], native: Sequence[Tape]
) -> tuple[tuple[int, int], tuple[str, str]] | None:
    """Find equal values that one program rounds to a type to which the other does not.

    The type is the finest in which the program reads the value: a product that is computed in
    float32, and read in bfloat16 only, is as exact as one in bfloat16. A type to which no number is
    rounded, as that of a maximum, is no difference.
    """
    first_view = wide[0]
    types_read = [read_types(view.tape) for view in wide]
    for a in first_view.data_values():
        core = first_view.core(a)
        if a not in first_view.tape.producers or core.array.size == 1:
            continue
        read = [
            {v: types[v] for v in view.find_all(core) if v in view.tape.producers and v in types}
            for view, types in zip(wide, types_read, strict=True)
        ]
        if not all(read):
            continue
        first, second = (min(types, key=lambda v: _eps(types[v])) for types in read)
        finest = read[0][first], read[1][second]
        coarser = int(_eps(finest[1]) > _eps(finest[0]))
        if finest[0] == finest[1]:
            continue
        if any(_rounds(native[coarser], v, finest[coarser]) for v in read[coarser]):
            return (first, second), (str(finest[0]), str(finest[1]))
    return None


def _eps(dtype: DTypeLike) -> float:
    return float(jnp.finfo(dtype).eps)


def read_types(tape: Tape) -> dict[int, np.dtype]:
    """Return the finest floating type in which each computed value is read.

    A rearrangement, such as a conversion, has the coarsest type since the value was computed.
    """
    coarsest: dict[int, np.dtype] = {}
    finest: dict[int, np.dtype] = {}

    def note(value: int) -> None:
        if value in coarsest:
            root = tape.roots[value]
            previous = finest.get(root)
            finest[root] = (
                coarsest[value] if previous is None else min((previous, coarsest[value]), key=_eps)
            )

    for step in tape.steps:
        arranges = tape.is_layout(step)
        for value in () if arranges else step.operands:
            note(value)
        for value, variable in zip(step.results, step.equation.outvars, strict=True):
            dtype = aval_of(variable).dtype
            if is_floating(dtype):
                previous = coarsest.get(step.operands[0]) if arranges else None
                types = (dtype,) if previous is None else (previous, dtype)
                coarsest[value] = max(types, key=_eps)
    for value in (*tape.outputs, *tape.new_state):
        note(value)
    return finest


def _rounds(native: Tape, value: int, dtype: DTypeLike) -> bool:
    """Return whether a program loses digits of a type where it computes a value."""
    step = native.producers[value]
    with evaluation_types(wide=True):
        operands = [widen(native.arrays[operand]) for operand in step.operands]
        with context_of(step.equation):
            exact = bind_wide(step.equation, operands)[step.results.index(value)]
    _, relative = largest_difference(
        np.asarray(native.arrays[value], np.float64).astype(dtype).astype(np.float64),
        np.asarray(exact, np.float64),
    )
    return relative > SIGNIFICANT * _eps(dtype)


class Stated(NamedTuple):
    """The precision of a product or a rounding, its equation, and the calls that hold it."""

    precision: str
    equation: jex.JaxprEqn
    callers: tuple[jex.JaxprEqn, ...]


def precision_cause(programs: Sequence[jex.Jaxpr], labels: tuple[str, str]) -> Cause | None:
    """Compare the precisions that two programs state for their products.

    A CPU computes all of them alike, so that only the programs show the difference there.

    Args:
      programs: the jaxprs of both networks.
      labels: the labels of both networks.

    Returns:
      The cause `precision`, for two networks whose values are equal on this machine; None if the
      precisions are the same.
    """
    comparison = compare_precisions(list(map(walk, programs)), labels)
    if comparison is None:
        return None
    cause, _ = comparison
    evidence = (
        f"{cause.evidence}: no effect on this {jax.default_backend()}, but a GPU or TPU rounds "
        "products of lower precision more; this does not change the verdict"
    )
    return replace(cause, evidence=evidence)


def compare_precisions(
    programs: Sequence[Iterable[tuple[jex.JaxprEqn, tuple[jex.JaxprEqn, ...]]]],
    labels: tuple[str, str],
) -> tuple[Cause, Operations] | None:
    """Compare the precisions of products, and the bits to which arrays are rounded.

    Args:
      programs: the equations of both networks, each with the calls that hold it.
      labels: the labels of both networks.

    Returns:
      The cause, with how often each program states it, and the first such operations.
    """
    stated = [list(_stated_precisions(program)) for program in programs]
    occurrences = [Counter(each.precision for each in side) for side in stated]
    same_number = len(stated[0]) == len(stated[1])
    if occurrences[0] == occurrences[1] or (
        occurrences[0].keys() == occurrences[1].keys() and not same_number
    ):
        return None
    names = sorted({*occurrences[0], *occurrences[1]} - {DEFAULT})
    if not names:  # one program has products without a precision, and the other has none
        return None
    name = max(names, key=lambda each: abs(occurrences[0][each] - occurrences[1][each]))
    rounds = any(name.startswith(ROUNDING_PREFIX) for count in occurrences for name in count)
    kinds = "products and roundings" if rounds else "products"
    evidence = "; ".join(
        f"{name} in {count[name]} of {len(side)} {kinds} of {label}"
        for side, count, label in zip(stated, occurrences, labels, strict=True)
    )
    first_stated = [
        next((each for each in side if each.precision == name), None) for side in stated
    ]
    first_operation, second_operation = (
        first
        and places.describe_equation(
            first.equation, first.callers, name=first.equation.primitive.name
        )
        for first in first_stated
    )
    side = int(occurrences[1][name] > occurrences[0][name])
    where = f"{labels[side]}: {places.describe((first_operation, second_operation)[side])}"
    return Cause("precision", where, evidence), (first_operation, second_operation)


def _stated_precisions(
    program: Iterable[tuple[jex.JaxprEqn, tuple[jex.JaxprEqn, ...]]],
) -> Iterable[Stated]:
    for equation, callers in program:
        if equation.primitive.name in PRODUCTS:
            yield Stated(_precision_of(equation), equation, callers)
        elif equation.primitive.name == "reduce_precision":
            bits = equation.params["mantissa_bits"]
            yield Stated(f"{ROUNDING_PREFIX} to {bits} bits of mantissa", equation, callers)


def _precision_of(equation: jex.JaxprEqn) -> str:
    """Write the precision of a product, such as `HIGHEST`."""
    stated = equation.params["precision"]
    sides = stated if type(stated) is tuple else (stated,)  # a `DotAlgorithm` is a tuple too
    names = (DEFAULT if each is None else getattr(each, "name", str(each)) for each in sides)
    return ", ".join(dict.fromkeys(DEFAULT if name == "DEFAULT" else name for name in names))
