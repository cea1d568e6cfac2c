"""Whole episodes, in one compiled program where the environment can be part of one."""

import functools
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .agent import Agent, PolicyInput
from .environment import Environment
from .host.player import Player
from .host_environment import HostEnvironment


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Episodes:
    """What `evaluate` found, for each of `E` episodes.

    Attributes:
      returns: float32 `[E]`, undiscounted.
      lengths: int32 `[E]`, steps.
      finished: bool `[E]`, the episode ended by itself within the steps allowed.
    """

    returns: jax.Array
    lengths: jax.Array
    finished: jax.Array


def evaluate(
    agent: Agent,
    env: Environment | HostEnvironment,
    agent_state: Any,
    key: jax.Array,
    *,
    num_episodes: int = 64,
    max_steps: int = 100_000,
    explore: bool = False,
) -> Episodes:
    """Play whole episodes side by side and stop when the last has ended.

    Args:
      agent: the algorithm; hashed, as `env` is, so that a second call compiles nothing.
      env: a single environment, or a host environment, which is no matter for `vmap`.
      agent_state: the agent's state (of one seed; use `vmap` for several).
      key: a typed key.
      num_episodes: `E`.
      max_steps: greatest number of steps of one episode.
      explore: act greedily (False) or as in training.

    Returns:
      The return and length of each episode.
    """
    how: Any = {"num_episodes": num_episodes, "max_steps": max_steps, "explore": explore}
    if isinstance(env, HostEnvironment):
        return _play_on_host(agent, env, agent_state, key, **how)
    return _play(agent, env, agent_state, key, **how)


def _play_on_host(
    agent: Agent,
    env: HostEnvironment,
    agent_state: Any,
    key: jax.Array,
    *,
    num_episodes: int,
    max_steps: int,
    explore: bool,
) -> Episodes:
    returns, lengths = np.zeros(num_episodes, np.float32), np.zeros(num_episodes, np.int32)
    running, num_steps = np.ones(num_episodes, bool), 0
    with closing(Player(agent, env, agent_state, key, num_episodes, explore=explore)) as player:
        while running.any() and num_steps < max_steps:
            step, num_steps = player.step(), num_steps + 1
            returns += np.where(running, step.reward, np.float32(0.0))
            lengths += running
            running &= ~(step.terminated | step.truncated)
    return Episodes(
        returns=jnp.asarray(returns), lengths=jnp.asarray(lengths), finished=jnp.asarray(~running)
    )


@functools.partial(
    jax.jit, static_argnames=("agent", "env", "num_episodes", "max_steps", "explore")
)
def _play(
    agent: Agent,
    env: Environment,
    agent_state: Any,
    key: jax.Array,
    *,
    num_episodes: int,
    max_steps: int,
    explore: bool,
) -> Episodes:
    reset_key, loop_key = jax.random.split(key)
    start = jax.vmap(env.reset)(jax.random.split(reset_key, num_episodes))
    inputs = PolicyInput(
        obs=start.obs, first=jnp.ones((num_episodes,), bool), action_mask=start.action_mask
    )
    loop = {
        "state": start.state,
        "inputs": inputs,
        "carry": agent.initial_carry(agent_state, num_episodes),
        "returns": jnp.zeros((num_episodes,), jnp.float32),
        "lengths": jnp.zeros((num_episodes,), jnp.int32),
        "running": jnp.ones((num_episodes,), bool),
        "time": jnp.zeros((), jnp.int32),
    }

    def going_on(loop: dict) -> jax.Array:
        return loop["running"].any() & (loop["time"] < max_steps)

    def step(loop: dict) -> dict:
        act_key, env_key = jax.random.split(jax.random.fold_in(loop_key, loop["time"]))
        output = agent.act(agent_state, loop["carry"], loop["inputs"], act_key, explore=explore)
        env_keys = jax.random.split(env_key, num_episodes)
        stepped = jax.vmap(env.step)(loop["state"], output.action, env_keys)
        running = loop["running"]
        return {
            "state": stepped.state,
            "inputs": PolicyInput(
                obs=stepped.obs,
                first=jnp.zeros((num_episodes,), bool),
                action_mask=stepped.action_mask,
            ),
            "carry": output.carry,
            # `where`, since an environment stepped past its end may return anything, NaN included.
            "returns": loop["returns"] + jnp.where(running, stepped.reward, 0.0),
            "lengths": loop["lengths"] + running.astype(jnp.int32),
            "running": running & ~(stepped.terminated | stepped.truncated),
            "time": loop["time"] + 1,
        }

    last = jax.lax.while_loop(going_on, step, loop)
    return Episodes(returns=last["returns"], lengths=last["lengths"], finished=~last["running"])
