"""Recurrent networks over time: one step at a time, starting anew where an episode starts."""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ..errors import TriglotError
from ..network import Network, Variables

PyTree: TypeAlias = Any


def restart(first: jax.Array, initial: PyTree, carry: PyTree) -> PyTree:
    """Put the initial carry where an episode starts.

    Args:
      first: bool `[N]`.
      initial, carry: `[N, ...]`.
    """

    def where_first(start: jax.Array, going_on: jax.Array) -> jax.Array:
        return jnp.where(first.reshape(first.shape + (1,) * (start.ndim - 1)), start, going_on)

    return jax.tree.map(where_first, initial, carry)


def unroll(
    network: Network,
    variables: Variables,
    inputs: PyTree,
    first: jax.Array,
    carry: PyTree,
    *,
    key: jax.Array | None = None,
    train: bool = False,
) -> tuple[PyTree, PyTree, PyTree]:
    """Scan a recurrent network over `T` steps of `N` environments.

    Args:
      network: a recurrent one.
      variables: its arrays.
      inputs: `[T, N, ...]`.
      first: bool `[T, N]`, an episode starts here: the carry before this step is dropped.
      carry: `[N, ...]`, from before the first step.
      key: for the network's own randomness; each step gets a key of its own.
      train: whether running statistics move; they go from step to step.

    Returns:
      The outputs `[T, N, ...]`, the carry after the last step, and the network's new state.

    Raises:
      TriglotError: if the network is not recurrent.
    """
    num_steps, num_envs = first.shape
    initial = _initial(network, variables, num_envs)
    keys = None if key is None else jax.random.split(key, num_steps)

    def step(
        before: tuple[PyTree, PyTree], seen: tuple[PyTree, jax.Array, jax.Array | None]
    ) -> tuple[tuple[PyTree, PyTree], PyTree]:
        carry, state = before
        now, starts, step_key = seen
        (outputs, carry), state = network.apply(
            Variables(params=variables.params, state=state),
            (now, restart(starts, initial, carry)),
            key=step_key,
            train=train,
        )
        return (carry, state), outputs

    (carry, state), outputs = jax.lax.scan(step, (carry, variables.state), (inputs, first, keys))
    return outputs, carry, state


def carries(
    network: Network, variables: Variables, inputs: PyTree, first: jax.Array, carry: PyTree
) -> tuple[PyTree, PyTree]:
    """Say what a recurrent network carries before and after each of `T` steps, `[T, N, ...]` each.

    What is carried before a step that starts an episode is the initial carry. Arguments and errors
    are those of `unroll`.
    """
    initial = _initial(network, variables, first.shape[1])

    def step(carry: PyTree, seen: tuple[PyTree, jax.Array]) -> tuple[PyTree, tuple[PyTree, PyTree]]:
        now, starts = seen
        before = restart(starts, initial, carry)
        (_, after), _ = network.apply(variables, (now, before))
        return after, (before, after)

    return jax.lax.scan(step, carry, (inputs, first))[1]


def _initial(network: Network, variables: Variables, num_envs: int) -> PyTree:
    if not network.recurrent:
        raise TriglotError(
            f"the {network.backend} network {network.name!r} is not recurrent: call its `apply` on "
            "all steps at once."
        )
    return network.initial_carry(variables, num_envs)


def apply_step(
    network: Network, variables: Variables, obs: PyTree, first: jax.Array, carry: PyTree
) -> tuple[PyTree, PyTree]:
    """Apply a network to one step of `N` environments, recurrent or not.

    Args:
      network, variables: any network, and its arrays.
      obs: `[N, ...]`.
      first: bool `[N]`, an episode starts here: a recurrent network starts from its initial carry.
      carry: `[N, ...]`, from before this step.

    Returns:
      The outputs `[N, ...]`, and the carry after this step.
    """
    if not network.recurrent:
        return network.apply(variables, obs)[0], carry
    initial = network.initial_carry(variables, first.shape[0])
    return network.apply(variables, (obs, restart(first, initial, carry)))[0]
