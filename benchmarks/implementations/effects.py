"""What a difference changes on the recorded batch, and what PyTorch itself computes of it."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from triglot.core.types import PyTree
from triglot.diff.functions.arguments import arguments_of
from triglot.diff.functions.lifting import Batch, lift_function

from .parts import PARTS, Function

Arrays: TypeAlias = Mapping[str, np.ndarray]


def effects(part: str, arrays: Arrays, switches: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the relative changes by each switch alone: of triglot's result, and of its gradients.

    The gradient is the loss's by what is learned; where several arrays are, of the one that changes
    most.

    Args:
      part: a name of `PARTS`.
      arrays: its recorded batch.
      switches: names of `SWITCHES`.
    """
    batch = {name: jnp.asarray(array) for name, array in arrays.items()}
    learned = {name for name in arrays if str(PARTS[part].inputs[name]).startswith("param")}
    changes: dict[str, dict[str, float]] = {}
    ours = PARTS[part].ours(frozenset())
    for name in switches:
        theirs = PARTS[part].ours(frozenset({name}))
        results = [_results(part, each, batch) for each in (ours, theirs)]
        if part == "ppo.optimizer":  # of the steps, not of the parameters
            results = [{n: each[n] - arrays[n] for n in each} for each in results]
        one, other = (np.concatenate([np.ravel(a) for a in each.values()]) for each in results)
        changes[name] = {"result": _relative(one, other)}
        if learned and part != "ppo.optimizer":
            one, other = (_gradients(part, each, batch, learned) for each in (ours, theirs))
            gradient = max(_relative(one[each], other[each]) for each in learned)
            changes[name]["gradient"] = gradient
    return changes


def torch_difference(part: str, arrays: Arrays, function: Function) -> float:
    """Return the largest relative difference of PyTorch's own result and that through torchax."""
    import torch

    native = _results(part, function, {name: torch.tensor(each) for name, each in arrays.items()})
    arguments = arguments_of({**arrays, **_constants(part)})
    network = lift_function(function, arguments)
    variables = network.init(jax.random.key(0))
    traced, _ = network.apply(variables, arguments.draw(1, jax.random.key(0)))
    through_torchax = {name: np.asarray(each)[0] for name, each in _named(traced).items()}
    return max(
        float(np.max(np.abs(through_torchax[n] - each)) / max(float(np.max(np.abs(each))), 1e-30))
        for n, each in native.items()
    )


def _results(part: str, function: Function, batch: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Call a function with a batch; return its results by name."""
    results = _named(function(Batch(batch), **_constants(part)))
    return {name: np.asarray(each) for name, each in results.items()}


def _gradients(
    part: str, function: Function, batch: Mapping[str, jax.Array], learned: set[str]
) -> dict[str, jax.Array]:
    def loss(params: dict[str, jax.Array]) -> jax.Array:
        return function(Batch({**batch, **params}), **_constants(part))

    return jax.grad(loss)({name: batch[name] for name in learned})


def _constants(part: str) -> dict[str, float]:
    return {n: v for n, v in PARTS[part].inputs.items() if not isinstance(v, str)}


def _named(result: PyTree) -> Mapping[str, PyTree]:
    return result if isinstance(result, Mapping) else {"loss": result}


def _relative(one: np.ndarray | jax.Array, other: np.ndarray | jax.Array) -> float:
    """Return the root of the mean squared difference of two arrays, relative to the first."""
    before, after = (np.asarray(each, np.float64) for each in (one, other))
    return float(np.sqrt(np.mean((after - before) ** 2)) / np.sqrt(np.mean(before**2)))
