"""Play whole episodes in one compiled program: many for returns, or one that keeps its states."""

import functools
from typing import TypedDict

import jax
import jax.numpy as jnp

from ..agent import Agent, PolicyInput
from ..environment import Environment
from ..types import AnyAgentState, EnvState, PyTree, pytree_dataclass


class PlayOptions(TypedDict):
    """How whole episodes are played, see `core.evaluate.evaluate`."""

    num_episodes: int
    max_steps: int
    explore: bool


@pytree_dataclass
class Episodes:
    """The results of `E` evaluation episodes.

    Attributes:
      returns: float32 `[E]`, undiscounted.
      lengths: int32 `[E]`, in steps.
      finished: bool `[E]`, False where the episode was cut at `max_steps`.
    """

    returns: jax.Array
    lengths: jax.Array
    finished: jax.Array


@pytree_dataclass
class Episode:
    """One episode with the environment's states.

    Attributes:
      states: `[max_steps + 1, ...]`, beginning with the initial state; entries after `length` are
        undefined.
      length: int32 `[]`, in steps.
      episode_return: float32 `[]`, undiscounted.
      finished: bool `[]`, False where the episode was cut at `max_steps`.
    """

    states: EnvState
    length: jax.Array
    episode_return: jax.Array
    finished: jax.Array

    def played(self) -> PyTree:
        """Cut the states to the episode, `[length + 1, ...]`; does not work under `jit`."""
        return jax.tree.map(lambda leaf: leaf[: int(self.length) + 1], self.states)


@functools.partial(
    jax.jit, static_argnames=("agent", "env", "num_episodes", "max_steps", "explore")
)
def play_episodes(
    agent: Agent,
    env: Environment,
    agent_state: AnyAgentState,
    key: jax.Array,
    *,
    num_episodes: int,
    max_steps: int,
    explore: bool,
) -> Episodes:
    """Play `num_episodes` episodes in parallel; see `core.evaluate.evaluate`."""
    reset_key, loop_key = jax.random.split(key)
    start = jax.vmap(env.reset)(jax.random.split(reset_key, num_episodes))
    first = jnp.ones((num_episodes,), bool)
    inputs = PolicyInput.of(agent, start, first)
    loop = {
        "state": start.state,
        "inputs": inputs,
        "carry": agent.initial_carry(agent_state, num_episodes),
        "returns": jnp.zeros((num_episodes,), jnp.float32),
        "lengths": jnp.zeros((num_episodes,), jnp.int32),
        "running": jnp.ones((num_episodes,), bool),
        "time": jnp.zeros((), jnp.int32),
    }

    def any_running(loop: dict) -> jax.Array:
        return loop["running"].any() & (loop["time"] < max_steps)

    def step(loop: dict) -> dict:
        act_key, env_key = jax.random.split(jax.random.fold_in(loop_key, loop["time"]))
        output = agent.act(agent_state, loop["carry"], loop["inputs"], act_key, explore=explore)
        env_keys = jax.random.split(env_key, num_episodes)
        stepped = jax.vmap(env.step)(loop["state"], output.action, env_keys)
        running, first = loop["running"], jnp.zeros((num_episodes,), bool)
        return {
            "state": stepped.state,
            "inputs": PolicyInput.of(agent, stepped, first),
            "carry": output.carry,
            # `where`, because an environment stepped past its end may return NaN.
            "returns": loop["returns"] + jnp.where(running, stepped.reward, 0.0),
            "lengths": loop["lengths"] + running.astype(jnp.int32),
            "running": running & ~(stepped.terminated | stepped.truncated),
            "time": loop["time"] + 1,
        }

    last = jax.lax.while_loop(any_running, step, loop)
    return Episodes(returns=last["returns"], lengths=last["lengths"], finished=~last["running"])


@functools.partial(jax.jit, static_argnames=("agent", "env", "max_steps", "explore"))
def play_episode(
    agent: Agent,
    env: Environment,
    agent_state: AnyAgentState,
    key: jax.Array,
    *,
    max_steps: int = 1000,
    explore: bool = False,
) -> Episode:
    """Play one episode and keep the environment's states.

    Args:
      agent: the algorithm; hashed, as `env` is.
      env: a single environment.
      agent_state: the agent state of one seed.
      key: a typed key.
      max_steps: maximum number of steps.
      explore: sample actions as in training instead of acting greedily.

    Returns:
      The states, the return and the length.
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

    def is_running(loop: dict) -> jax.Array:
        ended = loop["step"].terminated | loop["step"].truncated
        return ~ended[0] & (loop["length"] < max_steps)

    def advance(loop: dict) -> dict:
        now, length = loop["step"], loop["length"]
        act_key, env_key = jax.random.split(jax.random.fold_in(loop_key, length))
        inputs = PolicyInput.of(agent, now, (length == 0)[None])
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

    last = jax.lax.while_loop(is_running, advance, loop)
    ended = last["step"].terminated | last["step"].truncated
    states, length, total = last["states"], last["length"], last["return"]
    return Episode(states=states, length=length, episode_return=total, finished=ended[0])
