"""A trained policy in host environments: whole episodes, and films of them."""

from collections.abc import Generator
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..agent import Agent
from ..host_environment import Filmed, HostEnvironment, HostStep, HostVector
from ..loop.episode import Episode
from .actor import actor
from .vector import HostRunner


class Player:
    """A policy in `N` host environments, which are open until `close`."""

    def __init__(
        self,
        agent: Agent,
        env: HostEnvironment,
        agent_state: Any,
        key: jax.Array,
        num_envs: int,
        *,
        explore: bool,
        vector: HostVector | None = None,
    ) -> None:
        """Open the environments, unless `vector` is these, and begin their episodes.

        Raises:
          TriglotError: if that fails.
        """
        impl = jax.random.key_impl(key)
        one_seed = jax.tree.map(lambda leaf: leaf[None], agent_state)
        acting = actor(agent, one_seed, env.obs_spec, num_envs, explore=explore, impl=impl)
        self._act, self._read = acting.call, acting.of(one_seed)
        carry = agent.initial_carry(agent_state, num_envs)
        self._memory = jax.tree.map(lambda leaf: leaf[None], carry)
        reset_key, self._loop_key = jax.random.split(key)
        seeds = [int(jax.random.bits(reset_key))]
        self._runner = HostRunner(env, num_envs, seeds, [vector] if vector else [])

    def step(self) -> HostStep:
        """Take one step in each, `[N, ...]`.

        Raises:
          TriglotError: if an environment fails.
        """
        runner = self._runner
        key = jax.random.key_data(jax.random.fold_in(self._loop_key, runner.num_steps))
        seen = (self._read, self._memory, key[None], runner.obs, runner.first)
        action, self._memory, _ = self._act(*seen)
        step = runner.step(np.asarray(action))
        return HostStep(*(jax.tree.map(lambda leaf: leaf[0], part) for part in step))

    def close(self) -> None:
        """Let go of the environments."""
        self._runner.close()


def film(
    agent: Agent,
    env: Filmed,
    agent_state: Any,
    key: jax.Array,
    *,
    max_steps: int = 1000,
    explore: bool = False,
) -> Generator[np.ndarray, None, Episode]:
    """Play one episode of a host environment, and give a frame of each state, the start first.

    Args:
      agent: the algorithm.
      env: a single environment that can be filmed.
      agent_state: the agent's state, of one seed.
      key: a typed key.
      max_steps: greatest number of steps.
      explore: act greedily (False) or as in training.

    Yields:
      uint8 `[height, width, 3]`.

    Returns:
      What the episode came to; without states.

    Raises:
      TriglotError: if the environment fails or cannot draw itself.
    """
    vector = env.open_filmed()
    total, length, finished = 0.0, 0, False
    player = Player(agent, env, agent_state, key, 1, explore=explore, vector=vector)
    with closing(player):
        yield vector.frame()
        while not finished and length < max_steps:
            step = player.step()
            total, length = total + float(step.reward[0]), length + 1
            finished = bool(step.terminated[0] | step.truncated[0])
            yield vector.frame()
    return Episode(
        states=(),
        length=jnp.int32(length),
        episode_return=jnp.float32(total),
        finished=jnp.bool_(finished),
    )
