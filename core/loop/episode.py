"""One episode with everything that was seen on the way, for pictures."""

import functools
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ..agent import Agent, PolicyInput
from ..environment import Environment

PyTree: TypeAlias = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Episode:
    """What `record` saw.

    Attributes:
      states: the environment's states, `[max_steps + 1, ...]`, the start first; those after
        `length` mean nothing.
      length: int32 `[]`, steps.
      episode_return: float32 `[]`, undiscounted.
      finished: bool `[]`, the episode ended by itself within the steps allowed.
    """

    states: PyTree
    length: jax.Array
    episode_return: jax.Array
    finished: jax.Array

    def played(self) -> PyTree:
        """Cut the states to the episode, `[length + 1, ...]`; not under `jit`."""
        return jax.tree.map(lambda leaf: leaf[: int(self.length) + 1], self.states)


@functools.partial(jax.jit, static_argnames=("agent", "env", "max_steps", "explore"))
def play_episode(
    agent: Agent,
    env: Environment,
    agent_state: Any,
    key: jax.Array,
    *,
    max_steps: int = 1000,
    explore: bool = False,
) -> Episode:
    """Play one episode and keep the environment's states.

    Args:
      agent: the algorithm; hashed, as `env` is.
      env: a single environment.
      agent_state: the agent's state, of one seed.
      key: a typed key.
      max_steps: greatest number of steps.
      explore: act greedily (False) or as in training.

    Returns:
      The states and what the episode came to.
    """
    reset_key, loop_key = jax.random.split(key)
    start = jax.vmap(env.reset)(reset_key[None])
    states = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (max_steps + 1, *leaf.shape[1:])), start.state
    )
    loop = {
        "step": start,
        "carry": agent.initial_carry(agent_state, 1),
        "states": states,
        "return": jnp.zeros((), jnp.float32),
        "length": jnp.zeros((), jnp.int32),
    }

    def going_on(loop: dict) -> jax.Array:
        ended = loop["step"].terminated | loop["step"].truncated
        return ~ended[0] & (loop["length"] < max_steps)

    def advance(loop: dict) -> dict:
        now, length = loop["step"], loop["length"]
        act_key, env_key = jax.random.split(jax.random.fold_in(loop_key, length))
        inputs = PolicyInput(obs=now.obs, first=(length == 0)[None], action_mask=now.action_mask)
        output = agent.act(agent_state, loop["carry"], inputs, act_key, explore=explore)
        after = jax.vmap(env.step)(now.state, output.action, env_key[None])
        return {
            "step": after,
            "carry": output.carry,
            "states": jax.tree.map(
                lambda kept, leaf: kept.at[length + 1].set(leaf[0]), loop["states"], after.state
            ),
            "return": loop["return"] + after.reward[0],
            "length": length + 1,
        }

    last = jax.lax.while_loop(going_on, advance, loop)
    ended = last["step"].terminated | last["step"].truncated
    return Episode(
        states=last["states"],
        length=last["length"],
        episode_return=last["return"],
        finished=ended[0],
    )
