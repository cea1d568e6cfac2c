"""The toy library's zoo: multilayer perceptrons with dense heads."""

import itertools
import math
from dataclasses import replace
from typing import Any

import jax
import toy_nn

from triglot import Network, TriglotError
from triglot.nn import MLP, Head, NetworkSpec

from .lifting import from_toy


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from the library's own layers."""
    torso, heads = spec.torso, [head for _, head in spec.heads]
    is_plain = not (spec.cell or spec.drawn_sizes or any(map(_unsupported, heads)))
    if not isinstance(torso, MLP) or torso.normalization != "none" or not is_plain:
        raise TriglotError(f"the toy library has dense layers only, and {name!r} asks for {spec}.")
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


def _unsupported(head: Head) -> bool:
    return head.dueling or head.state_independent is not None
