"""Random draws of two recorded programs: give both the same ones, and compare what they compute.

Random bits are independent but for those that a key gives twice. So two programs have the same
distribution if the second one, given the first one's bits, computes the first one's outputs; and
one that uses a key twice, or one draw for all examples, is found without a statistical test.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
      values: of the bits, in order.
      numbers: for each, which independent number each element is; elements with equal ones are
        drawn from one key at one position, and so are equal.
      count: of independent numbers.
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
        return self._results(self.outputs, self._given(bits))

    def compute_after_updates(self, several: Sequence[Bits]) -> list[np.ndarray]:
        """Compute the outputs in evaluation after an update of the state with each of some bits."""
        state: dict[int, Any] = {}
        for bits in several:
            moved = self._results(self.tape.new_state, {**self._given(bits), **state})
            state = dict(zip(_state_leaves(self.tape), moved, strict=True))
        given = dict(zip(_state_leaves(self.evaluated), state.values(), strict=True))
        now = self.evaluated.replay(given)
        return [np.asarray(now[value]) for value in self.evaluated_outputs]

    def _given(self, bits: Bits) -> dict[int, Any]:
        given = {}
        for value, array in zip(self.values, bits, strict=True):
            dtype = np.asarray(self.tape.arrays[value]).dtype
            given[value] = (array >> np.uint64(64 - 8 * dtype.itemsize)).astype(dtype)
        return given

    def _results(self, wanted: Sequence[int], given: dict[int, Any]) -> list[np.ndarray]:
        now = self.tape.replay(given, steps=self.tape.needed(wanted, known=self.values))
        return [np.asarray(now[value]) for value in wanted]

    def described(self, index: int) -> str:
        """Describe a draw by its shape and its place."""
        value = self.values[index]
        shape = list(np.shape(self.tape.arrays[value]))
        place = places.shown(places.operation(self.tape, value))
        return f"{shape} at {place.replace('random_bits of ', '').replace('random_bits ', '')}"


@dataclass(frozen=True)
class Reuse:
    """A program that draws once where the other draws several times, and is equal otherwise.

    Attributes:
      side: 0 if it is the first program, 1 for the second.
      counts: how many independent numbers each program draws.
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
    wanted, values = {*outputs, *tape.new_state}, []
    for step in reversed(tape.steps):
        if wanted.isdisjoint(step.results):
            continue
        if step.name == "random_bits":
            values.append(step.results[0])
        elif any(_is_key(tape.arrays[value]) for value in step.operands):
            return None  # such as a loop that draws until a number is accepted
        else:
            wanted.update(step.operands)
    if any(tape.depends[value] & KEY for value in wanted & tape.leaves.keys()):
        return None
    values.reverse()
    found: dict[Any, int] = {}
    numbers = [_numbers(tape, value, found) for value in values]
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


def _numbers(tape: Tape, value: int, found: dict[Any, int]) -> np.ndarray:
    """Number the elements of random bits by their keys and their positions."""
    step = tape.steps[tape.producers[value]]
    keys, shape = tape.arrays[step.operands[0]], np.shape(tape.arrays[value])
    data = np.asarray(jax.random.key_data(keys))
    data = data.reshape(-1, data.shape[-1])
    inner = shape[np.ndim(keys) :]
    # With counters in blocks, as of old, or another generator, the shape decides all bits.
    config: Any = jax.config
    by_position = config.jax_threefry_partitionable and "fry" in str(keys.dtype)
    kind = () if by_position else inner
    first = [found.setdefault((words.tobytes(), kind), len(found)) for words in data]
    own = np.arange(int(np.prod(inner)), dtype=np.int64)
    return (np.asarray(first)[:, None] * POSITIONS + own).reshape(shape)


def _is_key(array: Any) -> bool:
    return jnp.issubdtype(getattr(array, "dtype", np.bool_), jax.dtypes.prng_key)


@dataclass(frozen=True)
class Replay:
    """Two programs with the same draws, that compute equal outputs up to rounding.

    Attributes:
      same_state: whether the outputs in evaluation after two updates of the state are equal too.
    """

    same_state: bool


def compare_draws(one: Draws, other: Draws) -> Replay | Reuse | None:
    """Give both programs the same draws.

    Returns:
      How they compare if their outputs are then equal up to rounding; what one draws once, if that
      is the only difference; None if this does not decide.
    """
    if not one.values or not other.values:
        return None
    random = np.random.default_rng(0)
    if one.count == other.count:
        trials = [random.integers(0, 2**64, one.count, np.uint64) for _ in range(TRIALS)]
        given = [one.bits(trial) for trial in trials]
        wanted = [one.compute(bits) for bits in given]
        for found in _ways(one, other, trials, given):
            if _agree(wanted, map(other.compute, found)):
                states = (
                    side.compute_after_updates(bits[:UPDATES])
                    for side, bits in ((one, given), (other, found))
                )
                return Replay(_agree([next(states)], states))
        return None
    side = int(other.count < one.count)
    fewer, more = (other, one) if side else (one, other)
    trials = [random.integers(0, 2**64, fewer.count, np.uint64) for _ in range(TRIALS)]
    given = [fewer.bits(trial) for trial in trials]
    wanted = [fewer.compute(bits) for bits in given]
    for spread in _spreads(fewer, more):
        if not _agree(wanted, (more.compute(spread(bits)) for bits in given)):
            continue
        if not all(_has_effect(more, index, random) for index in range(len(more.values))):
            return None
        reused = _first_reused(fewer)
        index = reused or 0
        first, second = fewer.described(index), more.described(min(index, len(more.values) - 1))
        draws = (second, first) if side else (first, second)
        paths = all(each.tape.drops_paths for each in (one, other))
        return Reuse(side, (one.count, other.count), draws, reused is not None, paths)
    return None


def _ways(
    one: Draws, other: Draws, trials: Sequence[np.ndarray], given: Sequence[Bits]
) -> Iterator[list[Bits]]:
    """Yield what the second program may draw where the first one draws `given`, per trial.

    The first ways are in the order of use; masks that keep where a number is large need the
    complement of those that keep where it is small.
    """
    yield [other.bits(trial) for trial in trials]
    yield [other.bits(~trial) for trial in trials]
    for arrange in _arrangements(one, other):
        yield [arrange(bits) for bits in given]


def _first_reused(draws: Draws) -> int | None:
    """Return the first draw from a key that is used before, at the same positions."""
    seen: set[int] = set()
    for index, each in enumerate(draws.numbers):
        own = set(np.unique(each).tolist())
        if own & seen or len(own) < each.size:
            return index
        seen |= own
    return None


def _agree(wanted: Sequence[Bits], found: Iterator[Bits]) -> bool:
    return all(
        all(_same(a, b) for a, b in zip(ours, theirs, strict=True))
        for ours, theirs in zip(wanted, found, strict=True)
    )


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape == other.shape:
        return close(one, other)
    return any(close(arranged, other) for arranged in layouts(one, other.shape))


def _arrangements(one: Draws, other: Draws) -> Iterator[Callable[[Bits], Bits]]:
    """Yield the ways to give one program's bits to the other: in another order, or layout."""
    shapes = [each.shape for each in other.numbers]
    if one.size != one.count or other.size != other.count or len(one.numbers) != len(shapes):
        return
    orders = itertools.permutations(range(len(shapes)))
    for order in itertools.islice(orders, MAX_ORDERS):
        chosen = [one.numbers[index] for index in order]
        if [each.size for each in chosen] != [int(np.prod(shape)) for shape in shapes]:
            continue
        options = [
            list(itertools.islice(layouts(each, shape), MAX_LAYOUTS))
            for each, shape in zip(chosen, shapes, strict=True)
        ]
        for choice in range(max(map(len, options))):
            # The layout of a number is that of its index.
            places_of = [each[min(choice, len(each) - 1)] for each in options]
            firsts = [int(np.min(each)) for each in chosen]

            def arrange(
                bits: Bits,
                order: Sequence[int] = order,
                where: Bits = places_of,
                firsts: Sequence[int] = firsts,
            ) -> Bits:
                return [
                    bits[index].ravel()[each - first]
                    for index, each, first in zip(order, where, firsts, strict=True)
                ]

            yield arrange


def _spreads(fewer: Draws, more: Draws) -> Iterator[Callable[[Bits], Bits]]:
    """Yield the ways to give fewer draws to a program that draws more."""
    shapes, count = [each.shape for each in more.numbers], len(fewer.values)
    sources = [range(count)] if count == len(shapes) else []
    if count < len(shapes) and len(shapes) % count == 0:
        repeats = len(shapes) // count
        sources += [[i // repeats for i in range(len(shapes))], [*range(count)] * repeats]
    for source, left in itertools.product(sources, (False, True)):
        chosen = list(source)

        def spread(bits: Bits, chosen: list[int] = chosen, left: bool = left) -> Bits:
            return [
                _broadcast(bits[index], shape, left)
                for index, shape in zip(chosen, shapes, strict=True)
            ]

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


def _broadcast(array: np.ndarray, shape: tuple[int, ...], left: bool) -> np.ndarray:
    """Repeat an array along the axes that it lacks, the last ones if `left`.

    Raises:
      ValueError: if it does not fit.
    """
    if array.size == int(np.prod(shape)):
        return array.reshape(shape)
    if left:
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
