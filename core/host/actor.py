"""An agent's `act`, compiled to be called once per step from Python."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from ..agent import Agent, PolicyInput
from ..specs import Spec, zeros
from ..tracing.hoist import vmap_seeds
from ..tracing.jaxprs import leaves_read, with_leaves
from ..types import PyTree


class Actor(NamedTuple):
    """A compiled `act` whose arguments are only the leaves of the agent state that it reads.

    Attributes:
      read: indices of these leaves among the state's leaves.
      call: `call(state_read, carry, key_data, obs, first) -> (action, carry, extras)`, each
        `[S, ...]`; jitted.
    """

    read: tuple[int, ...]
    call: Callable[..., tuple[jax.Array, PyTree, dict[str, jax.Array]]]

    def of(self, agent_state: PyTree) -> list[jax.Array]:
        """Select the leaves that `call` reads."""
        leaves = jax.tree.leaves(agent_state)
        return [leaves[index] for index in self.read]


def actor(
    agent: Agent, agent_state: PyTree, obs_spec: Spec, num_envs: int, *, explore: bool, impl: Any
) -> Actor:
    """Build an actor; the result is cached, so equal arguments compile once.

    Args:
      agent: the algorithm.
      agent_state: `[S, ...]`, read for its shapes only.
      obs_spec: the spec of one observation.
      num_envs: `N`.
      explore: sample actions as in training instead of acting greedily.
      impl: the keys' implementation, see `jax.random.key_impl`.
    """
    one_seed = jax.eval_shape(lambda: jax.tree.map(lambda leaf: leaf[0], agent_state))
    leaves, treedef = jax.tree.flatten(one_seed)
    return _actor(agent, tuple(leaves), treedef, obs_spec, num_envs, explore, impl)


@functools.lru_cache(maxsize=64)
def _actor(
    agent: Agent,
    shapes: tuple[jax.ShapeDtypeStruct, ...],
    treedef: Any,
    obs_spec: Spec,
    num_envs: int,
    explore: bool,
    impl: Any,
) -> Actor:
    def act(state: PyTree, carry: PyTree, key: jax.Array, obs: PyTree, first: jax.Array) -> tuple:
        inputs = PolicyInput(obs=obs, first=first, action_mask=None)
        output = agent.act(state, carry, inputs, key, explore=explore)
        return output.action, output.carry, output.extras

    state = treedef.unflatten(shapes)
    carry = jax.eval_shape(lambda state: agent.initial_carry(state, num_envs), state)
    key = jax.eval_shape(lambda: jax.random.key(0, impl=impl))
    obs = jax.eval_shape(lambda: zeros(obs_spec, num_envs))
    first = jax.ShapeDtypeStruct((num_envs,), bool)
    read = leaves_read(act, state, carry, key, obs, first)

    def call(inputs: tuple) -> tuple:
        selected, carry, key_data, obs, first = inputs
        key = jax.random.wrap_key_data(key_data, impl=impl)
        return act(with_leaves(treedef, shapes, read, selected), carry, key, obs, first)

    return Actor(read, jax.jit(lambda *inputs: vmap_seeds(call, inputs)))
