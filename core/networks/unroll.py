"""Scans of recurrent networks over time, with a reset of the carry at each episode's start."""

from collections.abc import Callable

import jax

from ..errors import TriglotError
from ..network import Network, Variables
from ..numerics import where_rows
from ..tracing.batched import scan_batched
from ..types import Key, PyTree


def unroll(
    network: Network,
    variables: Variables,
    inputs: PyTree,
    first: jax.Array,
    carry: PyTree,
    *,
    key: Key | None = None,
    train: bool = False,
) -> tuple[PyTree, PyTree, PyTree]:
    """Scan a recurrent network over `T` steps of `N` environments.

    Args:
      network: a recurrent network.
      variables: its variables.
      inputs: `[T, N, ...]`.
      first: bool `[T, N]`, whether an episode starts; there the initial carry is used.
      carry: the carry before the first step, `[N, ...]`.
      key: for dropout and the like, split into one key per step.
      train: whether running statistics are updated, from step to step.

    Returns:
      The outputs `[T, N, ...]`, the carry after the last step, and the network's new state.

    Raises:
      TriglotError: if the network is not recurrent.
    """
    scan_args = (network, variables, inputs, first, carry, key, train)
    return _scan(lambda before, outputs, after: outputs, *scan_args)


def carries(
    network: Network, variables: Variables, inputs: PyTree, first: jax.Array, carry: PyTree
) -> tuple[PyTree, PyTree]:
    """Compute the carry before and after each of `T` steps, `[T, N, ...]` each.

    The carry before a step that starts an episode is the initial one. Arguments and errors are
    those of `unroll`.
    """
    scan_args = (network, variables, inputs, first, carry)
    return _scan(lambda before, outputs, after: (before, after), *scan_args)[0]


def outputs_and_carries(
    network: Network,
    variables: Variables,
    inputs: PyTree,
    first: jax.Array,
    carry: PyTree,
    *,
    key: Key | None = None,
    train: bool = False,
) -> tuple[PyTree, PyTree, PyTree]:
    """Compute the outputs of each of `T` steps and the carry after it, `[T, N, ...]` each.

    Arguments and errors are those of `unroll`.

    Returns:
      The outputs, the carries, and the network's new state.
    """
    scan_args = (network, variables, inputs, first, carry, key, train)
    kept, _, state = _scan(lambda before, outputs, after: (outputs, after), *scan_args)
    return *kept, state


def _scan(
    keep: Callable[[PyTree, PyTree, PyTree], PyTree],
    network: Network,
    variables: Variables,
    inputs: PyTree,
    first: jax.Array,
    carry: PyTree,
    key: Key | None = None,
    train: bool = False,
) -> tuple[PyTree, PyTree, PyTree]:
    """Scan as `unroll` does; `keep` chooses of the carry before a step, outputs, carry after.

    Returns:
      What is kept `[T, ...]`, the carry after the last step, and the network's new state.
    """
    num_steps, num_envs = first.shape
    initial = _initial(network, variables, num_envs)
    keys = None if key is None else jax.random.split(key, num_steps)

    def step(
        loop: tuple[PyTree, PyTree], step_data: tuple[PyTree, jax.Array, jax.Array | None]
    ) -> tuple[tuple[PyTree, PyTree], PyTree]:
        carry, state = loop
        step_inputs, starts, step_key = step_data
        step_variables = Variables(params=variables.params, state=state)
        before = where_rows(starts, initial, carry)
        (outputs, after), state = network.apply(
            step_variables, (step_inputs, before), key=step_key, train=train
        )
        return (after, state), keep(before, outputs, after)

    (carry, state), kept = scan_batched(step, (carry, variables.state), (inputs, first, keys))
    return kept, carry, state


def _initial(network: Network, variables: Variables, num_envs: int) -> PyTree:
    if not network.recurrent:
        raise TriglotError(
            f"the {network.backend} network {network.name!r} is not recurrent: call its `apply` on "
            "a batch of all steps, or give initial_carry=FUNCTION to its adapter."
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
    return network.apply(variables, (obs, where_rows(first, initial, carry)))[0]
