"""The outputs an algorithm needs from a network, checked in words before anything compiles."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from .. import specs
from ..errors import TriglotError, user_error_context
from ..network import Network
from .architecture import Head, gaussian_heads, policy_head


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


def policy_heads(
    action_spec: specs.Spec, *, algorithm: str, initial_std: float = 1.0
) -> tuple[tuple[str, Head], ...]:
    """Describe the heads of a policy that `core.distributions.policy` builds.

    Args:
      action_spec: what it acts with.
      algorithm: whose policy it is, for the message.
      initial_std: the standard deviation of a continuous one at first, before the tanh.

    Raises:
      TriglotError: if there is no policy for such actions.
    """
    if isinstance(action_spec, specs.Discrete):
        return (("logits", policy_head(action_spec.num_values)),)
    if isinstance(action_spec, specs.Box) and jnp.issubdtype(action_spec.dtype, jnp.floating):
        if action_spec.bounded:
            return gaussian_heads(math.prod(action_spec.shape), initial_std)
        raise TriglotError(
            f"{algorithm} brings actions into their bounds, and these are unbounded: {action_spec}."
        )
    raise TriglotError(
        f"{algorithm} serves discrete actions and bounded boxes of floats, and this environment's "
        f"are {action_spec}: choose another environment."
    )


def policy_shapes(action_spec: specs.Spec, *, algorithm: str) -> dict[str, tuple[int, ...]]:
    """List the shapes of a policy's heads, without the batch axis."""
    return {
        name: (head.size or 1,) for name, head in policy_heads(action_spec, algorithm=algorithm)
    }


def check_heads(
    network: Network,
    obs_spec: specs.Spec | tuple[specs.Spec, ...],
    needs: Mapping[str, tuple[int, ...]],
    *,
    algorithm: str,
    ensemble_size: int = 1,
) -> None:
    """Check that a network's outputs are what an algorithm needs; nothing is computed.

    Args:
      network: the network as the algorithm will use it.
      obs_spec: one observation; a tuple for several inputs.
      needs: the shape of each head, without its batch axis.
      algorithm: whose needs they are, for the message.
      copies: members of an ensemble, whose outputs have a leading axis; 1 for no ensemble.

    Raises:
      TriglotError: naming the network, its library and every head that is missing or misshapen.
    """
    batch = 2
    wanted = " and ".join(f"{name} {_words(shape)}" for name, shape in needs.items())
    library = network.backend.capitalize()
    whose = f"{algorithm} needs {wanted}; your {library} network {network.name!r}"
    with user_error_context(f"{whose} failed on a batch of {batch} observations"):
        variables = jax.eval_shape(network.init, jax.random.key(0))
        obs = jax.eval_shape(
            lambda: (
                tuple(specs.zeros(spec, batch) for spec in obs_spec)
                if isinstance(obs_spec, tuple)
                else specs.zeros(obs_spec, batch)
            )
        )
        if network.recurrent:
            carry = jax.eval_shape(lambda v: network.initial_carry(v, batch), variables)
            (outputs, _), _ = jax.eval_shape(network.apply, variables, (obs, carry))
        else:
            outputs, _ = jax.eval_shape(network.apply, variables, obs)
    if ensemble_size > 1:  # a member's outputs are what a person wrote, and what is said of them
        outputs = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), outputs
        )
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


def require_parts(
    network: Network, parts: tuple[str, ...], *, algorithm: str
) -> Mapping[str, Network]:
    """Return the parts of a combined network.

    Args:
      network: as `core.networks.combinators.combine` makes it.
      parts: the names it must have.
      algorithm: its name, for the message.

    Raises:
      TriglotError: if it has other parts, or none.
    """
    if set(network.parts) != set(parts):
        raise TriglotError(
            f"{algorithm} needs separate networks ({', '.join(parts)}), which read different "
            f"inputs, and got the single network {network.name!r}: give each by name, "
            "networks={'actor': ..., 'critic': ...}."
        )
    return network.parts


def require_single_steps(owner: str, network: Network) -> None:
    """Reject a recurrent network, since a replay holds single steps.

    Raises:
      TriglotError: naming the network and what trains recurrent ones.
    """
    if network.recurrent:
        raise TriglotError(
            f"{owner} replays single steps, and the network {network.name!r} is recurrent: use a "
            "network without a carry, or PPO, which trains recurrent networks."
        )


def num_actions(action_spec: specs.Spec, *, algorithm: str) -> int:
    """Count the actions, for an algorithm that serves discrete ones only.

    Raises:
      TriglotError: if they are not discrete.
    """
    if not isinstance(action_spec, specs.Discrete):
        raise TriglotError(
            f"{algorithm} serves discrete actions, and this environment's are {action_spec}: "
            "choose an environment with Discrete actions."
        )
    return action_spec.num_values


def _words(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(['B', *map(str, shape)])}]"
