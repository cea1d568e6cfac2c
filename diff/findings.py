"""Verdict and causes from what was measured."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from .measures.numbers import OUTPUTS, Measurement
from .measures.subject import Subject
from .pairing.parameters import Pairing
from .report import DIFFERENT, EQUIVALENT, IDENTICAL
from .types import Cause, Difference, Operation


def verdict_of(measurements: Sequence[Measurement]) -> str:
    """Judge by the measurements alone."""
    if all(each.native.identical for each in measurements):
        return IDENTICAL
    return EQUIVALENT if all(each.agrees for each in measurements) else DIFFERENT


def merged(causes: Sequence[Cause], more: Sequence[Cause]) -> list[Cause]:
    """Add causes whose names are new; `unknown` only where nothing else is known."""
    names = {cause.name for cause in causes}
    found = [*causes, *(cause for cause in more if cause.name not in names)]
    known = [cause for cause in found if cause.name != "unknown"]
    return known or found


def dtype_causes(pairing: Pairing, subjects: Sequence[Subject], setup: Setup) -> list[Cause]:
    """Name dtypes of parameters and outputs that differ."""
    labels = [side.label for side in subjects]
    for pair in pairing.pairs:
        one, other = pairing.one[pair.one].dtype, pairing.other[pair.other].dtype
        if one != other:
            where = f"{pair.one} ({labels[0]}); {pair.other} ({labels[1]})"
            return [
                Cause("dtype", where, f"the parameter is {one} in the first, {other} in the second")
            ]
    outputs = [
        jax.eval_shape(lambda s=side: s.apply(s.variables, s.example, setup.key, False)[0])
        for side in subjects
    ]
    for name, leaf in outputs[0].items():
        if leaf.dtype != outputs[1][name].dtype:
            evidence = (
                f"the output is {leaf.dtype} in the first, {outputs[1][name].dtype} in the second"
            )
            return [Cause("dtype", name, evidence)]
    return []


def computation_causes(dtypes: tuple[str, str], labels: tuple[str, str]) -> list[Cause]:
    """Name the dtypes in which two networks compute, if they differ."""
    full = {"float32", "float64"}
    if dtypes[0] == dtypes[1] or not all(dtypes) or set(dtypes) <= full:
        return []
    shown = [dtype.replace("float64", "the dtype of its weights") for dtype in dtypes]
    evidence = f"{labels[0]} computes in {shown[0]}, {labels[1]} in {shown[1]}"
    return [Cause("dtype", "operations", evidence)]


def gradient_causes(
    pairing: Pairing, gradients: Sequence[Mapping[str, np.ndarray]], labels: tuple[str, str]
) -> list[Cause]:
    """Name parameters whose gradient is exactly 0 in one network only."""
    if not gradients:
        return []
    one, other = (jax.tree.map(_largest, dict(own)) for own in gradients)
    largest = max((*one.values(), *other.values()), default=0.0)
    causes = []
    for name, pair in zip(pairing.shared_names(), pairing.pairs, strict=True):
        sizes = one[name], other[name]
        if (sizes[0] == 0.0) == (sizes[1] == 0.0) or max(sizes) < 1e-6 * largest:
            continue
        frozen = 0 if sizes[0] == 0.0 else 1
        causes.append(
            Cause(
                "not_trainable",
                f"{(pair.one, pair.other)[frozen]} ({labels[frozen]})",
                f"its gradient is exactly 0 in {labels[frozen]}, and up to {max(sizes):.2g} in "
                f"{labels[1 - frozen]}",
            )
        )
    return causes


def _largest(array: np.ndarray) -> float:
    return float(np.abs(array.astype(np.float32)).max(initial=0.0))


def agree(measurements: Sequence[Measurement], name: str) -> bool:
    """Return whether a quantity agrees in all modes and batches."""
    return all(each.agrees for each in measurements if each.quantity.name == name)


def first_measured(measurements: Sequence[Measurement]) -> Difference | None:
    """Describe a difference that no operation of the forward pass has, such as of gradients."""
    apart = next((each for each in measurements if not each.agrees), None)
    if apart is None:
        return None
    operation = Operation(apart.quantity.name, apart.native.where)
    found = apart.native
    return Difference(one=operation, other=operation, max_abs=found.max_abs, max_rel=found.max_rel)


def unexplained(measurements: Sequence[Measurement]) -> Cause:
    """Describe a difference for which no cause was found."""
    apart = next((each for each in measurements if not each.agrees), None)
    where = f"{apart.quantity.name}: {apart.native.where}" if apart else OUTPUTS
    return Cause("unknown", where, "no entry of the catalogue explains the difference")
