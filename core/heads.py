"""The outputs an algorithm needs from a network, checked in words before anything compiles."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from . import specs
from .errors import TriglotError, blaming
from .network import Network


def merge_heads(outputs: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Flatten a network's outputs to `{head: array}`.

    A single network gives `{head: array}`; one made by `combine` gives `{part: {head: array}}`.

    Raises:
      TriglotError: if two parts give a head of one name.
    """
    merged: dict[str, jax.Array] = {}
    for name, value in outputs.items():
        heads = value if isinstance(value, Mapping) else {name: value}
        twice = sorted(merged.keys() & heads.keys())
        if twice:
            raise TriglotError(
                f"two networks give {twice[0]!r}, the second of them {name!r}: let one give it."
            )
        merged.update(heads)
    return merged


def check_heads(
    network: Network,
    obs_spec: specs.Spec,
    needs: Mapping[str, tuple[int, ...]],
    *,
    algorithm: str,
) -> None:
    """Check that a network's outputs are what an algorithm needs; nothing is computed.

    Args:
      network: the network as the algorithm will use it.
      obs_spec: one observation.
      needs: the shape of each head, without its batch axis.
      algorithm: whose needs they are, for the message.

    Raises:
      TriglotError: naming the network, its library and every head that is missing or misshapen.
    """
    batch = 2
    wanted = " and ".join(f"{name} {_words(shape)}" for name, shape in needs.items())
    library = network.backend.capitalize()
    whose = f"{algorithm} needs {wanted}; your {library} network {network.name!r}"
    with blaming(f"{whose} failed on a batch of {batch} observations"):
        variables = jax.eval_shape(network.init, jax.random.key(0))
        obs = jax.eval_shape(lambda: specs.zeros(obs_spec, batch))
        if network.recurrent:
            carry = jax.eval_shape(lambda v: network.initial_carry(v, batch), variables)
            (outputs, _), _ = jax.eval_shape(network.apply, variables, (obs, carry))
        else:
            outputs, _ = jax.eval_shape(network.apply, variables, obs)
    if not isinstance(outputs, Mapping):
        raise TriglotError(
            f"{whose} gave a {type(outputs).__name__}: return a dictionary of heads, such as "
            f"{{{', '.join(f'{name!r}: ...' for name in needs)}}}."
        )
    heads = merge_heads(outputs)
    wrong = []
    for name, shape in needs.items():
        if not hasattr(heads.get(name), "shape"):
            wrong.append(f"no {name} (it has {', '.join(sorted(heads)) or 'no heads'})")
        elif (there := tuple(heads[name].shape)) != (batch, *shape):
            given = _words(there[1:]) if there[:1] == (batch,) else list(there)
            wrong.append(f"{name} {given}")
        elif not jnp.issubdtype(heads[name].dtype, jnp.floating):
            wrong.append(f"{name} of dtype {heads[name].dtype}, not float32")
    if wrong:
        raise TriglotError(f"{whose} gave {' and '.join(wrong)}.")


def _words(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(['B', *map(str, shape)])}]"
