"""The toy library's adapter: everything that triglot needs of a fifth library."""

import itertools
import math
from dataclasses import replace
from typing import Any

import jax

from triglot.backends.naming import canonical_name, words_of
from triglot.core.errors import TriglotError
from triglot.core.network import Codec, Leaf, Network, Variables
from triglot.core.networks.architecture import MLP, Head, NetworkSpec

from . import nn

LEAF_NAMES = {"weights": "kernel", "offset": "bias"}


def from_toy(module: nn.Module, obs_spec: Any, *, name: str | None = None) -> Network:
    """Lift a toy module to a `Network`."""
    del obs_spec  # a toy module knows the size of its inputs

    def init(key: jax.Array) -> Variables:
        return Variables(params=module.init(key), state=())

    def apply(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        del key, train
        return module(variables.params, inputs), variables.state

    params = jax.eval_shape(init, jax.random.key(0)).params
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    names = [canonical_name(words_of(path), LEAF_NAMES) for path in paths]
    return Network(
        name=name or type(module).__name__,
        backend="toy",
        init=init,
        apply=apply,
        codec=Codec.named(params, [Leaf.one(name) for name in names]),
    )


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a multilayer perceptron with dense heads."""
    if not isinstance(spec.torso, MLP) or spec.cell or any(_unsupported(h) for _, h in spec.heads):
        raise TriglotError(f"the toy library has dense layers only, and {name!r} asks for {spec}.")
    sizes = (math.prod(spec.obs_shape), *spec.torso.hidden_sizes)
    module = nn.TorsoAndHeads(
        tuple(
            nn.Dense(num_inputs, num_outputs, spec.torso.scale or 1.0)
            for num_inputs, num_outputs in itertools.pairwise(sizes)
        ),
        tuple(
            (n, nn.Dense(sizes[-1], head.size or 1, head.scale or 1.0)) for n, head in spec.heads
        ),
        getattr(jax.nn, spec.torso.activation),
    )
    network = from_toy(module, spec.obs_spec, name=name)

    def apply(*args: Any, **options: Any) -> tuple[Any, Any]:
        outputs, state = network.apply(*args, **options)
        scalars = {n for n, head in spec.heads if head.size is None}
        return {n: a[:, 0] if n in scalars else a for n, a in outputs.items()}, state

    return replace(network, apply=apply)


def _unsupported(head: Head) -> bool:
    return head.dueling or head.state_independent is not None
