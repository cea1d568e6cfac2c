"""The outputs an algorithm needs from a network, checked in words before anything compiles."""

from collections.abc import Mapping
from typing import Any

import jax

from . import specs
from .errors import TriglotError
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
    variables = jax.eval_shape(network.init, jax.random.key(0))
    obs = jax.eval_shape(lambda: specs.zeros(obs_spec, batch))
    outputs, _ = jax.eval_shape(network.apply, variables, obs)
    wanted = " and ".join(f"{name} {_words(shape)}" for name, shape in needs.items())
    whose = f"{algorithm} needs {wanted}; the {network.backend} network {network.name!r} gave"
    if not isinstance(outputs, Mapping):
        raise TriglotError(f"{whose} {type(outputs).__name__}: return a dictionary of heads.")
    heads = merge_heads(outputs)
    found = {n: tuple(heads[n].shape) for n in needs if hasattr(heads.get(n), "shape")}
    if found != {name: (batch, *shape) for name, shape in needs.items()}:
        given = [f"{n} {_words(s[1:]) if s[:1] == (batch,) else list(s)}" for n, s in found.items()]
        missing = [f"no {name} (it has {sorted(heads)})" for name in needs if name not in found]
        raise TriglotError(f"{whose} {' and '.join(given + missing)}.")


def _words(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(['B', *map(str, shape)])}]"
