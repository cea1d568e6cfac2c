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
from .tape import KEY, Tape
from .values import close, layouts

TRIALS = 3  # of random bits
MAX_ORDERS = 24  # in which one program's draws are given to the other
MAX_LAYOUTS = 6
POSITIONS = 2**40  # more than the numbers of any array

Bits = Sequence[np.ndarray]


@dataclass(frozen=True, eq=False)
class Draws:
    """The random bits on which the outputs of a program depend.

    Attributes:
      tape: the program, recorded with its draws.
      outputs: the values that are compared.
      values: of the bits, in order.
      numbers: for each, which independent number each element is; elements with equal ones are
        drawn from one key at one position, and so are equal.
      count: of independent numbers.
    """

    tape: Tape
    outputs: tuple[int, ...]
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
        given = {}
        for value, array in zip(self.values, bits, strict=True):
            dtype = np.asarray(self.tape.arrays[value]).dtype
            given[value] = (array >> np.uint64(64 - 8 * dtype.itemsize)).astype(dtype)
        now = self.tape.replay(given, steps=self.tape.needed(self.outputs, known=given))
        return [np.asarray(now[value]) for value in self.outputs]

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
    """

    side: int
    counts: tuple[int, int]
    draws: tuple[str, str]
    same_key: bool


def draws_of(tape: Tape, outputs: Sequence[int]) -> Draws | None:
    """List the random bits on which outputs depend; None if they use the key in another way.

    Args:
      tape: recorded with its draws.
      outputs: its values that are compared.
    """
    if tape.branches_on_key:
        return None
    wanted, values = set(outputs), []
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
    return Draws(tape, tuple(outputs), tuple(values), tuple(shaped), len(first))


def _numbers(tape: Tape, value: int, found: dict[Any, int]) -> np.ndarray:
    """Number the elements of random bits by their keys and their positions."""
    step = tape.steps[tape.producers[value]]
    keys, shape = tape.arrays[step.operands[0]], np.shape(tape.arrays[value])
    data = np.asarray(jax.random.key_data(keys))
    data = data.reshape(-1, data.shape[-1])
    inner = shape[np.ndim(keys) :]
    # With counters in blocks, as of old, or another generator, the shape decides all bits.
    by_position = jax.config.jax_threefry_partitionable and "fry" in str(keys.dtype)
    kind = () if by_position else inner
    first = [found.setdefault((words.tobytes(), kind), len(found)) for words in data]
    own = np.arange(int(np.prod(inner)), dtype=np.int64)
    return (np.asarray(first)[:, None] * POSITIONS + own).reshape(shape)


def _is_key(array: Any) -> bool:
    return jnp.issubdtype(getattr(array, "dtype", np.bool_), jax.dtypes.prng_key)


def compare_draws(one: Draws, other: Draws) -> bool | Reuse | None:
    """Give both programs the same draws.

    Returns:
      True if their outputs are then equal up to rounding; what one draws once, if that is the only
      difference; None if this does not decide.
    """
    if not one.values or not other.values:
        return None
    random = np.random.default_rng(0)
    if one.count == other.count:
        trials = [random.integers(0, 2**64, one.count, np.uint64) for _ in range(TRIALS)]
        given = [one.bits(trial) for trial in trials]
        wanted = [one.compute(bits) for bits in given]
        ways = (lambda trial: other.bits(trial), lambda trial: other.bits(~trial))
        if any(_agree(wanted, (other.compute(way(trial)) for trial in trials)) for way in ways):
            return True
        for arrange in _arrangements(one, other):
            bits = map(arrange, given)
            if _agree(wanted, (other.compute(each) for each in bits)):
                return True
    if one.count == other.count:
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
        same_key = any(np.unique(each).size < each.size for each in fewer.numbers)
        used = np.concatenate([np.unique(each) for each in fewer.numbers])
        same_key |= np.unique(used).size < used.size
        index = _first_reused(fewer)
        pair = fewer.described(index), more.described(min(index, len(more.values) - 1))
        counts = (one.count, other.count)
        return Reuse(side, counts, pair[::-1] if side else pair, bool(same_key))
    return None


def _first_reused(draws: Draws) -> int:
    """Return the first draw with a number that is drawn before; the first of all if there is none.

    A draw that is broadcast has none.
    """
    seen: set[int] = set()
    for index, each in enumerate(draws.numbers):
        own = set(np.unique(each).tolist())
        if own & seen or len(own) < each.size:
            return index
        seen |= own
    return 0


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
