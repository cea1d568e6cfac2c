"""What a difference changes on the recorded batch, and what PyTorch itself computes of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from triglot.diff.functions.arguments import arguments_of
from triglot.diff.functions.lifting import Batch, lift_function

from .parts import PARTS
from .recording import read


def effects(part: str, switches: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the relative changes by each switch alone: of triglot's result, and of its gradients.

    The gradient is the loss's by what is learned; where several arrays are, of the one that changes
    most. What has no recorded batch has no effects.
    """
    arrays = read().get(part)
    if arrays is None:
        return {}
    learned = {name for name in arrays if str(PARTS[part].inputs[name]).startswith("param")}
    results: dict[str, dict[str, float]] = {}
    ours = PARTS[part].ours(frozenset())
    for name in switches:
        theirs = PARTS[part].ours(frozenset({name}))
        results[name] = {"result": _change(part, _values(part, ours), _values(part, theirs))}
        if learned and part != "ppo.optimizer":
            pair = [_gradients(part, each, arrays, learned) for each in (ours, theirs)]
            results[name]["gradient"] = max(
                _relative(pair[0][each], pair[1][each]) for each in learned
            )
    return results


def _gradients(part: str, function: Any, arrays: Any, learned: set[str]) -> Any:
    fixed = {n: jax.numpy.asarray(array) for n, array in arrays.items() if n not in learned}

    def loss(params: Any) -> Any:
        return function(Batch(params | fixed), **_constants(part))

    return jax.grad(loss)({name: jax.numpy.asarray(arrays[name]) for name in learned})


def effect_of_all(part: str, function: Callable[..., Any], *, in_torch: bool) -> float | None:
    """Return the difference of another implementation's result, relative to triglot's."""
    ours = _values(part, PARTS[part].ours(frozenset()))
    theirs = _values(part, function, in_torch=in_torch)
    return None if ours is None else _change(part, ours, theirs)


def torch_difference(part: str, function: Callable[..., Any]) -> float | None:
    """Return the largest relative difference of PyTorch's own result and that through torchax."""
    arrays = read().get(part)
    if arrays is None:
        return None
    native = _values(part, function, in_torch=True)
    inputs = {**arrays, **_constants(part)}
    arguments = arguments_of(inputs)
    network = lift_function(function, arguments)
    variables = network.init(jax.random.key(0))
    traced, _ = network.apply(variables, arguments.draw(1, jax.random.key(0)))
    traced = {name: np.asarray(each)[0] for name, each in _named(traced).items()}
    return max(
        float(np.max(np.abs(traced[n] - each)) / max(float(np.max(np.abs(each))), 1e-30))
        for n, each in (native or {}).items()
    )


def _constants(part: str) -> dict[str, Any]:
    return {n: v for n, v in PARTS[part].inputs.items() if not isinstance(v, str)}


def _named(result: Any) -> Mapping[str, Any]:
    return result if isinstance(result, Mapping) else {"loss": result}


def _values(
    part: str, function: Callable[..., Any], *, in_torch: bool = False
) -> dict[str, np.ndarray] | None:
    """Return the results on the recorded batch, by name; None if none was recorded."""
    arrays: Any = read().get(part)
    if arrays is None:
        return None
    if in_torch:
        import torch

        arrays = {name: torch.tensor(array) for name, array in arrays.items()}
    else:
        arrays = {name: jax.numpy.asarray(array) for name, array in arrays.items()}
    results = _named(function(Batch(arrays), **_constants(part)))
    return {name: np.asarray(each) for name, each in results.items()}


def _change(part: str, ours: Any, theirs: Any) -> float:
    """Return the root of the mean squared difference, relative to ours."""
    if part == "ppo.optimizer":  # of the steps, not of the parameters
        before = {name: read()[part][name] for name in ours}
        ours, theirs = ({n: each[n] - before[n] for n in each} for each in (ours, theirs))
    one, other = (np.concatenate([np.ravel(each[n]) for n in ours]) for each in (ours, theirs))
    return _relative(one, other)


def _relative(one: Any, other: Any) -> float:
    """Return the root of the mean squared difference of two arrays, relative to the first."""
    one, other = (np.asarray(each, np.float64) for each in (one, other))
    return float(np.sqrt(np.mean((other - one) ** 2)) / np.sqrt(np.mean(one**2)))
