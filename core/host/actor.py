"""An agent's `act`, compiled for being called once per step from Python."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ..agent import Agent, PolicyInput
from ..loop.trainer import vmap_seeds
from ..specs import Spec, zeros
from ..tracing.jaxprs import leaves_read

PyTree: TypeAlias = Any


class Actor(NamedTuple):
    """A compiled `act`, which is given no more of the agent's state than it reads.

    Attributes:
      read: places of what it reads among the state's leaves.
      call: `call(state_read, carry, key_data, obs, first) -> (action, carry, extras)`, each
        `[S, ...]`; jitted.
    """

    read: tuple[int, ...]
    call: Callable[..., tuple[jax.Array, PyTree, dict[str, jax.Array]]]

    def of(self, agent_state: PyTree) -> list[jax.Array]:
        """Take from a state what `call` reads."""
        leaves = jax.tree.leaves(agent_state)
        return [leaves[place] for place in self.read]


def actor(
    agent: Agent, agent_state: PyTree, obs_spec: Spec, num_envs: int, *, explore: bool, impl: Any
) -> Actor:
    """Build it; equal ones are built and compiled once.

    Args:
      agent: the algorithm.
      agent_state: `[S, ...]`, for its shapes.
      obs_spec: one observation.
      num_envs: `N`.
      explore: act as in training, or greedily.
      impl: of the keys, see `jax.random.key_impl`.
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

    def call(seen: tuple) -> tuple:
        given, carry, key_data, obs, first = seen
        leaves = [jnp.zeros(shape.shape, shape.dtype) for shape in shapes]
        for place, leaf in zip(read, given, strict=True):
            leaves[place] = leaf
        key = jax.random.wrap_key_data(key_data, impl=impl)
        return act(treedef.unflatten(leaves), carry, key, obs, first)

    return Actor(read, jax.jit(lambda *seen: vmap_seeds(call, seen)))
