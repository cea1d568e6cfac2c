"""Explain why two networks give different outputs at equal weights."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import TriglotError
from ...core.types import PyTree
from ..types import Cause, Difference, Explanation, Side
from . import divergence, places
from .catalogue import name_causes
from .catalogue.statistics import norm_momentum
from .divergence import Divergence
from .tape import Tape, record
from .values import View
from .wide import is_floating

BATCH = 3  # examples that are evaluated
MAX_CAUSES = 24


def explain(
    one: Side, other: Side, inputs: PyTree, *, train: bool, key: jax.Array
) -> Explanation:
    """Find the first operations in which two networks differ, and the likely causes.

    Both forward passes are evaluated operation by operation in float64, and their values are
    compared whatever their layout. At each difference the second network is given the first one's
    result and the comparison goes on, so that several differences are all found.

    Args:
      one, other: networks with a codec, and their weights.
      inputs: a batch of inputs `[B, ...]` for both; at most 3 examples are used.
      train: training mode or evaluation.
      key: of the networks' random draws, which are replaced by constants.

    Raises:
      TriglotError: if a network has no codec or gives another number of outputs.
    """
    tapes = record_both(one, other, inputs, train=train, key=key)
    first: Difference | None = None
    causes: list[Cause] = []
    views = [View(tape, tape.arrays) for tape in tapes]
    values: dict[int, Any] = {}
    operands: dict[tuple[int, int], Any] = {}
    labels = (one.label, other.label)
    for _ in range(MAX_CAUSES):
        found = divergence.find(*views)
        if found is None:
            break
        first = first or _difference(found)
        named, found = name_causes(found, labels)
        causes.extend(named)
        if not found.values and not found.operands:
            break
        values.update(found.values)
        operands.update(found.operands)
        views[1] = View(tapes[1], tapes[1].replay(values, operands))
    if train and (momentum := norm_momentum(*views, labels)) is not None:
        causes.append(momentum)
    return Explanation(first, merged(causes))


def record_both(
    one: Side, other: Side, inputs: PyTree, *, train: bool, key: jax.Array, wide: bool = True
) -> tuple[Tape, Tape]:
    """Record both networks with equal parameters."""
    named = []
    for side in (one, other):
        if side.network.codec is None:
            raise TriglotError(
                f"{side.label} has no codec, so its parameters have no names: give "
                "Network(..., codec=...)."
            )
        named.append(dict(jax.jit(side.network.codec.encode)(side.variables.params)))
    if wide:
        _share(one, other, *named)
        inputs = jax.tree.map(_small, inputs)
    tapes = [
        record(side.network, params, side.variables.state, inputs, key, train=train, wide=wide)
        for side, params in zip((one, other), named, strict=True)
    ]
    if len(tapes[0].outputs) != len(tapes[1].outputs):
        raise TriglotError(
            f"{one.label} gives {len(tapes[0].outputs)} outputs and {other.label} "
            f"{len(tapes[1].outputs)}: compare networks with the same outputs."
        )
    return tapes[0], tapes[1]


def _share(one: Side, other: Side, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Give shared parameters equal values, and those that are constant generic ones.

    At a bias of 0 or a scale of 1 a difference may have no effect.
    """
    for index, name in enumerate(sorted(one.names.keys() & other.names.keys())):
        mine, other_name = one.names[name], other.names[name]
        array = _generic(first[mine], index)
        first[mine] = array
        second[other_name] = array.reshape(second[other_name].shape)


def _small(array: Any) -> Any:
    if jnp.issubdtype(jnp.result_type(array), jax.dtypes.prng_key):
        return array
    known = np.asarray(array)
    return _generic(known[:BATCH] if known.ndim else known, 0)


def _generic(array: Any, seed: int) -> np.ndarray:
    known = np.asarray(array)
    if not is_floating(known.dtype) or not known.size or np.any(known != known.flat[0]):
        return known
    noise = np.random.default_rng(seed).uniform(-0.3, 0.3, known.shape)
    return (known.astype(np.float64) + noise).astype(known.dtype)


def _difference(found: Divergence) -> Difference:
    operations = [
        None if value is None else places.operation(region.tape, value)
        for region, value in zip(found.regions, found.firsts(), strict=True)
    ]
    largest, relative = found.size()
    return Difference(
        one=operations[0], other=operations[1], max_abs=largest, max_rel=relative
    )


def merged(causes: list[Cause]) -> tuple[Cause, ...]:
    """Join causes of one name and evidence, as in every layer, into one with its places."""
    places_of: dict[tuple[str, str], list[str]] = {}
    for cause in causes:
        known = places_of.setdefault((cause.name, cause.evidence), [])
        if cause.where not in known:
            known.append(cause.where)
    return tuple(
        Cause(name, where[0] + (f", and {len(where) - 1} more" if where[1:] else ""), evidence)
        for (name, evidence), where in places_of.items()
    )



