"""How far two trainings are apart, and the likely cause: from what their first update computed.

The probes are compared in the order in which a training computes them. The first part that differs
names the cause; the parts after it differ as a consequence. A part whose inputs are equal and whose
values differ by more than rounding is another computation; a difference of rounding is another
order of summation.
"""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from ...core.records import JSON, JSONDict
from ...shared.statistics.curves import finite_mean, forward_filled
from ..results import Arrays, Record
from ..rungs import Rung

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
    differing = dict(zip(ORDER, parts, strict=True))
    causes = []
    if differing["keys"]:
        causes.append(_cause("seed", "the random keys", "both sides drew from different keys"))
    elif differing["environment"]:
        causes.append(
            _cause("environment", _names(differing["environment"]), "the first observations differ")
        )
    if differing["hyper"]:
        hyper = differing["hyper"]
        causes.append(_cause("hyperparameters", _names(hyper), _sizes(hyper)))
    dtypes = _dtypes(one.probe, other.probe)
    if dtypes:
        causes.append(_cause("dtype", *dtypes))
    elif differing["params"]:
        causes.append(_weights(differing["params"], rung))
    elif differing["environment"] and not differing["keys"]:
        pass  # the fixed inputs come from it
    elif differing["outputs"]:
        causes.append(_computed("outputs", differing["outputs"], "network", "summation_order"))
    elif differing["gradients"]:
        causes.append(_computed("gradients", differing["gradients"], "gradient", "summation_order"))
    if differing["optimizer"] and not differing["hyper"] and not dtypes and not differing["params"]:
        causes.append(_computed("optimizer", differing["optimizer"], "optimizer", "leaf_order"))
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


def add_causes(result: JSONDict, records: Mapping[str, Record]) -> None:
    """Report memory that grows without an end, and libraries that are slower than another."""
    cost = result["cost"] or {"backends": {}, "slower": []}
    for name, record in records.items():
        growth = find_growth(record.of_one_process())
        causes = [] if growth is None else [growth]
        causes += [
            {"name": "slower", "where": cost_row["stage"], "evidence": cost_row["sentence"]}
            for cost_row in cost["slower"]
            if cost_row["backend"] == name
        ]
        result["backends"][name]["causes"] = causes
        result["backends"][name] |= _costs_in_table(cost["backends"].get(name, {}))


def _costs_in_table(stages: JSON) -> JSONDict:
    """Give the measured costs under the names of a backend's facts."""
    names = {
        "import_library_seconds": "import",
        "trace_seconds": "trace",
        "compile_seconds": "compile",
        "steps_per_second": "steps_per_second",
        "dispatch_microseconds": "dispatch",
    }
    return {name: stages[stage]["median"] for name, stage in names.items() if stage in stages}


def _cause(name: str, where: str, evidence: str) -> Cause:
    return {"name": name, "where": where, "evidence": evidence}


def _part(part: str, probe: Arrays) -> dict[str, np.ndarray]:
    prefix = f"{part}/"
    return {n.removeprefix(prefix): a for n, a in probe.items() if n.startswith(prefix)}


def _differences(part: str, one: Arrays, other: Arrays) -> dict[str, tuple[float, float]]:
    """Give the absolute and relative differences by name of the arrays whose values differ."""
    first, second = _part(part, one), _part(part, other)
    differences = {}
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second or first[name].shape != second[name].shape:
            differences[name] = (np.inf, np.inf)
            continue
        sizes = difference(first[name], second[name])
        if sizes[0]:
            differences[name] = sizes
    return differences


def _dtypes(one: Arrays, other: Arrays) -> tuple[str, str] | None:
    for part in ("params", "outputs"):
        first, second = _part(part, one), _part(part, other)
        for name in sorted(first.keys() & second.keys()):
            here, there = first[name].dtype, second[name].dtype
            if here != there:
                return f"{part} {name}", f"{here} on one side, {there} on the other"
    return None


def _weights(differences: Mapping[str, tuple[float, float]], rung: Rung) -> Cause:
    names, evidence = _names(differences), f"initial weights {_sizes(differences)}"
    if max(relative for _, relative in differences.values()) < NUDGED:
        return _cause("weights", names, evidence)
    if rung.shared_weights:
        return _cause("weights", names, f"the shared {evidence}")
    return _cause("initializer" if rung.library_initializers else "draw", names, evidence)


def _computed(
    part: str, differences: Mapping[str, tuple[float, float]], other: str, rounding: str
) -> Cause:
    large = max(relative for _, relative in differences.values()) > ROUNDING
    values = "optimizer steps" if part == "optimizer" else part
    evidence = f"from equal inputs, {values} {_sizes(differences)}"
    evidence += "" if large else ": rounding"
    return {**_cause(other if large else rounding, _names(differences), evidence), "part": part}


def _names(differences: JSON) -> str:
    first, *rest = differences
    return first + (f" and {len(rest)} more" if rest else "")


def _sizes(differences: Mapping[str, tuple[float, float]]) -> str:
    absolute = max(absolute for absolute, _ in differences.values())
    relative = max(relative for _, relative in differences.values())
    return f"differ by up to {absolute:.3g} ({relative:.2g} of the largest entry)"


def divergence(one: Record, other: Record) -> JSONDict:
    """Measure the distance of two trainings wherever both kept a snapshot.

    Returns:
      `updates`, and by update, over all seeds: `params_abs` and `params_rel`, the largest
      difference of a parameter, absolute and relative to the largest entry of its array;
      `outputs_abs`, of an output on the fixed inputs; `return_abs`, of the mean return over seeds
      in training (None before the first episode ended).
    """
    updates = [update for update in one.snapshots if update in other.snapshots]
    pairs = [(one.snapshots[update], other.snapshots[update]) for update in updates]
    returns = [_running_mean(record.metrics) for record in (one, other)]
    return {
        "updates": updates,
        "params_abs": [_largest(a, b, "params/")[0] for a, b in pairs],
        "params_rel": [_largest(a, b, "params/")[1] for a, b in pairs],
        "outputs_abs": [_largest(a, b, "outputs/")[0] for a, b in pairs],
        "return_abs": [_return_distance(returns[0], returns[1], update) for update in updates],
    }


def difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Give the largest absolute difference, and that relative to the largest entry of `one`.

    NaN equals NaN; where only one side is finite, both are infinite.
    """
    here, there = np.asarray(one, np.float64), np.asarray(other, np.float64)
    same = (here == there) | (np.isnan(here) & np.isnan(there))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.abs(here - there))
    largest = float(np.where(np.isnan(distance), np.inf, distance).max(initial=0.0))
    scale = float(np.max(np.abs(here), initial=0.0, where=np.isfinite(here)))
    return largest, largest / scale if scale else largest


def _largest(one: Arrays, other: Arrays, prefix: str) -> tuple[float, float]:
    """Give the largest differences of all arrays; infinite where shapes differ."""
    absolute = relative = 0.0
    for name in one:
        if not name.startswith(prefix):
            continue
        if name not in other or one[name].shape != other[name].shape:
            return np.inf, np.inf
        sizes = difference(one[name], other[name])
        absolute, relative = max(absolute, sizes[0]), max(relative, sizes[1])
    return absolute, relative


def _running_mean(metrics: Mapping[str, np.ndarray]) -> np.ndarray:
    """Give the mean over seeds of each seed's last return so far, `[U]`."""
    return finite_mean(forward_filled(np.asarray(metrics["episode_return"], np.float64)).T)


def _return_distance(one: np.ndarray, other: np.ndarray, update: int) -> float | None:
    if update == 0:
        return None
    distance = abs(float(one[update - 1] - other[update - 1]))
    return None if np.isnan(distance) else distance
