"""Distributions over keys: what initializers draw, and outputs that are random in training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ...core.network import Network, Variables
from .. import host
from ..pairing.parameters import Pairing, Parameter
from ..types import Cause, listed
from .compiling import quick_jit
from .subject import Subject, Subjects

LEVEL = 1e-4  # probability of a false alarm in one comparison of two networks, over all its tests
SPREAD = 1e-3  # relative; statistics that vary less than this over keys are constants
NUM_CALLS = 2000  # of a network in training
MAX_ELEMENTS = 16  # of its outputs that are tested
NUM_ELEMENTS = 4  # at least, of each array and key that are compared one by one
NUM_DRAWS = 4000  # of each array that are compared, over all keys
TESTS_PER_PARAMETER = 3


def two_samples(one: np.ndarray, other: np.ndarray) -> float:
    """Test two samples by Kolmogorov and Smirnov, and their spread by Brown and Forsythe.

    The second (`scipy.stats.levene` around the median) finds another standard deviation with fewer
    draws. The smaller p-value is doubled. Samples that hardly vary are compared as constants, since
    rounding would decide the test.

    Args:
      one, other: finite numbers `[n]` and `[m]`.

    Returns:
      The p-value of the null hypothesis that both have the same distribution.
    """
    spreads = [float(np.ptp(side)) for side in (one, other)]
    size = max(abs(float(np.mean(one))), abs(float(np.mean(other))), 1e-30)
    if max(spreads) <= SPREAD * size:
        same = abs(float(np.mean(one)) - float(np.mean(other))) <= SPREAD * size
        return 1.0 if same else 0.0
    results: tuple[Any, ...] = stats.ks_2samp(one, other, method="asymp"), stats.levene(one, other)
    return min(1.0, *(2 * float(result.pvalue) for result in results))


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
      name: the name of the parameter in the first network.
      one, other: what each side draws.
      differs: whether a two-sample test tells them apart.
      p_value: the smallest of its tests.
    """

    name: str
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
            return variables, codec.encode(
                variables.params
            ) if codec is not None and self.num_keys else {}

        if not network.random_start:
            self.variables, self._named = network.init(key), {}
            return
        keys = jax.random.split(key, max(self.num_keys, 1))
        drawn, self._named = host.call(jax.vmap(draw), keys, exact=False)
        self.variables = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), drawn)

    @property
    def statistics(self) -> dict[str, dict[str, np.ndarray]]:
        """By canonical name: some elements `[keys, few]`, the mean and the mean square `[keys]`."""
        few = max(NUM_ELEMENTS, NUM_DRAWS // max(self.num_keys, 1))
        return {name: _statistics(array, few) for name, array in self._named.items()}


def compare_initializers(one: Drawing, other: Drawing, pairing: Pairing) -> list[InitializerRow]:
    """Compare what two networks' initializers draw for each pair of parameters.

    Three Kolmogorov-Smirnov tests per pair: of single elements, of each array's mean and of its
    mean square, over keys. They differ if a p-value is below `LEVEL` divided by the number of
    tests (Bonferroni).

    Args:
      one, other: what both initializers drew, from different keys.
      pairing: the pairing of the parameters.

    Returns:
      One row per pair; none if a network has its weights already.
    """
    if not (one.num_keys and other.num_keys):
        return []
    level = LEVEL / max(1, TESTS_PER_PARAMETER * len(pairing.pairs))
    rows, ours, theirs = [], one.statistics, other.statistics
    for pair in pairing.pairs:
        first, second = ours[pair.one], theirs[pair.other]
        p_value = min(two_samples(first[name].ravel(), second[name].ravel()) for name in first)
        rows.append(
            InitializerRow(
                pair.one,
                _summary(first, pairing.one[pair.one]),
                _summary(second, pairing.other[pair.other]),
                p_value < level,
                p_value,
            )
        )
    return rows


def initializer_causes(rows: Sequence[InitializerRow], num_keys: int) -> tuple[Cause, ...]:
    """Name the parameters whose initializers differ, in one cause."""
    differing = [row for row in rows if row.differs]
    if not differing:
        return ()
    first = differing[0]
    evidence = (
        f"over {num_keys} keys {first.name} has {first.one} in the first and {first.other} in the "
        f"second (p = {first.p_value:.1g}); this does not change the verdict"
    )
    return (Cause("initializer", listed(row.name for row in differing), evidence),)


def _statistics(arrays: np.ndarray, few: int) -> dict[str, np.ndarray]:
    flat = arrays.astype(np.float32).reshape(len(arrays), -1)
    # Far from each other, so that an orthogonal matrix's are nearly independent.
    size = flat.shape[1]
    chosen = np.linspace(0, max(size - 1, 0), min(few, size)).astype(int)
    return {
        "elements": flat[:, chosen],
        "mean": np.asarray(np.mean(flat, 1, dtype=np.float64)),
        "square": np.asarray(np.mean(flat**2, 1, dtype=np.float64)),
    }


def _summary(drawn: dict[str, np.ndarray], parameter: Parameter) -> Draws:
    mean = float(np.mean(drawn["mean"], dtype=np.float64))
    square = float(np.mean(drawn["square"], dtype=np.float64))
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
      same: whether a two-sample test finds no difference.
      identical: whether the same keys give the same bits.
      note: the result in words, for the report.
      causes: `dropout`, if only one network is random.
    """

    same: bool
    identical: bool
    note: str
    causes: list[Cause]


def outputs_over_keys(side: Subject, key: jax.Array) -> np.ndarray:
    """Compute some elements of the outputs in training for many keys: float32 `[keys, few]`.

    Args:
      side: a network.
      key: a key, split into one per call.
    """

    def call(key: jax.Array) -> jax.Array:
        outputs, _ = side.apply(side.variables, side.example, key, True)
        flat = [leaf.astype(jnp.float32).reshape(-1) for leaf in outputs.values()]
        return jnp.concatenate(flat)[:MAX_ELEMENTS]

    keys = jax.random.split(key, NUM_CALLS)
    return np.asarray(quick_jit(lambda keys: jax.lax.map(call, keys, batch_size=100))(keys))


def compare_randomness(
    sides: Subjects,
    is_random: tuple[bool, bool],
    key: jax.Array,
) -> Randomness:
    """Test whether two networks' outputs in training have the same distribution over keys.

    Elements are tested one by one, at `LEVEL` divided by their number.

    Args:
      sides: the networks.
      is_random: whether the outputs depend on the key.
      key: the key of both networks, whose libraries derive other numbers from it.
    """
    samples = [outputs_over_keys(side, key) for side in sides]
    identical = np.array_equal(samples[0], samples[1])
    columns = range(samples[0].shape[1])
    p_value = min(two_samples(samples[0][:, i], samples[1][:, i]) for i in columns)
    same = identical or p_value >= LEVEL / len(columns)
    causes = []
    if is_random[0] != is_random[1] and not same:
        drawing, fixed = (side.label for side in (sides if is_random[0] else sides[::-1]))
        evidence = f"in training {drawing} draws random numbers, {fixed} draws none"
        causes.append(Cause("dropout", drawing, evidence))
    answer = "agree" if same else "differ"
    note = (
        f"outputs in training are random: over {NUM_CALLS:,} keys their distributions {answer} "
        f"(smallest p = {p_value:.2g} of {len(columns)} two-sample tests); gradients and "
        "steps are those of evaluation"
    )
    return Randomness(same, identical, note, causes)
