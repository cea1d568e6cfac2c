"""The toy library's zoo: multilayer perceptrons with dense heads."""

import itertools
import math
from dataclasses import replace
from typing import Any

import jax
import toy_nn

from triglot import Network, TriglotError
from triglot.nn import MLP, NetworkSpec

from .lifting import from_toy


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from the library's own layers."""
    torso = spec.torso
    unsupported = {
        f"a torso {type(torso).__name__}": not isinstance(torso, MLP),
        "normalization": isinstance(torso, MLP) and torso.normalization != "none",
        "a recurrent cell": spec.cell is not None,
        "noise or dropout": bool(spec.drawn_sizes),
        "dueling heads": any(head.dueling for _, head in spec.heads),
        "a constant head": any(head.state_independent is not None for _, head in spec.heads),
    }
    if wanted := [part for part, is_asked_for in unsupported.items() if is_asked_for]:
        raise TriglotError(
            f"the toy library has dense layers only, and {name!r} asks for {', '.join(wanted)}."
        )
    assert isinstance(torso, MLP)  # for the type checker
    sizes = (math.prod(spec.obs_shape), *torso.hidden_sizes)
    module = toy_nn.TorsoAndHeads(
        tuple(
            toy_nn.Dense(num_inputs, num_outputs, torso.scale or 1.0)
            for num_inputs, num_outputs in itertools.pairwise(sizes)
        ),
        {n: toy_nn.Dense(sizes[-1], h.size or 1, h.scale or 1.0) for n, h in spec.heads},
        getattr(jax.nn, torso.activation),
    )
    network = from_toy(module, spec.obs_spec, name=name)

    def apply(*args: Any, **options: Any) -> tuple[Any, Any]:
        outputs, state = network.apply(*args, **options)
        scalars = {n for n, head in spec.heads if head.size is None}
        return {n: a[:, 0] if n in scalars else a for n, a in outputs.items()}, state

    return replace(network, apply=apply)
