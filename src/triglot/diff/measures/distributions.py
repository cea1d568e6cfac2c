"""Distributions over keys: what initializers draw, and outputs that are random in training."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ...core.network import Network, Variables
from .. import host
from ..pairing.parameters import Pairing, Parameter
from ..programs.draws import Replay, Reuse, compare_draws, draws_of
from ..programs.recording import record_both
from ..types import Cause, join_names, note_failure
from .compiling import quick_jit
from .subject import Subject, Subjects

LEVEL = 1e-4  # probability of a false alarm in one comparison of two networks, over all its tests
SPREAD = 1e-3  # relative; statistics that vary less than this over keys are constants
ROUNDING = 1e-5  # relative to the largest number of a sample
NUM_CALLS, MOST_CALLS = 2000, 20_000  # of a network in training
FEW_CALLS = 100  # of networks that are known to be equal up to rounding
MAX_WORK = 4e9  # floating-point operations of all calls beyond the fewest
NUM_EXAMPLES = 4  # of each call
POWER = 0.99
ONLY_EVALUATION = "gradients and steps are those of evaluation"
MAX_ELEMENTS = 16  # of its outputs that are tested
NUM_ELEMENTS = 4  # at least, of each array and key that are compared one by one
NUM_DRAWS = 4000  # of each array that are compared, over all keys
TESTS_PER_PARAMETER = 3


def two_samples(first: np.ndarray, second: np.ndarray, size: float = 0.0) -> float:
    """Test two samples by Kolmogorov and Smirnov, and their spread by Brown and Forsythe.

    The second (`scipy.stats.levene` around the median) finds another standard deviation with fewer
    draws. The smaller p-value is doubled. Numbers are equal up to rounding, so that the atoms of a
    distribution, such as the results of a mask, may differ by it. Samples that hardly vary are
    compared as constants, since rounding would decide the test.

    Args:
      first, second: finite numbers `[n]` and `[m]`.
      size: the magnitude of the numbers from which they are computed, if larger than their own.

    Returns:
      The p-value of the null hypothesis that both have the same distribution.
    """
    spreads = [float(np.ptp(samples)) for samples in (first, second)]
    size = max(abs(float(np.mean(first))), abs(float(np.mean(second))), size, 1e-30)
    if max(spreads) <= SPREAD * size:
        same = abs(float(np.mean(first)) - float(np.mean(second))) <= SPREAD * size
        return 1.0 if same else 0.0
    largest = max(size, *(float(np.max(np.abs(samples))) for samples in (first, second)))
    spread = stats.levene(first, second)
    return min(1.0, 2 * _kolmogorov(first, second, ROUNDING * largest), 2 * float(spread.pvalue))


def _kolmogorov(first: np.ndarray, second: np.ndarray, tolerance: float) -> float:
    """Compute the asymptotic p-value of the Kolmogorov-Smirnov test, up to a shift of a number.

    A distance between the distribution functions counts only if it is left after either sample is
    moved by `tolerance`.
    """
    sorted_first, sorted_second = np.sort(first), np.sort(second)
    n, m = len(sorted_first), len(sorted_second)
    distance = max(
        float(np.max(np.arange(1, k + 1) / k - np.searchsorted(b, a + tolerance, "right") / len(b)))
        for a, b, k in ((sorted_first, sorted_second, n), (sorted_second, sorted_first, m))
    )
    return float(stats.kstwobign.sf(max(distance, 0.0) * math.sqrt(n * m / (n + m))))


@dataclass(frozen=True)
class Draws:
    """What one network's initializer draws for one parameter.

    Attributes:
      mean, std: the mean and the standard deviation of all elements, over all keys.
      gain: `std` times the square root of the fan-in; None for vectors.
    """

    mean: float
    std: float
    gain: float | None

    def __str__(self) -> str:
        if self.std < 1e-12:
            return f"constant {self.mean:.4g}"
        gain = "" if self.gain is None else f" (x sqrt(fan_in): {self.gain:.3g})"
        return f"mean {self.mean:.2g}, std {self.std:.3g}{gain}"


@dataclass(frozen=True)
class InitializerRow:
    """One parameter's initializers in both networks.

    Attributes:
      name: the name of the parameter in the first network, as its author knows it.
      counterpart: the name of the parameter in the second network.
      one, other: statistics of each side's draws.
      differs: whether a two-sample test tells them apart.
      p_value: the smallest of its tests.
    """

    name: str
    counterpart: str
    one: Draws
    other: Draws
    differs: bool
    p_value: float


class Drawing:
    """A network's initial variables, and what its initializer draws over many keys.

    Attributes:
      variables: the initial variables for the first key.
      num_keys: the number of keys of the statistics; 0 for a network that has its weights already.
    """

    def __init__(self, network: Network, key: jax.Array, num_keys: int) -> None:
        """Initialize a network.

        Args:
          network: a network, which needs a codec for statistics.
          key: a key, split into one per draw.
          num_keys: 0 for the variables only.
        """
        codec = network.codec
        self.num_keys = num_keys if network.random_start and codec is not None else 0

        def draw(key: jax.Array) -> tuple[Variables, dict[str, jax.Array]]:
            variables = network.init(key)
            if codec is None or not self.num_keys:
                return variables, {}
            return variables, codec.encode(variables.params)

        if not network.random_start:
            self.variables, self._arrays = network.init(key), {}
            return
        keys = jax.random.split(key, max(self.num_keys, 1))
        initialized, self._arrays = host.call(jax.vmap(draw), keys, exact=False)
        self.variables = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), initialized)

    @property
    def statistics(self) -> dict[str, dict[str, np.ndarray]]:
        """By canonical name: some elements `[keys, few]`, the mean and the mean square `[keys]`."""
        num_elements = max(NUM_ELEMENTS, NUM_DRAWS // max(self.num_keys, 1))
        return {name: _statistics(array, num_elements) for name, array in self._arrays.items()}


def compare_initializers(
    first_drawing: Drawing, second_drawing: Drawing, pairing: Pairing
) -> list[InitializerRow]:
    """Compare what two networks' initializers draw for each pair of parameters.

    Three Kolmogorov-Smirnov tests per pair: of single elements, of each array's mean and of its
    mean square, over keys. They differ if a p-value is below `LEVEL` divided by the number of
    tests (Bonferroni).

    Args:
      first_drawing, second_drawing: what both initializers drew, from different keys.
      pairing: the pairing of the parameters.

    Returns:
      One row per pair; none if a network has its weights already.
    """
    if not (first_drawing.num_keys and second_drawing.num_keys):
        return []
    level = LEVEL / max(1, TESTS_PER_PARAMETER * len(pairing.pairs))
    rows = []
    first_statistics = first_drawing.statistics
    second_statistics = second_drawing.statistics
    for pair in pairing.pairs:
        first_sample, second_sample = first_statistics[pair.one], second_statistics[pair.other]
        p_value = min(
            two_samples(first_sample[name].ravel(), second_sample[name].ravel())
            for name in first_sample
        )
        rows.append(
            InitializerRow(
                *pairing.display_names(pair),
                _summary(first_sample, pairing.one[pair.one]),
                _summary(second_sample, pairing.other[pair.other]),
                p_value < level,
                p_value,
            )
        )
    return rows


def initializer_causes(
    rows: Sequence[InitializerRow], num_keys: int, labels: tuple[str, str]
) -> tuple[Cause, ...]:
    """Name the parameters whose initializers differ, in one cause."""
    differing = [row for row in rows if row.differs]
    if not differing:
        return ()
    first = differing[0]
    evidence = (
        f"over {num_keys:,} keys {first.name} has {first.one} in the first and {first.other} in "
        f"the second (p = {first.p_value:.1g}); this does not change the verdict"
    )
    names = join_names(row.name for row in differing)
    counterparts = join_names(row.counterpart for row in differing)
    where = names
    if names != counterparts:
        where = f"{names} ({labels[0]}); {counterparts} ({labels[1]})"
    return (Cause("initializer", where, evidence),)


def _statistics(arrays: np.ndarray, num_elements: int) -> dict[str, np.ndarray]:
    flat = arrays.astype(np.float32).reshape(len(arrays), -1)
    # Far from each other, so that an orthogonal matrix's are nearly independent.
    size = flat.shape[1]
    chosen = np.linspace(0, max(size - 1, 0), min(num_elements, size)).astype(int)
    return {
        "elements": flat[:, chosen],
        "mean": np.asarray(np.mean(flat, 1, dtype=np.float64)),
        "square": np.asarray(np.mean(flat**2, 1, dtype=np.float64)),
    }


def _summary(statistics: dict[str, np.ndarray], parameter: Parameter) -> Draws:
    mean = float(np.mean(statistics["mean"], dtype=np.float64))
    square = float(np.mean(statistics["square"], dtype=np.float64))
    std = math.sqrt(max(square - mean**2, 0.0))
    std = 0.0 if std < 1e-6 * abs(mean) else std
    fan_in = _fan_in(parameter)
    return Draws(mean, std, None if fan_in is None else std * math.sqrt(fan_in))


def _fan_in(parameter: Parameter) -> int | None:
    """Count the inputs of one unit; None for vectors and embeddings."""
    name, shape = parameter.name, parameter.shape
    if len(shape) < 2 or name.endswith("embedding"):
        return None
    if any(name.endswith(f"{part}/kernel") for part in ("query", "key", "value")):
        return shape[0]
    return math.prod(shape[:-1])


class Randomness(NamedTuple):
    """How two networks' outputs in training compare over keys.

    Attributes:
      same: whether no difference is found.
      identical: whether the same keys give the same bits.
      note: the result in words, for the report; empty if nothing is random.
      causes: `dropout`, if only one network is random; `key_reuse`, `noise_shape` or
        `stochastic_depth`, if one draws once where the other draws several times.
      same_state: whether no difference is found after updates of the state, either.
    """

    same: bool = True
    identical: bool = True
    note: str = ""
    causes: tuple[Cause, ...] = ()
    same_state: bool = True


def outputs_over_keys(side: Subject, key: jax.Array, num_calls: int) -> list[np.ndarray]:
    """Compute some elements of the outputs for many keys.

    Args:
      side: a network, which is called on several examples.
      key: a key, split into one per call.
      num_calls: number of calls.

    Returns:
      float32 `[keys, few]` in training, and, of a network with state, in evaluation after two
      updates of it.
    """
    examples = jax.tree.map(lambda array: array[:NUM_EXAMPLES], side.inputs)
    has_state = bool(jax.tree.leaves(side.variables.state))

    def tested_elements(outputs: Mapping[str, jax.Array]) -> jax.Array:
        flat = [leaf.astype(jnp.float32).reshape(-1) for leaf in outputs.values()]
        elements = jnp.concatenate(flat)
        return elements[
            np.linspace(0, elements.size - 1, min(MAX_ELEMENTS, elements.size)).astype(int)
        ]

    def call(key: jax.Array) -> list[jax.Array]:
        outputs, state = side.apply(side.variables, examples, key, True)
        if not has_state:
            return [tested_elements(outputs)]
        updated = replace(side.variables, state=state)
        _, state = side.apply(updated, examples, jax.random.fold_in(key, 1), True)
        later, _ = side.apply(replace(updated, state=state), examples, key, False)
        return [tested_elements(outputs), tested_elements(later)]

    keys = jax.random.split(key, num_calls)
    samples = quick_jit(lambda keys: jax.lax.map(call, keys, batch_size=100))(keys)
    return list(map(np.asarray, samples))


def compare_randomness(
    sides: Subjects, is_random: tuple[bool, bool], key: jax.Array, work: float = 0.0
) -> Randomness:
    """Compare two networks' outputs in training as functions of random draws.

    Where both draw numbers alike, they are given the same ones, and the outputs are compared up to
    rounding. Otherwise the distributions are compared over keys, see `compare_samples`.

    Args:
      sides: the networks.
      is_random: whether the outputs depend on the key.
      key: the key of both networks, whose libraries derive other numbers from it.
      work: floating-point operations of a call with one example, by which the number of calls is
        chosen.
    """
    failed: list[str] = []
    replayed = _replay_draws(sides, key, failed) if all(is_random) else None
    if isinstance(replayed, Replay):
        samples = [outputs_over_keys(side, key, FEW_CALLS) for side in sides]
        identical = all(map(np.array_equal, *samples))
        note = (
            "outputs in training are random: with the same random draws in both networks they are "
            f"equal up to rounding; {ONLY_EVALUATION}"
        )
        if not replayed.same_state:
            note += "; their state is updated in another way"
        return Randomness(True, identical, note, same_state=replayed.same_state)
    if isinstance(replayed, Reuse):
        return _reuse_result(replayed, sides)
    num_calls = int(np.clip(MAX_WORK // max(work * NUM_EXAMPLES, 1.0), NUM_CALLS, MOST_CALLS))
    samples = [outputs_over_keys(side, key, num_calls) for side in sides]
    identical = all(map(np.array_equal, *samples))
    # A network with a state may be compared with one that has none.
    tested = [compare_samples(*pair) for pair in zip(*samples, strict=False)]
    num_tests = sum(num for _, num in tested)
    agreeing = [identical or p_value >= LEVEL / num_tests for p_value, _ in tested]
    p_value = min(p_value for p_value, _ in tested)
    causes: tuple[Cause, ...] = ()
    if is_random[0] != is_random[1] and not agreeing[0]:
        drawing, fixed = (side.label for side in (sides if is_random[0] else sides[::-1]))
        evidence = f"in training {drawing} draws random numbers, {fixed} draws none"
        causes = (Cause("dropout", drawing, evidence),)
    note = (
        f"outputs in training are random: over {num_calls:,} keys their distributions "
        f"{'agree' if all(agreeing) else 'differ'} (smallest p = {p_value:.2g} of {num_tests} "
        "two-sample tests of single outputs and of pairs; a mean that differs by "
        f"{_detectable_distance(num_calls, num_tests):.2g} standard deviations is found with a "
        f"probability of {POWER:.0%}); {'; '.join([*failed, ONLY_EVALUATION])}"
    )
    return Randomness(agreeing[0], identical, note, causes, all(agreeing[1:]))


def compare_samples(first: np.ndarray, second: np.ndarray) -> tuple[float, int]:
    """Test whether two samples of vectors have the same distribution.

    Tested are the elements one by one, and the sums and differences of each two after division by
    their standard deviation, which show how elements of several examples vary together. A result
    below `LEVEL` divided by the number of tests is a difference (Bonferroni).

    Args:
      first, second: `[keys, few]`.

    Returns:
      The smallest p-value, and the number of tests.
    """
    pooled = np.concatenate([first, second]).astype(np.float64)
    scale = np.std(pooled, axis=0)
    varies = scale > SPREAD * np.max(np.abs(pooled), axis=0, initial=1e-30)
    p_values = [two_samples(a, b) for a, b in zip(first.T, second.T, strict=True)]
    sides = [
        ((side - np.mean(pooled, 0)) / np.where(varies, scale, 1.0)).T for side in (first, second)
    ]
    for i, j in itertools.combinations(np.flatnonzero(varies), 2):
        for sign in (1, -1):  # of two that always vary alike, one is 0 but for rounding
            combined = (side[i] + sign * side[j] for side in sides)
            p_values.append(two_samples(*combined, size=1.0))
    return min(p_values), len(p_values)


def _detectable_distance(num_calls: int, num_tests: int) -> float:
    """Return the distance of two means, in standard deviations, that is found with `POWER`."""
    level = LEVEL / num_tests
    return float(stats.norm.isf(level / 2) + stats.norm.isf(1 - POWER)) * math.sqrt(2 / num_calls)


def _replay_draws(
    sides: tuple[Subject, Subject], key: jax.Array, failed: list[str]
) -> Replay | Reuse | None:
    """Give both networks the same random draws; None if that does not decide, or `failed`."""
    with note_failure(failed, "the same draws could not be given to both networks"):
        record = partial(record_both, *sides, sides[0].inputs, key=key, wide=True)
        tapes, evaluated = record(train=True, keeps_draws=True), record(train=False)
        draws = [
            draws_of(tape, later, [index for _, index in side.outputs])
            for tape, later, side in zip(tapes, evaluated, sides, strict=True)
        ]
        if draws[0] is not None and draws[1] is not None:
            return compare_draws(draws[0], draws[1])
    return None


def _reuse_result(reuse: Reuse, sides: tuple[Subject, Subject]) -> Randomness:
    label, other_label = (sides[side].label for side in (reuse.side, 1 - reuse.side))
    name, description = "noise_shape", f"one number where {other_label} draws several"
    if reuse.same_key:
        name, description = "key_reuse", "several times from one key"
    elif reuse.drops_paths:
        name = "stochastic_depth"
        description = f"one number per batch where {other_label} draws one per sample"
    evidence = (
        f"{label} draws {description}: {reuse.counts[0]:,} independent numbers in "
        f"{sides[0].label}, {reuse.counts[1]:,} in {sides[1].label}; with the draws of {label} "
        f"in {other_label}, the outputs are equal"
    )
    where = f"{sides[0].label}: {reuse.draws[0]}; {sides[1].label}: {reuse.draws[1]}"
    note = f"outputs in training are random, and draws are shared differently; {ONLY_EVALUATION}"
    return Randomness(False, False, note, (Cause(name, where, evidence),))
