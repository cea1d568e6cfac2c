"""The likely cause of a difference between two trainings, from what their first update computed.

The probes are compared in the order in which a training computes them. The first part that differs
names the cause; the parts after it differ as a consequence. A part whose inputs are equal and whose
values differ by more than rounding is another computation; a difference of rounding is another
order of summation.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from ..results import Record
from ..rungs import Rung
from .divergence import difference

Arrays: TypeAlias = Mapping[str, np.ndarray]
Cause: TypeAlias = dict[str, str]

# Largest difference, relative to the array's largest entry, that another order of summation
# explains: float32 has 24 bits, and sums of some thousand terms lose up to about 6 of them.
ROUNDING = 2.0**-18
NUDGED = 1e-3  # weights that differ by less, relative to the largest, were not drawn anew
LEAK_PER_CHUNK = 0.002  # growth of the resident memory per chunk, relative to its start
MIN_LEAK_BYTES = 2**24
NUM_WARMUP_CHUNKS = 4


# Causes that change the last bits and not the function.
ROUNDING_CAUSES = {"summation_order", "leaf_order"}
ORDER = ("keys", "environment", "hyper", "params", "outputs", "gradients", "optimizer")


def find_causes(one: Record, other: Record, rung: Rung) -> list[Cause]:
    """Name the first part of the first update in which two trainings differ.

    Args:
      one, other: of the same options, environment and rung.
      rung: what both should share.

    Returns:
      At most one cause for each part whose inputs are equal; empty if all parts are equal. Those of
      outputs, gradients and optimizer have that as `part`.
    """
    parts = [_differences(part, one.probe, other.probe) for part in ORDER]
    found = dict(zip(ORDER, parts, strict=True))
    causes = []
    if found["keys"]:
        causes.append(_cause("seed", "the random keys", "both sides drew from different keys"))
    elif found["environment"]:
        causes.append(
            _cause("environment", _names(found["environment"]), "the first observations differ")
        )
    if found["hyper"]:
        causes.append(_cause("hyperparameters", _names(found["hyper"]), _sizes(found["hyper"])))
    dtypes = _dtypes(one.probe, other.probe)
    if dtypes:
        causes.append(_cause("dtype", *dtypes))
    elif found["params"]:
        causes.append(_weights(found["params"], rung))
    elif found["environment"] and not found["keys"]:
        pass  # the fixed inputs come from it
    elif found["outputs"]:
        causes.append(_computed("outputs", found["outputs"], "network", "summation_order"))
    elif found["gradients"]:
        causes.append(_computed("gradients", found["gradients"], "gradient", "summation_order"))
    if found["optimizer"] and not found["hyper"] and not dtypes and not found["params"]:
        causes.append(_computed("optimizer", found["optimizer"], "optimizer", "leaf_order"))
    return causes


def find_growth(record: Record) -> Cause | None:
    """Find a memory leak: resident memory that grows from chunk to chunk without an end."""
    resident = [chunk["resident_bytes"] for chunk in record.chunks][NUM_WARMUP_CHUNKS:]
    if len(resident) < 2 * NUM_WARMUP_CHUNKS:
        return None
    slope = float(np.polyfit(np.arange(len(resident)), resident, 1)[0])
    halves = np.array_split(np.asarray(resident, np.float64), 2)
    grows_still = halves[1][-1] - halves[1][0] > 0.25 * (halves[0][-1] - halves[0][0])
    large = slope * len(resident) > MIN_LEAK_BYTES and slope > LEAK_PER_CHUNK * resident[0]
    if not (large and grows_still):
        return None
    return _cause(
        "memory_leak",
        "the process",
        f"resident memory grew from {resident[0] / 1e6:,.0f} to {resident[-1] / 1e6:,.0f} MB, "
        f"{slope / 1e6:,.1f} MB per chunk of updates",
    )


def _cause(name: str, where: str, evidence: str) -> Cause:
    return {"name": name, "where": where, "evidence": evidence}


def _part(part: str, probe: Arrays) -> dict[str, np.ndarray]:
    prefix = f"{part}/"
    return {n.removeprefix(prefix): a for n, a in probe.items() if n.startswith(prefix)}


def _differences(part: str, one: Arrays, other: Arrays) -> dict[str, tuple[float, float]]:
    """Give the absolute and relative differences by name of the arrays whose values differ."""
    first, second = _part(part, one), _part(part, other)
    found = {}
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second or first[name].shape != second[name].shape:
            found[name] = (np.inf, np.inf)
            continue
        sizes = difference(first[name], second[name])
        if sizes[0]:
            found[name] = sizes
    return found


def _dtypes(one: Arrays, other: Arrays) -> tuple[str, str] | None:
    for part in ("params", "outputs"):
        first, second = _part(part, one), _part(part, other)
        for name in sorted(first.keys() & second.keys()):
            here, there = first[name].dtype, second[name].dtype
            if here != there:
                return f"{part} {name}", f"{here} on one side, {there} on the other"
    return None


def _weights(found: Mapping[str, tuple[float, float]], rung: Rung) -> Cause:
    whole = [rel for _, rel in found.values()]
    if max(whole) < NUDGED:
        return _cause("weights", _names(found), f"initial weights {_sizes(found)}")
    if rung.shared_weights:
        return _cause("weights", _names(found), f"the shared initial weights {_sizes(found)}")
    name = "initializer" if rung.library_initializers else "draw"
    return _cause(name, _names(found), f"initial weights {_sizes(found)}")


def _computed(
    part: str, found: Mapping[str, tuple[float, float]], other: str, rounding: str
) -> Cause:
    large = max(relative for _, relative in found.values()) > ROUNDING
    evidence = f"from equal inputs, {part} {_sizes(found)}"
    evidence += "" if large else ": rounding"
    return {**_cause(other if large else rounding, _names(found), evidence), "part": part}


def _names(found: Mapping[str, Any]) -> str:
    first, *rest = found
    return first + (f" and {len(rest)} more" if rest else "")


def _sizes(found: Mapping[str, tuple[float, float]]) -> str:
    absolute = max(absolute for absolute, _ in found.values())
    relative = max(relative for _, relative in found.values())
    return f"differ by up to {absolute:.3g} ({relative:.2g} of the largest entry)"
