"""`from_toy`: from a toy module to a `Network`."""

from typing import Any

import jax
import toy_nn

from triglot import Network, Variables
from triglot.backends.objects import codec_of


def from_toy(module: toy_nn.Module, obs_spec: Any, *, name: str | None = None) -> Network:
    """Wrap a toy module as a `Network`."""
    del obs_spec  # a toy module knows the size of its inputs

    def init(key: jax.Array) -> Variables:
        return Variables(params=module.init(key), state=())

    def apply(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        del key, train
        return module(variables.params, inputs), variables.state

    def is_layer(node: Any) -> bool:
        return isinstance(node, toy_nn.Module)

    params = jax.eval_shape(init, jax.random.key(0)).params
    return Network(
        name=name or type(module).__name__,
        backend="toy",
        init=init,
        apply=apply,
        codec=codec_of("toy", module, params, is_layer),
    )
