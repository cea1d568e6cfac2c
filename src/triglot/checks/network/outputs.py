"""Checks of a network's outputs: rows, values, random starts and gradients."""

import jax
import jax.numpy as jnp
import numpy as np

from ...core.network import Variables
from ...core.types import Params, PyTree
from .. import trees
from ..members import check_pair
from ..purity import Compiled
from ..report import Checklist, Failed, NotApplicable, describe_value, reject
from .case import BATCH_SIZE, NetworkCase

CHECKS: Checklist[NetworkCase] = Checklist(needs=["apply"])


@CHECKS.check()
def _batched(case: NetworkCase) -> None:
    """Do all outputs have the batch as their leading axis?

    Why: Agents read outputs [B, ...] row by row; a mean over the batch trains without an error.

    Fix: Keep the leading axis: flatten with x.reshape(x.shape[0], -1), reduce over later axes.
    """
    if problem := trees.find_unbatched("the output", case.evaluation.result[0], BATCH_SIZE):
        raise Failed(
            f"for a batch of {BATCH_SIZE}, {problem} (inputs: {trees.summarize(case.inputs)})."
        )


@CHECKS.check()
def _dtype(case: NetworkCase) -> None:
    """Are parameters and floating-point outputs float32?

    Why: Losses refuse or promote other dtypes.

    Fix: Cast outputs with .astype(jnp.float32), and initialize parameters in float32.
    """
    for name, tree in (("output", _heads(case)), ("parameter", case.variables.params)):
        for path, leaf in trees.by_path(tree).items():
            if trees.is_inexact(leaf) and leaf.dtype != np.float32:
                raise Failed(f"the {name} {path} is {describe_value(leaf)}; expected float32.")


def _heads(case: NetworkCase) -> PyTree:
    return case.heads(case.evaluation.result[0])


@CHECKS.check()
def _finite(case: NetworkCase) -> None:
    """Are parameters and outputs free of NaN and infinity?

    Why: One NaN spreads to every parameter in one update.

    Fix: Look for 0/0, log(0), the square root of a negative number and a softmax over no values.
    """
    tree = {"params": case.variables.params, "outputs": _heads(case)}
    reject(trees.find_not_finite("", tree))


@CHECKS.check()
def _state(case: NetworkCase) -> None:
    """Does evaluation return the state unchanged?

    Why: If running statistics change in evaluation, its results depend on the order of calls.

    Fix: Return variables.state if train is False.
    """
    if change := trees.find_change("state", case.variables.state, case.evaluation.result[1]):
        raise Failed(f"after apply with train=False, {change}.")


@CHECKS.check(needs=["batched", "deterministic"])
def _independent_rows(case: NetworkCase) -> None:
    """Is each row of the outputs independent of the other rows in evaluation?

    Why: Agents act on small batches and learn from large ones: with mixed rows, acting and learning
    see different policies.

    Fix: Reduce over later axes only; in evaluation, BatchNorm must use its running statistics.
    """
    # Rows of the carry differ after one step; those of an initial carry may be equal.
    inputs, outputs = case.inputs, case.evaluation.result[0]
    if case.network.recurrent:
        inputs = (case.obs, outputs[1])
        outputs, _ = case.evaluation.run(case.variables, inputs)
    for row in (0, BATCH_SIZE - 1):
        one_input, in_batch = jax.tree.map(
            lambda leaf, row=row: leaf[row : row + 1], (inputs, outputs)
        )
        alone, _ = case.evaluation.run(case.variables, one_input)
        if difference := trees.find_value_difference(
            "outputs", in_batch, alone, rtol=1e-4, atol=1e-5
        ):
            raise Failed(f"row {row} in its batch and alone: {difference}.")


@CHECKS.check(needs=["deterministic"])
def _seeds(case: NetworkCase) -> None:
    """Are all random parameters different from each other, and for another key?

    Why: Equal seeds repeat one experiment; layers with equal parameters start as copies.

    Fix: Pass the key to the initializers, one part of it to each layer: q, k, v =
    jax.random.split(key, 3). Set random_start=False if the parameters are given.
    """
    first, second = trees.by_path(case.variables.params), trees.by_path(case.fresh.params)
    same = [
        path for path in first if not trees.find_value_difference("", first[path], second.get(path))
    ]
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


def _check_copies(leaves: dict[str, jax.Array]) -> None:
    paths = list(leaves)
    for index, path in enumerate(paths):
        for other in paths[:index]:
            if np.array_equal(leaves[path], leaves[other]):
                raise Failed(
                    f"params.{other} and params.{path}, {describe_value(leaves[path])} each, have "
                    "equal initial values: they use the same key, or are one layer stored twice."
                )


def _varies(leaf: jax.Array) -> bool:
    values = np.asarray(leaf)
    return values.size > 1 and bool((values != values.flat[0]).any())


@CHECKS.check(needs=["jit", "finite"])
def _gradient(case: NetworkCase) -> None:
    """Does value_and_grad give finite gradients, shaped as params, and not all zero?

    Why: The optimizer learns from nothing else.

    Fix: Look for stop_gradient, round and argmax on the way to every output, and sqrt and norm at
    0. value_and_grad(loss)(params) must return what jax.value_and_grad(has_aux=True) does.
    """
    params = case.variables.params
    if not jax.tree.leaves(params):
        raise NotApplicable("the network has no parameters.")

    def loss(params: Params) -> tuple[jax.Array, PyTree]:
        variables = Variables(params=params, state=case.variables.state)
        outputs, state = case.train(variables, case.inputs, case.key(2))
        total = jnp.zeros(())
        for index, head in enumerate(jax.tree.leaves(case.heads(outputs))):
            if trees.is_inexact(head):
                weight = jax.random.normal(case.key(100 + index), head.shape, head.dtype)
                total = total + jnp.sum(weight * head).astype(jnp.float32)
        return total, state

    compiled = Compiled("`value_and_grad`", lambda p: case.network.value_and_grad(loss)(p))
    result = compiled(params)
    check_pair("value_and_grad(loss)(params)", result, "((loss, aux), gradients)")
    grads = result[1]
    reject(
        trees.find_type_change("gradients", params, grads)
        or trees.find_not_finite("gradients", grads)
    )
    leaves = trees.by_path(grads)
    zero = [path for path, leaf in leaves.items() if not leaf.any()]
    if len(zero) == len(leaves):
        raise Failed(f"the gradients of all {len(zero)} parameter arrays are zero.")
    if zero:
        first = ", which is one step from the initial carry" if case.network.recurrent else ""
        case.notes.append(f"the gradients of {', '.join(zero)} are zero on this batch{first}.")
