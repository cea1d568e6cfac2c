"""Networks that draw random numbers in training, compared in distribution."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..types import Cause
from .compiling import quick_jit
from .samples import LEVEL, two_samples
from .subject import Subject

NUM_KEYS = 2000
MAX_ELEMENTS = 16


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
