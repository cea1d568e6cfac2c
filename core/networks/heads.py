"""The outputs that an algorithm needs from a network, checked before anything compiles."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped
from jaxtyping import PyTree as TreeOf

from .. import specs
from ..errors import TriglotError, user_error_context
from ..network import Network, Variables
from ..types import Key, Obs, PyTree, abstract_key
from .architecture import Head, gaussian_heads, policy_head
from .combinators import part_of


def merge_heads(outputs: TreeOf[Shaped[Array, "B ..."]]) -> dict[str, jax.Array]:
    """Flatten a network's outputs `[B, ...]` to `{head: array}`.

    A single network returns `{head: array}`, one made by `combine` `{part: {head: array}}`.

    Raises:
      TriglotError: if two parts have a head of the same name.
    """
    return _flatten(outputs)


def apply_heads(
    network: Network,
    variables: Variables,
    inputs: PyTree,
    *,
    key: Key | None = None,
    train: bool = False,
) -> tuple[dict[str, jax.Array], PyTree]:
    """Apply a network that is not recurrent, and merge its heads.

    Args:
      network, variables: any such network, and its arrays.
      inputs, key, train: as `Network.apply` takes them.

    Returns:
      The heads `[B, ...]` by name, and the network's new state.
    """
    outputs, state = network.apply(variables, inputs, key=key, train=train)
    return merge_heads(outputs), state


def _flatten(outputs: Mapping[str, PyTree]) -> dict[str, PyTree]:
    merged: dict[str, PyTree] = {}
    for name, value in outputs.items():
        heads = value if isinstance(value, Mapping) else {name: value}
        twice = sorted(merged.keys() & heads.keys())
        if twice:
            raise TriglotError(
                f"two networks return the head {twice[0]!r}, the second is {name!r}: remove it "
                "from one of them."
            )
        merged.update(heads)
    return merged


def policy_heads(
    action_spec: specs.Spec,
    *,
    algorithm: str,
    initial_std: float = 1.0,
    state_dependent_std: bool = False,
) -> tuple[tuple[str, Head], ...]:
    """Describe the heads of a policy that `core.distributions.policy` builds.

    Args:
      action_spec: the environment's actions.
      algorithm: the algorithm's name, for the message.
      initial_std: initial standard deviation of a continuous policy, before the tanh.
      state_dependent_std: whether the standard deviation depends on the observation.

    Raises:
      TriglotError: if there is no policy for these actions.
    """
    if (num_logits := specs.mask_size(action_spec)) is not None:
        return (("logits", policy_head(num_logits)),)
    if isinstance(action_spec, specs.Box) and jnp.issubdtype(action_spec.dtype, jnp.floating):
        if action_spec.bounded:
            size = math.prod(action_spec.shape)
            return gaussian_heads(size, initial_std, state_dependent_std=state_dependent_std)
        raise TriglotError(
            f"{algorithm} needs bounded actions, got {action_spec}: {specs.HOW_TO_BOUND}."
        )
    raise TriglotError(
        f"{algorithm} supports Discrete and MultiDiscrete actions and bounded boxes of floats, and "
        f"this environment has {action_spec}: choose another environment."
    )


def policy_shapes(action_spec: specs.Spec, *, algorithm: str) -> dict[str, tuple[int, ...]]:
    """List the shapes of a policy's heads, without the batch axis."""
    heads = policy_heads(action_spec, algorithm=algorithm)
    return {name: (head.size or 1,) for name, head in heads}


def check_heads(
    network: Network,
    obs_spec: specs.Spec | tuple[specs.Spec, ...],
    needs: Mapping[str, tuple[int, ...]],
    *,
    algorithm: str,
    ensemble_size: int = 1,
) -> None:
    """Check a network's outputs against an algorithm's heads with `jax.eval_shape`.

    Args:
      network: the network as the algorithm will use it.
      obs_spec: one observation; a tuple for several inputs.
      needs: the shape of each head, without its batch axis.
      algorithm: the algorithm's name, for the message.
      ensemble_size: members of an ensemble, whose outputs have a leading axis `[ensemble_size]`; 1
        for no ensemble.

    Raises:
      TriglotError: naming the network, its library and every head that is missing or has another
        shape or dtype; or if a recurrent network does not return `(outputs, carry)`.
    """
    batch = 2
    wanted = " and ".join(f"{name} {_words(shape)}" for name, shape in needs.items())
    context = f"{algorithm} needs {wanted}; the {network.backend} network {network.name!r}"
    with user_error_context(f"{context} failed on a batch of {batch} observations"):
        variables = jax.eval_shape(network.init, abstract_key())
        obs = jax.eval_shape(lambda: jax.tree.map(lambda spec: specs.zeros(spec, batch), obs_spec))
        outputs = _outputs(network, variables, obs, batch)
    if ensemble_size > 1:  # errors show the shapes of one member, which is what the user wrote
        outputs = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), outputs
        )
    if not isinstance(outputs, Mapping):
        advice = "; a recurrent network also needs initial_carry=FUNCTION, given to its adapter"
        advice = advice if isinstance(outputs, tuple) else ""
        kind = "an array" if hasattr(outputs, "shape") else f"a {type(outputs).__name__}"
        raise TriglotError(
            f"{context} returned {kind}: return a dictionary of heads, such as "
            f"{{{', '.join(f'{name!r}: ...' for name in needs)}}}{advice}."
        )
    heads = _flatten(outputs)
    wrong = []
    for name, shape in needs.items():
        if not hasattr(heads.get(name), "shape"):
            wrong.append(f"no {name} (it has {', '.join(sorted(heads)) or 'no heads'})")
        elif (actual := tuple(heads[name].shape)) != (batch, *shape):
            shown = _words(actual[1:]) if actual[:1] == (batch,) else list(actual)
            surplus = actual == (batch, *shape, 1)
            wrong.append(f"{name} {shown}{': drop its last axis, [..., 0]' if surplus else ''}")
        elif not jnp.issubdtype(heads[name].dtype, jnp.floating):
            wrong.append(f"{name} of dtype {heads[name].dtype}, not float32")
    if wrong:
        raise TriglotError(f"{context} returned {' and '.join(wrong)}.")


def _outputs(network: Network, variables: Variables, obs: Obs, batch: int) -> PyTree:
    """Evaluate the outputs' shapes of one step.

    Raises:
      TriglotError: if the network is recurrent and does not return `(outputs, carry)`.
    """
    if not network.recurrent:
        return jax.eval_shape(network.apply, variables, obs)[0]
    for name, part in network.parts.items():  # first, so that the error names the part
        if part.recurrent:
            _outputs(part, part_of(variables, name), obs, batch)
    carry = jax.eval_shape(lambda v: network.initial_carry(v, batch), variables)
    returned, _ = jax.eval_shape(network.apply, variables, (obs, carry))
    shown = f"the recurrent {network.backend} network {network.name!r} returned"
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise TriglotError(
            f"{shown} a {type(returned).__name__}: return the pair (outputs, carry), where carry "
            "has the structure of initial_carry(num_envs)."
        )
    outputs, new_carry = returned
    if _shapes(new_carry) == _shapes(carry):
        return outputs
    if _shapes(outputs) == _shapes(carry):
        raise TriglotError(
            f"{shown} (carry, outputs), Flax's order: return (outputs, carry). A Flax cell's call "
            "becomes `carry, y = cell(carry, x); return y, carry`."
        )
    raise TriglotError(
        f"{shown} (outputs, carry) with a carry of {_shapes(new_carry)}: return a carry with the "
        f"structure, shapes and dtypes of initial_carry({batch}), {_shapes(carry)}."
    )


def _shapes(tree: PyTree) -> str:
    """Describe a tree's structure, shapes and dtypes."""
    return str(jax.tree.map(lambda a: f"{a.dtype}{list(a.shape)}", tree)).replace("'", "")


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
            "network without a carry, or PPO or R2D2, which train recurrent networks."
        )


def require_recurrent(owner: str, network: Network) -> None:
    """Reject a network that is not recurrent.

    Raises:
      TriglotError: naming the network and what trains it.
    """
    if not network.recurrent:
        raise TriglotError(
            f"{owner} replays sequences for a recurrent network, and the {network.backend} network "
            f"{network.name!r} has no carry: use DQN, or give initial_carry=FUNCTION to the "
            "network's adapter."
        )


def num_actions(action_spec: specs.Spec, *, algorithm: str) -> int:
    """Count the actions, for an algorithm that supports discrete actions only.

    Raises:
      TriglotError: if they are not discrete.
    """
    if not isinstance(action_spec, specs.Discrete):
        raise TriglotError(
            f"{algorithm} supports discrete actions, but those of this environment are "
            f"{specs.short_spec(action_spec)}: choose an environment with Discrete actions, or "
            "PPO, which takes all kinds of actions."
        )
    return action_spec.num_values


def _words(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(['B', *map(str, shape)])}]"
