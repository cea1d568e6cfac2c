"""Measure two networks with the same weights, and separate rounding from different functions.

Rounding is what vanishes in double precision. Both networks are measured a second time with
float64 weights and inputs: what rounding causes shrinks by a factor of 2^29 there, while another
epsilon or another formula keeps its size. In float64, two arrays agree if they differ by at most
`DOUBLE_EPS` = 2 float32 eps (2.4e-7) relative to the largest element of the array: constants that
one library rounds to float32 may differ by that much, and float32 could not store less.

A network that computes in a lower precision whatever its inputs are, or that fails on float64,
rounds there too. Then two arrays also agree if in native arithmetic they differ by at most
`SINGLE_FACTOR` = 256 eps of the finer of the two networks' dtypes, relative to the largest element:
the error of a sum of n products grows as the square root of n (Higham 2002, section 3.1), and 256
leaves room for sums of 65,536. After steps of Adam, which divides even a gradient that is all
rounding by its own size, the factor is `STEP_FACTOR` = 65,536.
"""

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from ...core.tracing.jaxprs import aval_of, walk
from ...core.types import PyTree
from .. import host
from ..programs.tape import LAYOUT
from ..types import note_failure
from .effort import STEPS, Effort
from .subject import OPTIMIZER, Arrays, Subject, double_precision

DOUBLE_EPS = 2 * float(np.finfo(np.float32).eps)
SINGLE_FACTOR = 256
SINGLE_TOLERANCE = SINGLE_FACTOR * float(np.finfo(np.float32).eps)
STEP_FACTOR = 65_536
TINY = float(np.finfo(np.float32).tiny)

TRAINING, EVALUATION = "training", "evaluation"
OUTPUTS, GRADIENTS = "outputs", "gradients"
STATE = "outputs after 2 state updates"
ONE_STEP = "parameters after 1 step"
MANY_STEPS = f"parameters after {STEPS} steps"
LONG_OUTPUTS = f"outputs after {STEPS} steps"
LONG = (MANY_STEPS, LONG_OUTPUTS)
STEPPED = (ONE_STEP, MANY_STEPS)


class Quantity(NamedTuple):
    """What is measured: one of the names above, the mode, and the batch size."""

    name: str
    mode: str
    batch: int


HostArrays: TypeAlias = dict[str, np.ndarray]
Values: TypeAlias = dict[Quantity, HostArrays]


class Distance(NamedTuple):
    """How far two sets of arrays differ.

    Attributes:
      identical: whether all bits are equal.
      max_abs: the largest absolute difference.
      max_rel: the largest difference relative to the largest element of its array.
      where: the array with the largest relative difference; empty if none differs.
    """

    identical: bool
    max_abs: float
    max_rel: float
    where: str = ""


@dataclass(frozen=True)
class Measurement:
    """One quantity of both networks.

    Attributes:
      quantity: what was measured.
      native: the distance in each library's own arithmetic.
      canonical: the distance in canonical arithmetic; None if a network has none.
      double: the distance in float64; None if a network fails on it.
      single_tolerance: the relative difference up to which `native` is rounding, if a network
        rounds in float64 too; None otherwise.
    """

    quantity: Quantity
    native: Distance
    canonical: Distance | None
    double: Distance | None
    single_tolerance: float | None

    @property
    def agrees(self) -> bool:
        """Whether the difference is at most rounding."""
        if self.native.identical or (self.double and self.double.max_rel <= DOUBLE_EPS):
            return True
        return self.single_tolerance is not None and self.native.max_rel <= self.single_tolerance


@dataclass(frozen=True)
class Setup:
    """What both networks are measured on.

    Attributes:
      key: the key of random draws in training.
      modes: the modes in which outputs are measured; one if both give the same program.
      learning_mode: the mode of the gradient steps.
      learns: whether there is something to differentiate.
      effort: how much is measured.
      is_random: whether the outputs of each network are random in training.
    """

    key: jax.Array
    modes: tuple[str, ...]
    learning_mode: str
    learns: bool
    effort: Effort
    is_random: tuple[bool, bool] = (False, False)


class Measured(NamedTuple):
    """All measurements of two networks.

    Attributes:
      measurements: a measurement of each quantity.
      notes: what could not be measured, and why.
      dtypes: the coarsest dtype in which each network computes on float64; empty if it fails.
      gradients: the gradients of both networks, by shared name; empty if nothing is differentiated.
    """

    measurements: list[Measurement]
    notes: list[str]
    dtypes: tuple[str, str]
    gradients: list[HostArrays]


def measure(
    first: Subject,
    second: Subject,
    setup: Setup,
    *,
    same_dtypes: bool = True,
    begin: Callable[[str], None] = lambda stage: None,
) -> Measured:
    """Measure all quantities in native and canonical arithmetic and in double precision.

    Args:
      first, second: the networks.
      setup: the modes and keys of the measurements.
      same_dtypes: whether their parameters and outputs have the same dtypes; where they do not,
        double precision would hide it, and is not measured.
      begin: a function that is called with the name of each stage.
    """
    notes: list[str] = []
    host.trim()  # of the values of both programs
    begin("measuring native arithmetic")
    values = [_values(side, setup) for side in (first, second)]
    names = _names(first, second)
    native = _distances(values, names)
    canonical: dict[Quantity, Distance] = {}
    double: dict[Quantity, Distance] = {}
    identical = all(each.identical for each in native.values())
    if setup.effort.everything and not identical:
        # It cannot rewrite some layers.
        with note_failure(notes, "canonical arithmetic was not measured"):
            begin("measuring canonical arithmetic")
            pair = first.canonical(), second.canonical()
            canonical = _distances([_values(side, setup) for side in pair], names)
    coarsest = [_coarsest(side, setup) for side in (first, second)]
    if identical:
        notes.append("other arithmetic was not measured: all bits are equal in the native one")
    elif not same_dtypes:
        notes.append("double precision was not measured: the networks' dtypes differ")
    elif not all(coarsest):
        notes.append("double precision was not measured: a network fails on float64 weights")
    else:
        with note_failure(notes, "double precision was not measured"), double_precision():
            begin("measuring float64")
            compiled = setup.effort.everything
            double_values = [_double_values(side, setup, compiled) for side in (first, second)]
            double = _distances(double_values, names)
    precise = bool(double) and set(coarsest) == {"float64"}
    if double and not precise:
        coarse_dtypes = sorted({dtype for dtype in coarsest if dtype != "float64"})
        notes.append(
            f"a network computes in {' and '.join(coarse_dtypes)} with float64 weights too"
        )
    # Without double precision the arithmetic is that of the weights, at best float32.
    finest = min(float(jnp.finfo(dtype or "float32").eps) for dtype in coarsest)
    eps = max(finest, float(np.finfo(np.float32).eps))
    measurements = [
        Measurement(
            quantity,
            native[quantity],
            canonical.get(quantity),
            double.get(quantity),
            None if precise else eps * _factor(quantity),
        )
        for quantity in native
    ]
    if not precise:
        measurements = _ignore_noise_of_steps(measurements, notes)
    if len(setup.modes) == 1 and not any(setup.is_random):
        notes.append("train and eval modes are identical; measured once")
    learned = Quantity(GRADIENTS, setup.learning_mode, max(first.batches))
    gradients = [side[learned] for side in values if learned in side]
    return Measured(measurements, notes, (coarsest[0], coarsest[1]), gradients)


def _names(first: Subject, second: Subject) -> dict[str, str]:
    """Name the paired parameters as both authors know them, by their shared names."""
    sides = first.display_names, second.display_names
    return {
        name: first_name if first_name == sides[1][name] else f"{first_name} = {sides[1][name]}"
        for name, first_name in sides[0].items()
    }


def _ignore_noise_of_steps(measurements: list[Measurement], notes: list[str]) -> list[Measurement]:
    """Do not judge parameters after gradient steps where gradients and outputs agree.

    Adam divides a gradient by its own size. Where a gradient is 0 but for rounding, such as that of
    a bias of attention keys, its steps are as large as any others, and no output depends on them.
    """
    if not all(e.agrees for e in measurements if e.quantity.name in (GRADIENTS, LONG_OUTPUTS)):
        return measurements
    relaxed = [
        replace(each, single_tolerance=math.inf) if each.quantity.name in STEPPED else each
        for each in measurements
    ]
    if any(a.agrees != b.agrees for a, b in zip(relaxed, measurements, strict=True)):
        notes.append("parameters after gradient steps differ where no output depends on them")
    return relaxed


def _factor(quantity: Quantity) -> int:
    return STEP_FACTOR if quantity.name in (ONE_STEP, *LONG) else SINGLE_FACTOR


def _coarsest(side: Subject, setup: Setup) -> str:
    """Find the coarsest floating dtype in which a network computes on float64.

    Conversions do not count: only what is computed in another dtype loses digits.

    Returns:
      The dtype; empty if the network fails on float64.
    """
    dtypes = {"float64"}
    try:
        with double_precision():
            for mode in setup.modes:
                dtypes |= _dtypes(side.trace(setup.key, mode == TRAINING, wide=True))
    except Exception:
        return ""
    return max(dtypes, key=lambda dtype: float(jnp.finfo(dtype).eps))


def _dtypes(jaxpr: jex.Jaxpr) -> set[str]:
    """Collect the floating dtypes in which a program computes with arrays."""
    return {
        str(aval_of(var).dtype)
        for equation, _ in walk(jaxpr)
        if equation.primitive.name not in LAYOUT
        for var in equation.outvars
        if jnp.issubdtype(getattr(var.aval, "dtype", np.bool_), jnp.floating) and aval_of(var).shape
    }


def _distances(values: Sequence[Values], names: Mapping[str, str]) -> dict[Quantity, Distance]:
    """Compare the quantities that both networks have, and say where they differ by `names`."""
    first_values, second_values = values
    distances = {
        quantity: distance(arrays, second_values[quantity], together=quantity.name == GRADIENTS)
        for quantity, arrays in first_values.items()
        if quantity in second_values  # only one of them may have a state
    }
    return {
        quantity: each._replace(where=names.get(each.where, each.where))
        for quantity, each in distances.items()
    }


def _double_values(side: Subject, setup: Setup, compiled: bool) -> Values:
    """Compute all quantities of one network in float64, and free its weights."""
    values = _values(side.in_double(compiled=compiled), setup)
    gc.collect()  # a subject's programs refer to it
    host.trim()
    return values


def _values(side: Subject, setup: Setup) -> Values:
    """Compute all quantities of one network."""
    values: dict[Quantity, Arrays] = {}
    largest, learns = max(side.batches), setup.learns and setup.effort.gradients
    key, mode = setup.key, setup.learning_mode
    for size, batch in side.batches.items():
        for each in setup.modes:
            if size == largest and each == mode and learns:
                continue  # a step computes it too
            values[Quantity(OUTPUTS, each, size)], _ = side.forward(
                side.variables, batch, key, each == TRAINING
            )
    if learns:
        values |= _values_of_learning(side, setup)
    if TRAINING in setup.modes and jax.tree.leaves(side.variables.state):
        updated = side.variables
        # One update cannot tell another momentum: some libraries take over the first batch whole.
        for size in (largest, min(side.batches)):
            _, state = side.forward(updated, side.batches[size], key, True)
            updated = replace(updated, state=state)
        outputs, _ = side.forward(updated, side.inputs, key, False)
        values[Quantity(STATE, EVALUATION, largest)] = outputs
    order = (OUTPUTS, STATE, GRADIENTS, ONE_STEP, MANY_STEPS, LONG_OUTPUTS)
    return {
        quantity: jax.tree.map(np.asarray, values[quantity])
        for quantity in sorted(values, key=lambda each: (order.index(each.name), *each[1:]))
    }


def _values_of_learning(side: Subject, setup: Setup) -> dict[Quantity, Arrays]:
    """Compute gradients, and what gradient steps give."""
    largest, mode, key = max(side.batches), setup.learning_mode, setup.key
    variables, opt_state = side.variables, None
    if setup.effort.everything:
        opt_state = host.call(OPTIMIZER.init, variables.params)

    def step(number: int) -> dict[str, PyTree]:
        step_key = jax.random.fold_in(key, number) if mode == TRAINING else key
        return side.step(variables, opt_state, side.inputs, step_key, mode == TRAINING)

    results = step(0)
    values: dict[Quantity, Arrays] = {
        Quantity(OUTPUTS, mode, largest): results["outputs"],
        Quantity(GRADIENTS, mode, largest): results["gradients"],
    }
    if not setup.effort.everything:
        return values
    for number in range(1, STEPS + 1):
        variables, opt_state = results["variables"], results["opt_state"]
        if number == 1:
            values[Quantity(ONE_STEP, mode, largest)] = side.encode(variables.params)
        results = step(number)
    values[Quantity(MANY_STEPS, mode, largest)] = side.encode(variables.params)
    if mode == EVALUATION:
        values[Quantity(LONG_OUTPUTS, mode, largest)] = results["outputs"]
    else:
        outputs, _ = side.forward(variables, side.inputs, key, False)
        values[Quantity(LONG_OUTPUTS, EVALUATION, largest)] = outputs
    return values


def distance(
    first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray], *, together: bool = False
) -> Distance:
    """Compare two sets of arrays with the same names; NaN equals NaN.

    Args:
      first, second: arrays of equal shapes by name.
      together: relate differences to the largest element of all arrays, not of each: a gradient
        that is 0 in theory, as of a bias before a normalization, is all rounding.
    """
    finite = {name: max(map(_magnitude, (first[name], second[name]))) for name in first}
    if together:
        finite = dict.fromkeys(finite, max(finite.values(), default=0.0))
    identical, max_abs, max_rel, where = True, 0.0, 0.0, ""
    for name, first_array in first.items():
        second_array = second[name]
        same_dtype = first_array.dtype == second_array.dtype
        identical &= same_dtype and np.array_equal(_bits(first_array), _bits(second_array))
        left, right = first_array.astype(np.float64), second_array.astype(np.float64)
        equal = (left == right) | (np.isnan(left) & np.isnan(right))
        with np.errstate(invalid="ignore"):
            differences = np.where(equal, 0.0, np.abs(left - right))
        largest = float(np.nan_to_num(differences, nan=np.inf).max(initial=0.0))
        relative = largest / max(finite[name], TINY) if largest else 0.0
        max_abs = max(max_abs, largest)
        if relative > max_rel:
            max_rel, where = relative, name
    return Distance(bool(identical), max_abs, max_rel, where)


def _magnitude(array: np.ndarray) -> float:
    """Return the largest finite absolute value."""
    wide = array.astype(np.float64)
    return float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))


def _bits(array: np.ndarray) -> np.ndarray:
    """Return the bytes of an array: NaN equals NaN there, and -0 differs from 0."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
