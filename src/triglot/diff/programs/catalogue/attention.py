"""Attention: the scale of its logits and their mask."""

import numpy as np

from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import INPUTS, Step, Tape
from ..values import close
from . import features
from .features import PRODUCTS, SUBSTITUTED, Finding, in_each

MASKED = -1e4  # a logit below is masked


def attention_scale(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find logits of attention that differ by a factor."""
    factor = features.ratio(divergence)
    if factor is None or not all(map(_is_attention, divergence.parts)):
        return None
    scales = in_each([f"{_scale(part):.4g}" for part in divergence.parts], labels, "by ")
    evidence = f"logits are scaled {scales} (factor {factor:.4g}); {SUBSTITUTED}"
    return Finding("attention_scale", evidence, divergence)


def attention_mask(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find logits of a softmax that differ only where one program masks them."""
    pair = divergence.results()
    if pair is None or not all(map(_feeds_softmax, divergence.parts)):
        return None
    masked = [array <= MASKED for array in pair]
    visible = ~(masked[0] | masked[1])
    if np.array_equal(masked[0], masked[1]) or not np.any(visible):
        return None
    first_result, second_result = (array[visible].astype(np.float64) for array in pair)
    evidence = (
        f"{np.sum(masked[0])} of {masked[0].size} logits are masked in {labels[0]}, "
        f"{np.sum(masked[1])} in {labels[1]}"
    )
    if (moved := _moved_mask(divergence, masked, labels)) is not None:
        return moved
    if close(first_result, second_result, divergence.search.tolerance):
        return Finding("attention_mask", f"{evidence}; the others are equal", divergence)
    factor = float(np.sum(first_result * second_result) / np.sum(second_result * second_result))
    if not close(first_result, factor * second_result, divergence.search.tolerance):
        return None
    scale = f"the logits that are masked in neither differ by the factor {factor:.4g}"
    return Finding("attention_mask", evidence, divergence, (("attention_scale", scale),))


def _moved_mask(
    divergence: Divergence, masked: list[np.ndarray], labels: tuple[str, str]
) -> Finding | None:
    """Find the mask that one program has before a softmax, and the other behind another one."""
    early = 0 if np.any(masked[0]) else 1
    end, later = divergence.parts[early].end, divergence.parts[1 - early].region
    if end is None or np.any(masked[1 - early]):
        return None
    for value in later.values:
        array = later.view.array(value)
        if array.dtype.kind != "f" or array.size != masked[early].size:
            continue
        if np.sum(array <= MASKED) != np.sum(masked[early]):
            continue
        if not RegionPart.ending_at(later, value).names.isdisjoint(PRODUCTS):
            continue  # the mask of another layer
        ends = (end, value) if early == 0 else (value, end)
        confirmed = divergence.search.agree(*ends)
        if confirmed is not None:
            evidence = (
                f"{np.sum(masked[early])} of {array.size} logits are masked before a softmax in "
                f"{labels[early]}, after it in {labels[1 - early]}; {SUBSTITUTED}"
            )
            return Finding("operation_order", evidence, confirmed)
    return None


def attention_heads(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find products of two inputs that sum over heads of another size."""
    products = []
    for part in divergence.parts:
        tape = part.tape
        first = next((step for step in part.steps if _is_product_of_inputs(tape, step)), None)
        if first is None or features.leads_to(tape, first.results[0], ("exp",), 6) is None:
            return None
        axes = first.equation.params["dimension_numbers"][0][0]
        shape = np.shape(tape.arrays[first.operands[0]])
        products.append(int(np.prod([shape[axis] for axis in axes])))
    if products[0] == products[1]:
        return None
    evidence = f"heads {in_each(products, labels, 'of size ')}"
    return Finding("attention_heads", evidence, divergence)


def _is_product_of_inputs(tape: Tape, step: Step) -> bool:
    inputs = all(tape.depends[value] & INPUTS for value in step.operands)
    return step.name == "dot_general" and inputs


def _scale(part: RegionPart) -> float:
    """Multiply the constants of a part's products and quotients."""
    scale = 1.0
    for step in part.steps:
        for constant in features.constants(part.tape, step):
            if step.name == "mul":
                scale *= constant.value
            elif step.name == "div" and constant.position == 1:
                scale /= constant.value
    return scale


def _feeds_softmax(part: RegionPart, depth: int = 3) -> bool:
    end = part.end
    return end is not None and features.leads_to(part.tape, end, ("exp",), depth) is not None


def _is_attention(part: RegionPart) -> bool:
    """Return whether a value becomes the logits of a softmax, with a product of two inputs."""
    tape = part.tape
    if part.end is None or not _feeds_softmax(part, 5):
        return False
    product = features.comes_from(tape, part.end, ("dot_general",), 4)
    near = [*part.steps, *tape.readers_of(part.end), product]
    return any(step is not None and _is_product_of_inputs(tape, step) for step in near)
