"""What the initializers of two networks draw, compared over many keys."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.network import Network, Variables
from ..pairing.parameters import Pairing, Parameter
from ..types import Cause, listed
from .compiling import quick_jit
from .randomness import LEVEL, two_samples

NUM_KEYS = 1000
MAX_DRAWN = 2**28  # parameters drawn in all; larger networks get fewer keys
MIN_KEYS = 50
NUM_ELEMENTS = 4  # of each array and key that are compared one by one
TESTS_PER_PARAMETER = 3


@dataclass(frozen=True)
class Draws:
    """What one network's initializer draws for one parameter.

    Attributes:
      mean, std: of all elements, over all keys.
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
      name: of the parameter in the first network.
      one, other: what each side draws.
      differs: whether a two-sample test tells them apart.
      p_value: the smallest of its tests.
    """

    name: str
    one: Draws
    other: Draws
    differs: bool
    p_value: float


@dataclass(frozen=True)
class Initial:
    """A network's initial variables for one key, and what its initializer draws over many.

    Attributes:
      variables: for the last key.
      statistics: of each parameter, by canonical name: some elements `[keys, few]`, the mean and
        the mean square `[keys]`; empty for a network that has its weights already.
      num_keys: over which the statistics are.
    """

    variables: Variables
    statistics: dict[str, dict[str, np.ndarray]]
    num_keys: int


def initialize(network: Network, key: jax.Array) -> Initial:
    """Draw a network's initial variables, and statistics over many keys, in one program."""
    codec = network.codec
    if not network.random_start or codec is None:
        return Initial(network.init(key), {}, 0)
    shapes = jax.eval_shape(network.init, key)
    total = sum(leaf.size for leaf in jax.tree.leaves(shapes.params))
    num_keys = max(MIN_KEYS, min(NUM_KEYS, MAX_DRAWN // max(total, 1)))

    def draw(before: Variables, key: jax.Array) -> tuple[Variables, Any]:
        made = network.init(key)
        named = codec.encode(made.params)
        made = jax.tree.map(lambda leaf, old: leaf.astype(old.dtype), made, before)
        return made, {name: _statistics(array) for name, array in named.items()}

    def draw_all(keys: jax.Array) -> tuple[Variables, Any]:
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.scan(draw, zeros, keys)

    # A scan, not vmapped: see `triglot.core.loop.trainer.init_seeds`.
    variables, statistics = quick_jit(draw_all)(jax.random.split(key, num_keys))
    return Initial(variables, jax.tree.map(np.asarray, statistics), num_keys)


def compare_initializers(one: Initial, other: Initial, pairing: Pairing) -> list[InitializerRow]:
    """Compare what two networks' initializers draw for each pair of parameters.

    Three Kolmogorov-Smirnov tests per pair: of single elements, of each array's mean and of its
    mean square, over keys. They differ if a p-value is below `LEVEL` divided by the number of
    tests (Bonferroni).

    Args:
      one, other: drawn from different keys.
      pairing: of their parameters.

    Returns:
      One row per pair; none if a network has its weights already.
    """
    if not (one.statistics and other.statistics):
        return []
    level = LEVEL / max(1, TESTS_PER_PARAMETER * len(pairing.pairs))
    rows = []
    for pair in pairing.pairs:
        first, second = one.statistics[pair.one], other.statistics[pair.other]
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
    apart = [row for row in rows if row.differs]
    if not apart:
        return ()
    first = apart[0]
    evidence = (
        f"over {num_keys} keys {first.name} has {first.one} in the first and {first.other} in the "
        f"second (p = {first.p_value:.1g}); this does not change the verdict"
    )
    return (Cause("initializer", listed(row.name for row in apart), evidence),)


def _statistics(array: jax.Array) -> dict[str, jax.Array]:
    flat = array.astype(jnp.float32).reshape(-1)
    # Far from each other, so that an orthogonal matrix's are nearly independent.
    few = np.linspace(0, max(flat.size - 1, 0), min(NUM_ELEMENTS, flat.size)).astype(int)
    return {"elements": flat[few], "mean": jnp.mean(flat), "square": jnp.mean(flat**2)}


def _summary(drawn: dict[str, Any], parameter: Parameter) -> Draws:
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
