"""The part of the port's program between values that are known, and a recorded module as one."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...diff.programs import Program, record
from ...diff.programs.tape import DATA, INPUTS, Step, Tape
from ...diff.programs.values import Core, in_place_of
from .formulas import formula_of
from .reading import Call, Recording

STATE_NAMES = ("running_mean", "running_var", "moving_mean", "moving_variance")
LEFT_OUT = ("num_batches_tracked",)


def steps_between(tape: Tape, end: int, known: Collection[int]) -> list[int]:
    """Return the steps that compute a value of known ones, in order."""
    wanted, found = [end], set()
    while wanted:
        value = wanted.pop()
        if value not in tape.producers or (value in known and value != end):
            continue
        index = tape.producers[value]
        if index not in found:
            found.add(index)
            wanted.extend(tape.steps[index].operands)
    return sorted(found)


def part_of(tape: Tape, arrays: Sequence[Any], end: int, known: Collection[int]) -> Tape:
    """Return the part of a program that computes a value, with the known values as inputs."""
    part = Tape(tape.is_wide)
    moved: dict[int, int] = {}

    def leaf(value: int) -> int:
        if value not in moved:
            is_input = value in tape.producers
            depends = INPUTS if is_input and tape.depends[value] & DATA else tape.depends[value]
            moved[value] = part.add(arrays[value], depends).index
            if value in tape.leaves:
                part.leaves[moved[value]] = tape.leaves[value]
        return moved[value]

    for index in steps_between(tape, end, known):
        step = tape.steps[index]
        operands = tuple(leaf(value) for value in step.operands)
        depends = 0
        for value in operands:
            depends |= part.depends[value]
        results = []
        for value in step.results:
            moved[value] = part.add(arrays[value], depends).index
            part.producers[moved[value]] = len(part.steps)
            if tape.roots[value] in moved:
                part.roots[moved[value]] = part.roots[moved[tape.roots[value]]]
            results.append(moved[value])
        part.steps.append(Step(step.equation, operands, tuple(results), step.callers))
    part.outputs = [leaf(end)]
    return part


def module_tape(recording: Recording, call: Call, shape: Sequence[int]) -> Iterable[Tape]:
    """Yield a recorded module as a program, its result arranged in a shape of the port's.

    Nothing is yielded for modules whose formula is not known, or does not give the recorded result.
    """
    formula = formula_of(recording.library, call.kind)
    statistics = any(name.endswith(STATE_NAMES) for name in call.weights)
    if formula is None or (recording.train and statistics) or len(call.outputs) not in (1, 2):
        return
    own = _own_arrays(recording, call)
    state = {name: own.pop(name) for name in STATE_NAMES if name in own}
    inputs = [recording.arrays[name] for name in call.inputs]
    result = recording.arrays[call.outputs[0]]
    for axes in _arrangements(result, shape):

        def compute(params: Any, state: Any, inputs: Any, key: Any, axes: Any = axes) -> Any:
            y = formula(call.settings, {**params, **state}, inputs)
            return (y if axes is None else jnp.transpose(y, axes)).reshape(shape), ()

        program = Program(
            function=compute, params=own, state=state, inputs=inputs, key=jax.random.key(0)
        )
        try:
            tape = record(program, wide=True)
        except (KeyError, NotImplementedError, TypeError, ValueError, IndexError):
            return
        if near(Core.of(tape.arrays[tape.outputs[0]]), Core.of(result)):
            yield tape


def near(one: Core, other: Core, tolerance: float = 1e-4) -> bool:
    """Return whether two values have the same numbers up to the rounding of float32."""
    return one.same(other, tolerance)


def _own_arrays(recording: Recording, call: Call) -> dict[str, Any]:
    found: dict[str, Any] = {}
    prefix = f"{call.name}." if call.name else ""
    for name, array in recording.weights.items():
        if recording.library == "torch" and name.startswith(prefix):
            found[name[len(prefix) :]] = array
        elif name in call.weights:
            found[name.rpartition("/")[2]] = array
    return {name: array for name, array in found.items() if name not in LEFT_OUT}


def _arrangements(result: np.ndarray, shape: Sequence[int]) -> list[Any]:
    """List the orders of a result's axes that give a shape, the usual ones of images first."""
    rank = result.ndim
    last = (0, *range(2, rank), 1)
    first = (0, rank - 1, *range(1, rank - 1)) if rank > 2 else (0, 1)
    usual = [tuple(range(rank)), last, first] if rank > 2 else [tuple(range(rank))]
    if result.size != int(np.prod(shape)):
        return []
    fitting = [a for a in usual if tuple(result.shape[i] for i in a) == tuple(shape)]
    return list(dict.fromkeys(fitting)) or [None]


def placed(recorded: np.ndarray, computed: np.ndarray) -> list[np.ndarray]:
    """List the arrangements of a recorded value in the shape of the port's, the nearest first."""
    wanted = np.asarray(computed, np.float64)
    own = np.asarray(recorded, np.float64)
    found = []
    for axes in _arrangements(own, wanted.shape):
        moved = own if axes is None else own.transpose(axes)
        found.append(moved.reshape(wanted.shape))
    for number, arranged in enumerate(in_place_of(Core.of(own), own, wanted)):
        if number == 24:
            break
        found.append(arranged)
    with np.errstate(all="ignore"):
        return sorted(found, key=lambda each: float(np.nan_to_num(np.abs(each - wanted)).max()))


def distance(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Return the largest absolute difference, and that relative to the largest number."""
    with np.errstate(all="ignore"):
        apart = float(np.nan_to_num(np.abs(one - other), nan=0.0, posinf=0.0).max(initial=0.0))
        finite = np.abs(one[np.isfinite(one)])
    scale = float(finite.max(initial=0.0))
    return apart, apart / scale if scale else apart


def masks(tape: Tape, known: Collection[int]) -> list[int]:
    """Return bits of the parameters on which each value depends, on the way from known values."""
    bits: Mapping[int, int] = {value: 1 << i for i, value in enumerate(sorted(tape.leaves))}
    found = [bits.get(value, 0) for value in range(len(tape.arrays))]
    for step in tape.steps:
        own = 0
        for value in step.operands:
            own |= found[value]
        for value in step.results:
            found[value] = 0 if value in known else own
    return found
