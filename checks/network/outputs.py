"""Checks of a network's outputs: rows, values, random starts and gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.network import Variables
from ...core.types import PyTree
from ..messages import describe_value
from ..purity import Compiled
from ..report import Checklist, Failed, NotApplicable
from ..trees import (
    by_path,
    find_change,
    find_not_finite,
    find_type_change,
    find_unbatched,
    find_value_difference,
    is_inexact,
    summarize,
)
from .case import BATCH_SIZE, NetworkCase

CHECKS: Checklist[NetworkCase] = Checklist()


@CHECKS.check(
    "batched",
    question="Do all outputs have the batch as their leading axis?",
    why="Agents read outputs [B, ...] row by row; a mean over the batch trains without an error.",
    fix="Keep the leading axis: flatten with x.reshape(x.shape[0], -1), reduce over later axes.",
    needs=["apply"],
)
def _batched(case: NetworkCase) -> None:
    if found := find_unbatched("the output", case.evaluation.result[0], BATCH_SIZE):
        raise Failed(f"for a batch of {BATCH_SIZE}, {found} (inputs: {summarize(case.inputs)}).")


@CHECKS.check(
    "dtype",
    question="Are parameters and floating-point outputs float32?",
    why="Losses refuse or promote other dtypes.",
    fix="Cast outputs with .astype(jnp.float32), and initialize parameters in float32.",
    needs=["apply"],
)
def _dtype(case: NetworkCase) -> None:
    for name, tree in (("output", _heads(case)), ("parameter", case.made.params)):
        for path, leaf in by_path(tree).items():
            if is_inexact(leaf) and leaf.dtype != np.float32:
                raise Failed(f"the {name} {path} is {describe_value(leaf)}; expected float32.")


def _heads(case: NetworkCase) -> PyTree:
    return case.heads(case.evaluation.result[0])


@CHECKS.check(
    "finite",
    question="Are parameters and outputs free of NaN and infinity?",
    why="One NaN spreads to every parameter in one update.",
    fix="Look for 0/0, log(0), the square root of a negative number and a softmax over no values.",
    needs=["apply"],
)
def _finite(case: NetworkCase) -> None:
    tree = {"params": case.made.params, "outputs": _heads(case)}
    if found := find_not_finite("", tree):
        raise Failed(f"{found}.")


@CHECKS.check(
    "state",
    question="Does evaluation return the state unchanged?",
    why="If running statistics change in evaluation, its results depend on the order of calls.",
    fix="Return variables.state if train is False.",
    needs=["apply"],
)
def _state(case: NetworkCase) -> None:
    if found := find_change("state", case.made.state, case.evaluation.result[1]):
        raise Failed(f"after apply with train=False, {found}.")


@CHECKS.check(
    "independent rows",
    question="Is each row of the outputs independent of the other rows in evaluation?",
    why="Agents act on small batches and learn from large ones: with mixed rows, acting and "
    "learning see different policies.",
    fix="Reduce over later axes only; in evaluation, BatchNorm must use its running statistics.",
    needs=["batched", "deterministic"],
)
def _independent_rows(case: NetworkCase) -> None:
    # Rows of the carry differ after one step; those of an initial carry may be equal.
    inputs, outputs = case.inputs, case.evaluation.result[0]
    if case.network.recurrent:
        inputs = (case.obs, outputs[1])
        outputs, _ = case.evaluation.run(case.made, inputs)
    for row in (0, BATCH_SIZE - 1):
        one_input, in_batch = jax.tree.map(
            lambda leaf, row=row: leaf[row : row + 1], (inputs, outputs)
        )
        alone, _ = case.evaluation.run(case.made, one_input)
        if found := find_value_difference("outputs", in_batch, alone, rtol=1e-4, atol=1e-5):
            raise Failed(f"row {row} in its batch and alone: {found}.")


@CHECKS.check(
    "seeds",
    question="Are all random parameters different from each other, and for another key?",
    why="Equal seeds repeat one experiment; layers with equal parameters start as copies.",
    fix="Pass the key to the initializers, one part of it to each layer: "
    "q, k, v = jax.random.split(key, 3). Set random_start=False if the parameters are given.",
    needs=["deterministic"],
)
def _seeds(case: NetworkCase) -> None:
    first, second = by_path(case.made.params), by_path(case.fresh.params)
    same = [path for path in first if not find_value_difference("", first[path], second.get(path))]
    if not case.network.random_start:
        if len(same) < len(first):
            raise Failed("random_start is False, but two keys give different parameters.")
        return
    if first and len(same) == len(first):
        raise Failed(f"two keys give equal parameters in all {len(first)} arrays.")
    varied = {path: leaf for path, leaf in first.items() if _varies(leaf)}
    _check_copies(varied)
    if fixed := [path for path in same if path in varied]:
        case.notes.append(f"{', '.join(fixed)} are not constant, and equal for every key.")


def _check_copies(leaves: dict[str, Any]) -> None:
    paths = list(leaves)
    for index, path in enumerate(paths):
        for other in paths[:index]:
            if leaves[path].shape == leaves[other].shape and np.array_equal(
                leaves[path], leaves[other]
            ):
                raise Failed(
                    f"params.{other} and params.{path}, {describe_value(leaves[path])} each, have "
                    "equal initial values: they use the same key, or are one layer stored twice."
                )


def _varies(leaf: Any) -> bool:
    values = np.asarray(leaf)
    return values.size > 1 and bool((values != values.flat[0]).any())


@CHECKS.check(
    "gradient",
    question="Does value_and_grad give finite gradients, shaped as params, and not all zero?",
    why="The optimizer learns from nothing else.",
    fix="Look for stop_gradient, round and argmax on the way to every output, and sqrt and norm at "
    "0. value_and_grad(loss)(params) must return what jax.value_and_grad(has_aux=True) does.",
    needs=["jit", "finite"],
)
def _gradient(case: NetworkCase) -> None:
    params = case.made.params
    if not jax.tree.leaves(params):
        raise NotApplicable("the network has no parameters.")

    def loss(params: Any) -> tuple[jax.Array, Any]:
        variables = Variables(params=params, state=case.made.state)
        outputs, state = case.train(variables, case.inputs, case.key(2))
        total = jnp.zeros(())
        for index, head in enumerate(jax.tree.leaves(case.heads(outputs))):
            if is_inexact(head):
                weight = jax.random.normal(case.key(100 + index), head.shape, head.dtype)
                total = total + jnp.sum(weight * head).astype(jnp.float32)
        return total, state

    compiled = Compiled("`value_and_grad`", lambda p: case.network.value_and_grad(loss)(p))
    result = compiled(params)
    if not (isinstance(result, tuple) and len(result) == 2):
        raise Failed(
            f"value_and_grad(loss)(params) returned {describe_value(result)}; expected a pair."
        )
    grads = result[1]
    if found := find_type_change("gradients", params, grads) or find_not_finite("gradients", grads):
        raise Failed(f"{found}.")
    leaves = by_path(grads)
    zero = [path for path, leaf in leaves.items() if not leaf.any()]
    if len(zero) == len(leaves):
        raise Failed(f"the gradients of all {len(zero)} parameter arrays are zero.")
    if zero:
        case.notes.append(f"the gradients of {', '.join(zero)} are zero on this batch.")
