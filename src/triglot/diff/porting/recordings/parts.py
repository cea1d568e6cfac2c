"""Cut a part out of the port's program, and trace a recorded module as a program."""

import itertools
from collections.abc import Collection, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ....core.types import PyTree
from ...programs import Program, record
from ...programs.tape import DATA, INPUTS, PARAMS, STATE, Tape
from ...programs.values import Core, in_place_of, largest_difference
from ...types import Array
from .layers import canonical_arrays, layer_of
from .reading import Call, Recording

ALIKE = 0.02  # relative to the largest number
LOOSE = 1e-4  # of float32 sums over a whole network, relative to the largest number


def part_of(tape: Tape, arrays: Sequence[Array], end: int, known_values: Collection[int]) -> Tape:
    """Return the part of a program that computes a value, with the known values as inputs."""
    part = Tape(tape.is_wide)
    part_values: dict[int, int] = {}

    def leaf(value: int) -> int:
        if value not in part_values:
            is_input = value in tape.producers
            depends = INPUTS if is_input and tape.depends[value] & DATA else tape.depends[value]
            depends = PARAMS if depends == STATE else depends  # nothing updates them here
            part_values[value] = part.add(arrays[value], depends)
            if value in tape.leaves:
                part.leaves[part_values[value]] = tape.leaves[value]
        return part_values[value]

    for step in tape.steps_for([end], known_values):
        operands, step_arrays = list(map(leaf, step.operands)), [arrays[v] for v in step.results]
        copied = part.add_step(step.equation, operands, step_arrays, step.callers)
        part_values.update(zip(step.results, copied.results, strict=True))
        for value in step.results:
            if tape.roots[value] in part_values:
                part.roots[part_values[value]] = part.roots[part_values[tape.roots[value]]]
    part.outputs = [leaf(end)]
    return part


def module_tape(recording: Recording, call: Call, computed: np.ndarray) -> Tape | None:
    """Return a recorded module as a program, its result arranged as the port's.

    None is returned for modules whose formula is not known, or does not give the recorded result.
    """
    layer = layer_of(recording, call)
    if layer is None or layer.formula is None or len(call.outputs) not in (1, 2):
        return None
    formula, settings = layer.formula, {"training": recording.train, **call.settings}
    inputs = [recording.arrays[name] for name in call.inputs]
    result = np.asarray(recording.arrays[call.outputs[0]], np.float64)
    axes = _nearest(result, computed)

    def compute(
        params: dict[str, Array], state: PyTree, inputs: list[Array], key: jax.Array
    ) -> tuple[jax.Array, PyTree]:
        y = formula(settings, params, inputs)
        return (y if axes is None else jnp.transpose(y, axes)).reshape(computed.shape), ()

    try:
        params = canonical_arrays(recording, call, layer)
        program = Program(function=compute, params=params, inputs=inputs, key=jax.random.key(0))
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            tape = record(program, wide=True)
    except (KeyError, NotImplementedError, TypeError, ValueError, IndexError):
        return None
    agrees = Core.of(tape.arrays[tape.outputs[0]]).same(Core.of(result), LOOSE)
    return tape if agrees else None


def _nearest(result: np.ndarray, computed: np.ndarray) -> tuple[int, ...] | None:
    """Return the order of a result's axes in which it is the port's; None for that of its own."""
    options = _arrangements(result, computed.shape)
    if len(options) < 2:
        return options[0] if options else None
    distances = [
        largest_difference(_rearrange(result, axes, computed.shape), computed)[1]
        for axes in options
    ]
    return options[int(np.argmin(distances))] if min(distances) < ALIKE else options[0]


def _rearrange(array: np.ndarray, axes: tuple[int, ...] | None, shape: Sequence[int]) -> np.ndarray:
    return (array if axes is None else array.transpose(axes)).reshape(shape)


def _arrangements(result: np.ndarray, shape: Sequence[int]) -> list[tuple[int, ...] | None]:
    """List the orders of a result's axes that give a shape, the usual ones of images first."""
    rank = result.ndim
    if result.size != int(np.prod(shape)):
        return []
    usual = [tuple(range(rank))]
    if rank > 2:
        usual += [(0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))]
    orders = [*usual, *itertools.permutations(range(rank))]
    fitting = [a for a in orders if tuple(result.shape[i] for i in a) == tuple(shape)]
    return list(dict.fromkeys(fitting)) or [None]


def arrangements_like(recorded: np.ndarray, computed: Array) -> list[np.ndarray]:
    """List the arrangements of a recorded value in the shape of the port's, the likely first."""
    target = np.asarray(computed, np.float64)
    source = np.asarray(recorded, np.float64)
    options = [
        _rearrange(source, axes, target.shape) for axes in _arrangements(source, target.shape)
    ]
    for number, arranged in enumerate(in_place_of(Core.of(source), source, target)):
        if number == 24:
            break
        options.append(arranged)
    if len(options) < 2:
        return options
    distances = [largest_difference(each, target)[1] for each in options]
    if min(distances) > ALIKE:  # the numbers do not say which; the usual arrangements come first
        return options
    return [options[i] for i in sorted(range(len(options)), key=distances.__getitem__)]


def arrangements_through(tape: Tape, end: int, recorded: np.ndarray) -> list[np.ndarray]:
    """List the arrangements that the port gives a value later, as that of all heads' results."""
    steps = tape.rearrangements_of(end)
    shape = np.shape(tape.arrays[end])
    numbers = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
    replayed = tape.replay({end: numbers}, steps=steps)
    options = []
    for value in {v for step in steps for v in step.results}:
        if np.shape(replayed[value]) == recorded.shape and np.size(replayed[value]) == numbers.size:
            order = np.asarray(replayed[value]).astype(np.int64).ravel()
            arranged = np.empty(numbers.size)
            arranged[order] = recorded.ravel()
            options.append(arranged.reshape(shape))
    return options


def masks(tape: Tape, known_values: Collection[int]) -> list[int]:
    """Return bits of the parameters on which each value depends, on the way from known values."""
    bits: Mapping[int, int] = {value: 1 << i for i, value in enumerate(sorted(tape.leaves))}
    value_bits = [bits.get(value, 0) for value in range(len(tape.arrays))]
    for step in tape.steps:
        step_bits = 0
        for value in step.operands:
            step_bits |= value_bits[value]
        for value in step.results:
            value_bits[value] = 0 if value in known_values else step_bits
    return value_bits
