"""Random draws of two recorded programs: give both the same ones, and compare what they compute.

Random bits are independent but for those that a key gives twice. So two programs have the same
distribution if the second one, given the first one's bits, computes the first one's outputs; and
one that uses a key twice, or one draw for all examples, is found without a statistical test.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..types import Array
from . import places
from .tape import KEY, STATE, Tape
from .values import close, layouts

TRIALS = 3  # of random bits
UPDATES = 2  # of the state: one does not tell another momentum in some libraries
MAX_ORDERS = 24  # in which one program's draws are given to the other
MAX_LAYOUTS = 6
POSITIONS = 2**40  # more than the numbers of any array

Bits = Sequence[np.ndarray]


@dataclass(frozen=True, eq=False)
class Draws:
    """The random bits on which the outputs of a program depend.

    Attributes:
      tape: the program in training, recorded with its draws.
      evaluated: the program in evaluation.
      outputs: the values of `tape` that are compared.
      evaluated_outputs: those of `evaluated`.
      values: the values that hold the random bits, in order.
      numbers: the index of the independent number in each element of a value; elements
        with equal indices are drawn from one key at one position, and so are equal.
      count: the number of independent numbers.
    """

    tape: Tape
    evaluated: Tape
    outputs: tuple[int, ...]
    evaluated_outputs: tuple[int, ...]
    values: tuple[int, ...]
    numbers: tuple[np.ndarray, ...]
    count: int

    @property
    def size(self) -> int:
        """The number of elements, independent or not."""
        return sum(each.size for each in self.numbers)

    def bits(self, independent: np.ndarray) -> list[np.ndarray]:
        """Arrange independent numbers, uint64 `[count]`."""
        return [independent[each] for each in self.numbers]

    def compute(self, bits: Bits) -> list[np.ndarray]:
        """Compute the outputs with other bits, uint64, of which each draw takes the highest."""
        return self._results(self.outputs, self._as_drawn(bits))

    def compute_after_updates(self, bits_per_update: Sequence[Bits]) -> list[np.ndarray]:
        """Compute the outputs in evaluation after an update of the state with each of some bits."""
        state: dict[int, Array] = {}
        for bits in bits_per_update:
            new_state = self._results(self.tape.new_state, {**self._as_drawn(bits), **state})
            state = dict(zip(_state_leaves(self.tape), new_state, strict=True))
        initial = dict(zip(_state_leaves(self.evaluated), state.values(), strict=True))
        arrays = self.evaluated.replay(initial)
        return [np.asarray(arrays[value]) for value in self.evaluated_outputs]

    def _as_drawn(self, bits: Bits) -> dict[int, Array]:
        arrays = {}
        for value, array in zip(self.values, bits, strict=True):
            dtype = np.asarray(self.tape.arrays[value]).dtype
            arrays[value] = (array >> np.uint64(64 - 8 * dtype.itemsize)).astype(dtype)
        return arrays

    def _results(self, values: Sequence[int], replaced: dict[int, Array]) -> list[np.ndarray]:
        arrays = self.tape.replay(
            replaced, steps=self.tape.steps_for(values, known_values=self.values)
        )
        return [np.asarray(arrays[value]) for value in values]

    def describe(self, index: int) -> str:
        """Describe a draw by its shape and its place."""
        value = self.values[index]
        shape = list(np.shape(self.tape.arrays[value]))
        place = places.describe(places.operation(self.tape, value))
        return f"{shape} at {place.replace('random_bits of ', '').replace('random_bits ', '')}"


@dataclass(frozen=True)
class Reuse:
    """A program that draws once where the other draws several times, and is equal otherwise.

    Attributes:
      side: 0 if it is the first program, 1 for the second.
      counts: the number of independent numbers that each program draws.
      draws: a draw of each program where they differ, in words.
      same_key: whether it draws several times from one key.
      drops_paths: whether both draw one number for each example or for the batch alone, as
        stochastic depth does.
    """

    side: int
    counts: tuple[int, int]
    draws: tuple[str, str]
    same_key: bool
    drops_paths: bool = False


def draws_of(tape: Tape, evaluated: Tape, slots: Sequence[int]) -> Draws | None:
    """List the random bits of a program; None if it uses the key in another way.

    Args:
      tape: the program in training, recorded with its draws.
      evaluated: the program in evaluation.
      slots: the indices of the outputs that are compared.
    """
    if tape.branches_on_key:
        return None
    outputs = tuple(tape.outputs[slot] for slot in slots)
    needed, values = {*outputs, *tape.new_state}, []
    for step in reversed(tape.steps):
        if needed.isdisjoint(step.results):
            continue
        if step.name == "random_bits":
            values.append(step.results[0])
        elif any(_is_key(tape.arrays[value]) for value in step.operands):
            return None  # such as a loop that draws until a number is accepted
        else:
            needed.update(step.operands)
    if any(tape.depends[value] & KEY for value in needed & tape.leaves.keys()):
        return None
    values.reverse()
    number_of_key: dict[tuple[bytes, tuple[int, ...]], int] = {}
    numbers = [_numbers(tape, value, number_of_key) for value in values]
    flat = np.concatenate([each.ravel() for each in numbers]) if numbers else np.zeros(0, int)
    _, first, inverse = np.unique(flat, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))  # by the first use
    ends = np.cumsum([each.size for each in numbers])[:-1]
    parts = np.split(order[inverse], ends) if numbers else []
    shaped = (part.reshape(each.shape) for part, each in zip(parts, numbers, strict=True))
    return Draws(
        tape=tape,
        evaluated=evaluated,
        outputs=outputs,
        evaluated_outputs=tuple(evaluated.outputs[slot] for slot in slots),
        values=tuple(values),
        numbers=tuple(shaped),
        count=len(first),
    )


def _state_leaves(tape: Tape) -> list[int]:
    return [value for value in tape.leaves if tape.depends[value] == STATE]


def _numbers(
    tape: Tape, value: int, number_of_key: dict[tuple[bytes, tuple[int, ...]], int]
) -> np.ndarray:
    """Number the elements of random bits by their keys and their positions."""
    step = tape.producers[value]
    keys, shape = tape.arrays[step.operands[0]], np.shape(tape.arrays[value])
    data = np.asarray(jax.random.key_data(keys))
    data = data.reshape(-1, data.shape[-1])
    inner = shape[np.ndim(keys) :]
    # With counters in blocks, as of old, or another generator, the shape decides all bits.
    config: Any = jax.config
    by_position = config.jax_threefry_partitionable and "fry" in str(keys.dtype)
    kind = () if by_position else inner
    first = [
        number_of_key.setdefault((words.tobytes(), kind), len(number_of_key)) for words in data
    ]
    positions = np.arange(int(np.prod(inner)), dtype=np.int64)
    return (np.asarray(first)[:, None] * POSITIONS + positions).reshape(shape)


def _is_key(array: Array) -> bool:
    return jnp.issubdtype(getattr(array, "dtype", np.bool_), jax.dtypes.prng_key)


@dataclass(frozen=True)
class Replay:
    """Two programs with the same draws, that compute equal outputs up to rounding.

    Attributes:
      same_state: whether the outputs in evaluation after two updates of the state are equal too.
    """

    same_state: bool


def compare_draws(first_draws: Draws, second_draws: Draws) -> Replay | Reuse | None:
    """Give both programs the same draws.

    Returns:
      How they compare if their outputs are then equal up to rounding; what one draws once, if that
      is the only difference; None if this does not decide.
    """
    if not first_draws.values or not second_draws.values:
        return None
    random = np.random.default_rng(0)
    if first_draws.count == second_draws.count:
        trials = [random.integers(0, 2**64, first_draws.count, np.uint64) for _ in range(TRIALS)]
        first_bits = [first_draws.bits(trial) for trial in trials]
        expected = [first_draws.compute(bits) for bits in first_bits]
        for second_bits in _corresponding_bits(first_draws, second_draws, trials, first_bits):
            if _agree(expected, map(second_draws.compute, second_bits)):
                states = (
                    side.compute_after_updates(bits[:UPDATES])
                    for side, bits in ((first_draws, first_bits), (second_draws, second_bits))
                )
                return Replay(_agree([next(states)], states))
        return None
    side = int(second_draws.count < first_draws.count)
    fewer, more = (second_draws, first_draws) if side else (first_draws, second_draws)
    trials = [random.integers(0, 2**64, fewer.count, np.uint64) for _ in range(TRIALS)]
    first_bits = [fewer.bits(trial) for trial in trials]
    expected = [fewer.compute(bits) for bits in first_bits]
    for spread in _spreads(fewer, more):
        if not _agree(expected, (more.compute(spread(bits)) for bits in first_bits)):
            continue
        if not all(_has_effect(more, index, random) for index in range(len(more.values))):
            return None
        reused = _first_reused(fewer)
        index = reused or 0
        first_draw = fewer.describe(index)
        second_draw = more.describe(min(index, len(more.values) - 1))
        draws = (second_draw, first_draw) if side else (first_draw, second_draw)
        paths = all(each.tape.drops_paths for each in (first_draws, second_draws))
        return Reuse(
            side, (first_draws.count, second_draws.count), draws, reused is not None, paths
        )
    return None


def _corresponding_bits(
    first_draws: Draws,
    second_draws: Draws,
    trials: Sequence[np.ndarray],
    first_bits: Sequence[Bits],
) -> Iterator[list[Bits]]:
    """Yield what the second program may draw where the first one draws `first_bits`, per trial.

    The first ways are in the order of use; masks that keep where a number is large need the
    complement of those that keep where it is small.
    """
    yield [second_draws.bits(trial) for trial in trials]
    yield [second_draws.bits(~trial) for trial in trials]
    for arrange in _arrangements(first_draws, second_draws):
        yield [arrange(bits) for bits in first_bits]


def _first_reused(draws: Draws) -> int | None:
    """Return the first draw from a key that is used before, at the same positions."""
    numbers_seen: set[int] = set()
    for index, each in enumerate(draws.numbers):
        numbers = set(np.unique(each).tolist())
        if numbers & numbers_seen or len(numbers) < each.size:
            return index
        numbers_seen |= numbers
    return None


def _agree(first_outputs: Sequence[Bits], second_outputs: Iterator[Bits]) -> bool:
    return all(
        all(_equal_in_any_layout(a, b) for a, b in zip(first_arrays, second_arrays, strict=True))
        for first_arrays, second_arrays in zip(first_outputs, second_outputs, strict=True)
    )


def _equal_in_any_layout(first: np.ndarray, second: np.ndarray) -> bool:
    if first.shape == second.shape:
        return close(first, second)
    return any(close(arranged, second) for arranged in layouts(first, second.shape))


def _arrangements(first_draws: Draws, second_draws: Draws) -> Iterator[Callable[[Bits], Bits]]:
    """Yield the ways to give one program's bits to the other: in another order, or layout."""
    shapes = [each.shape for each in second_draws.numbers]
    if (
        first_draws.size != first_draws.count
        or second_draws.size != second_draws.count
        or len(first_draws.numbers) != len(shapes)
    ):
        return
    orders = itertools.permutations(range(len(shapes)))
    for order in itertools.islice(orders, MAX_ORDERS):
        chosen = [first_draws.numbers[index] for index in order]
        if [each.size for each in chosen] != [int(np.prod(shape)) for shape in shapes]:
            continue
        options = [
            list(itertools.islice(layouts(each, shape), MAX_LAYOUTS))
            for each, shape in zip(chosen, shapes, strict=True)
        ]
        for choice in range(max(map(len, options))):
            # The layout of a number is that of its index.
            places_of = [each[min(choice, len(each) - 1)] for each in options]
            places_inside = [
                each - int(np.min(numbers)) for each, numbers in zip(places_of, chosen, strict=True)
            ]
            yield functools.partial(_take, order, places_inside)


def _take(order: Sequence[int], places_inside: Bits, bits: Bits) -> Bits:
    """Take the numbers of some draws, in another order, at given places of each."""
    return [bits[index].ravel()[each] for index, each in zip(order, places_inside, strict=True)]


def _spreads(fewer: Draws, more: Draws) -> Iterator[Callable[[Bits], Bits]]:
    """Yield the ways to give fewer draws to a program that draws more."""
    shapes, count = [each.shape for each in more.numbers], len(fewer.values)
    sources = [range(count)] if count == len(shapes) else []
    if count < len(shapes) and len(shapes) % count == 0:
        repeats = len(shapes) // count
        sources += [[i // repeats for i in range(len(shapes))], [*range(count)] * repeats]
    for source, align_left in itertools.product(sources, (False, True)):
        spread = functools.partial(_repeat, list(source), shapes, align_left)
        try:
            spread(fewer.numbers)
        except ValueError:
            continue
        yield spread
    if fewer.size == more.size:
        ends = np.cumsum([each.size for each in more.numbers])[:-1]
        yield lambda bits: [
            part.reshape(shape)
            for part, shape in zip(
                np.split(np.concatenate([each.ravel() for each in bits]), ends), shapes, strict=True
            )
        ]


def _repeat(
    source: Sequence[int], shapes: Sequence[tuple[int, ...]], align_left: bool, bits: Bits
) -> Bits:
    """Repeat draws, one for each shape."""
    pairs = zip(source, shapes, strict=True)
    return [_broadcast(bits[index], shape, align_left) for index, shape in pairs]


def _broadcast(array: np.ndarray, shape: tuple[int, ...], align_left: bool) -> np.ndarray:
    """Repeat an array along the axes that it lacks, the last ones if `align_left`.

    Raises:
      ValueError: if it does not fit.
    """
    if array.size == int(np.prod(shape)):
        return array.reshape(shape)
    if align_left:
        array = array.reshape(array.shape + (1,) * (len(shape) - array.ndim))
    return np.broadcast_to(array, shape)


def _has_effect(draws: Draws, index: int, random: np.random.Generator) -> bool:
    """Return whether outputs change with one draw alone."""
    for _ in range(TRIALS):
        first, second = (
            draws.bits(random.integers(0, 2**64, draws.count, np.uint64)) for _ in range(2)
        )
        second = [*first[:index], second[index], *first[index + 1 :]]
        if not _agree([draws.compute(first)], iter([draws.compute(second)])):
            return True
    return False
