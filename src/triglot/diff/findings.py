"""Causes from the measurements, and from the traced programs of each mode."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import jax
import numpy as np

from .measures.numbers import EVALUATION, OUTPUTS, TRAINING, Measurement, Setup
from .measures.subject import Subjects
from .pairing.parameters import Pairing
from .pairing.use_order import Uses
from .programs import Explanation, explain_tapes
from .programs.catalogue.training import states_after
from .programs.tape import STATE
from .programs.wide import is_floating
from .types import Array, Cause, Difference, Operation

SCALE = 1.25
MAX_OF_STATE = 2  # differences after an update of the state
MAX_READERS = 4  # places where parameters are read
REORDERED = (
    "architecture", "operand_order", "operand_source", "operation_differs", "operation_missing",
    "residual_source", "unknown",
)  # fmt: skip
# Causes that are about running statistics and singular vectors.
STATISTICS = (
    "norm_momentum", "norm_statistics", "power_iterations", "spectral_norm", "unbiased_variance",
)  # fmt: skip


def add_causes(causes: Sequence[Cause], more: Sequence[Cause]) -> list[Cause]:
    """Add causes whose names are new; `unknown` only where nothing else is known."""
    names = {cause.name for cause in causes}
    combined = [*causes, *(cause for cause in more if cause.name not in names)]
    specific = [cause for cause in combined if cause.name != "unknown"]
    return specific or combined


def without_reordered(causes: Sequence[Cause]) -> list[Cause]:
    """Leave out causes that follow from another order of the operations."""
    reordered = any(cause.name == "operation_order" for cause in causes)
    return [cause for cause in causes if not (reordered and cause.name in REORDERED)]


def with_places(causes: Sequence[Cause], read_uses: Callable[[], tuple[Uses, Uses]]) -> list[Cause]:
    """Add to each cause the source lines that read its parameters."""
    if not any(any(cause.parameters) for cause in causes):
        return list(causes)
    uses = read_uses()
    return [replace(cause, where=cause.where + _read_at(cause, uses)) for cause in causes]


def _read_at(cause: Cause, uses: tuple[Uses, Uses]) -> str:
    sources = (
        reader.operation().source
        for names, use in zip(cause.parameters, uses, strict=True)
        for name in names
        for reader in use.readers.get(name, [])
    )
    places = list(dict.fromkeys(filter(None, sources)))[:MAX_READERS]
    return f", read at {', '.join(places)}" if places else ""


def dtype_causes(pairing: Pairing, subjects: Subjects, setup: Setup) -> tuple[Cause, ...]:
    """Name the first parameter or output whose dtypes differ."""
    labels = subjects[0].label, subjects[1].label
    for pair in pairing.pairs:
        first, second = pairing.one[pair.one].dtype, pairing.other[pair.other].dtype
        if first != second:
            where = pairing.place_of(pair, labels)
            evidence = f"the parameter is {first} in the first, {second} in the second"
            return (Cause("dtype", where, evidence),)
    outputs = [
        jax.eval_shape(lambda s=side: s.apply(s.variables, s.example, setup.key, False)[0])
        for side in subjects
    ]
    for name, leaf in outputs[0].items():
        first, second = leaf.dtype, outputs[1][name].dtype
        if first != second:
            evidence = f"the output is {first} in the first, {second} in the second"
            return (Cause("dtype", name, evidence),)
    return ()


def computation_causes(dtypes: tuple[str, str], labels: tuple[str, str]) -> list[Cause]:
    """Name the dtypes in which two networks compute, if they differ."""
    full = {"float32", "float64"}
    if dtypes[0] == dtypes[1] or not all(dtypes) or set(dtypes) <= full:
        return []
    described = [dtype.replace("float64", "the dtype of its weights") for dtype in dtypes]
    evidence = f"{labels[0]} computes in {described[0]}, {labels[1]} in {described[1]}"
    return [Cause("dtype", "operations", evidence)]


def gradient_causes(
    pairing: Pairing,
    gradients: Sequence[Mapping[str, np.ndarray]],
    labels: tuple[str, str],
    unused: tuple[Collection[str], Collection[str]] = ((), ()),
) -> list[Cause]:
    """Name parameters whose gradient is exactly 0 in one network only.

    Args:
      pairing: the pairing of the parameters.
      gradients: the gradients of both networks, by shared names.
      labels: the labels of both networks.
      unused: the names of parameters that reach no output, which has another cause.
    """
    if not gradients:
        return []
    first_sizes, second_sizes = (jax.tree.map(_largest, dict(arrays)) for arrays in gradients)
    largest = max((*first_sizes.values(), *second_sizes.values()), default=0.0)
    causes = []
    for name, pair in pairing.by_name().items():
        sizes = first_sizes[name], second_sizes[name]
        if (sizes[0] == 0.0) == (sizes[1] == 0.0) or max(sizes) < 1e-6 * largest:
            continue
        frozen = 0 if sizes[0] == 0.0 else 1
        if (pair.one, pair.other)[frozen] in unused[frozen]:
            continue
        causes.append(
            Cause(
                "not_trainable",
                f"{pairing.display_names(pair)[frozen]} ({labels[frozen]})",
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


def first_measured_difference(measurements: Sequence[Measurement]) -> Difference | None:
    """Describe a difference that no operation of the forward pass has, such as of gradients."""
    differing = next((each for each in measurements if not each.agrees), None)
    if differing is None:
        return None
    operation = Operation(differing.quantity.name, differing.native.where)
    distance = differing.native
    return Difference(
        one=operation, other=operation, max_abs=distance.max_abs, max_rel=distance.max_rel
    )


def unexplained_cause(measurements: Sequence[Measurement]) -> Cause:
    """Describe a difference for which no cause was found."""
    differing = next((each for each in measurements if not each.agrees), None)
    where = f"{differing.quantity.name}: {differing.native.where}" if differing else OUTPUTS
    return Cause("unknown", where, "no entry of the catalogue explains the difference")


def differing_modes(measurements: Sequence[Measurement]) -> set[str]:
    """Return the modes in which outputs differ by more than rounding."""
    outputs = (each for each in measurements if each.quantity.name == OUTPUTS)
    return {each.quantity.mode for each in outputs if not each.agrees}


def causes_of(
    explanations: Mapping[str, Explanation],
    modes: Collection[str],
    *,
    with_state: bool,
    labels: tuple[str, str],
    finished: Callable[[str], None],
) -> tuple[Difference | None, list[Cause]]:
    """Name the causes of a difference in each mode in which the outputs differ.

    Args:
      explanations: the explanations, by mode.
      modes: the modes in which the outputs differ.
      with_state: whether outputs differ after updates of the state. Causes are then looked for with
        the statistics of one batch, too: the initial ones hide how they are used and updated.
      labels: the labels of both networks.
      finished: a function that is called with each mode whose values are not read again.

    Returns:
      The first difference, and the causes.
    """
    causes: list[Cause] = []
    first: Difference | None = None
    for mode in (EVALUATION, TRAINING):
        if mode in modes and mode in explanations:
            mode_causes = list(explanations[mode].causes)
            if mode == EVALUATION and TRAINING in explanations:  # only training updates statistics
                mode_causes = [cause for cause in mode_causes if cause.name != "norm_momentum"]
            causes = add_causes(causes, mode_causes)
            first = first or explanations[mode].first_difference
    if with_state and TRAINING in explanations:
        is_explained = any(cause.name not in STATISTICS for cause in explanations[TRAINING].causes)
        states = states_after(explanations[TRAINING].views, explained=is_explained)
        for mode in (TRAINING, EVALUATION):
            if mode in explanations and not any(cause.name in STATISTICS for cause in causes):
                difference, mode_causes = _explain_at(explanations[mode], states, labels)
                for cause in mode_causes:  # the next layers' have the same name
                    if not (is_explained and cause.name == "norm_momentum"):  # of other inputs
                        causes = add_causes(causes, [cause])
                first = first or difference
            finished(mode)
    return first, causes


def _explain_at(
    initial: Explanation, states: tuple[list[Array], list[Array]], labels: tuple[str, str]
) -> tuple[Difference | None, tuple[Cause, ...]]:
    """Explain the programs of one mode again, at another state; its values are not kept."""
    tapes = initial.views[0].tape, initial.views[1].tape
    arrays = []
    for tape, state in zip(tapes, states, strict=True):
        leaves = [value for value in tape.leaves if tape.depends[value] == STATE]
        # Other statistics than those of the batch, whose average with the batch's shows nothing.
        scaled = [SCALE * a if np.ndim(a) and is_floating(a.dtype) else a for a in state]
        arrays.append(tape.replay(dict(zip(leaves, scaled, strict=True))))
    explanation = explain_tapes(tapes, labels, arrays=(arrays[0], arrays[1]), most=MAX_OF_STATE)
    return explanation.first_difference, explanation.causes
