"""Evaluate an agent on whole episodes."""

import jax

from .agent import Agent
from .arguments import check_state
from .environment import Environment
from .host_environment import HostEnvironment
from .hyper import check_count
from .loop.episode import Episodes
from .trainers import make_trainer
from .types import AnyAgentState, as_key


def evaluate(
    agent: Agent,
    env: Environment | HostEnvironment,
    agent_state: AnyAgentState,
    key: jax.Array,
    *,
    num_episodes: int = 64,
    max_steps: int = 100_000,
    explore: bool = False,
) -> Episodes:
    """Play whole episodes in parallel until the last one has ended.

    Args:
      agent: the algorithm; it is hashed, as `env` is, so a second call does not compile.
      env: a single environment. A host environment does not work under `vmap`.
      agent_state: the agent state of one seed; `vmap` over several.
      key: a typed key.
      num_episodes: `E`.
      max_steps: maximum number of steps per episode.
      explore: sample actions as in training instead of acting greedily.

    Returns:
      The return and length of each episode, `[E]`.

    Raises:
      TriglotError: if an argument is not what it should be, the agent was built for other
        observations or actions, or the state is another agent's or that of several seeds.
    """
    check_count("num_episodes", num_episodes)
    check_count("max_steps", max_steps)
    key, trainer = as_key(key), make_trainer(agent, env)
    check_state(agent, agent_state)
    return trainer.evaluate(
        agent_state, key, num_episodes=num_episodes, max_steps=max_steps, explore=explore
    )
