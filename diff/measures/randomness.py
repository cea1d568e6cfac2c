"""Distributions over keys: two-sample tests, and networks that draw random numbers in training."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ..types import Cause
from .compiling import quick_jit
from .subject import Subject

LEVEL = 1e-4  # probability of a false alarm in one comparison of two networks, over all its tests
SPREAD = 1e-3  # relative; statistics that vary less than this over keys are constants
NUM_KEYS = 2000
MAX_ELEMENTS = 16


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


class Randomness(NamedTuple):
    """How two networks' outputs in training compare over keys.

    Attributes:
      same: whether a two-sample test finds no difference.
      identical: whether the same keys give the same bits.
      note: says so, for the report.
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
      key: split into one per call.
    """

    def call(key: jax.Array) -> jax.Array:
        outputs, _ = side.apply(side.variables, side.example, key, True)
        flat = [leaf.astype(jnp.float32).reshape(-1) for leaf in outputs.values()]
        return jnp.concatenate(flat)[:MAX_ELEMENTS]

    keys = jax.random.split(key, NUM_KEYS)
    return np.asarray(quick_jit(lambda keys: jax.lax.map(call, keys, batch_size=100))(keys))


def compare_randomness(
    sides: tuple[Subject, Subject],
    is_random: tuple[bool, bool],
    key: jax.Array,
) -> Randomness:
    """Test whether two networks' outputs in training have the same distribution over keys.

    Elements are tested one by one, at `LEVEL` divided by their number.

    Args:
      sides: the networks.
      is_random: whether the outputs depend on the key.
      key: of both sides, whose libraries derive other numbers from it.
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
        f"outputs in training are random: over {NUM_KEYS:,} keys their distributions {answer} "
        f"(smallest p = {p_value:.2g} of {len(columns)} two-sample tests); gradients and "
        "steps are those of evaluation"
    )
    return Randomness(same, identical, note, causes)
