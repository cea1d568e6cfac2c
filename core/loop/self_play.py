"""Self-play: a copy of the policy in training plays the other players of a game."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ..agent import Agent
from ..environment import Environment
from ..types import PyTree
from ..wrappers.games import against, game_in
from .frozen import FrozenPolicy, check_plays, num_masked
from .state import RunnerState
from .vectorize import VectorEnvironment


def copy_period(env: Environment) -> int | None:
    """Count the updates between two copies of the policy; None if no copy of it plays."""
    game = game_in(env)
    return None if game is None else game.copy_period


def check_self_play(agent: Agent, env: Environment) -> None:
    """Reject an agent whose copy cannot play the others, where it should.

    Raises:
      TriglotError: as `check_plays`.
    """
    game = game_in(env)
    if game is not None and game.copy_period is not None:
        check_plays(agent, game, "a copy of the policy")


def copied(agent: Agent, env: Environment, agent_state: Any) -> PyTree:
    """Copy the arrays that the policy of one seed reads; None if no copy of it plays."""
    return None if copy_period(env) is None else _policy(agent, env, agent_state).arrays


def renewed(
    agent: Agent, env: VectorEnvironment, runner_state: RunnerState
) -> tuple[VectorEnvironment, PyTree]:
    """Copy the policy if it is time, and let the copy play.

    Returns:
      The environments in which the copy plays, for use in this trace; and the copy.
    """
    period, opponent = copy_period(env.env), runner_state.opponent
    if period is None:
        return env, opponent
    policy = _policy(agent, env.env, runner_state.agent)
    is_due = runner_state.num_updates % period == 0
    opponent = jax.tree.map(partial(jnp.where, is_due), policy.arrays, opponent)
    return replace(env, env=against(env.env, partial(policy.play, opponent))), opponent


def _policy(agent: Agent, env: Environment, agent_state: Any) -> FrozenPolicy:
    # Exploration by parameters gives each environment others, and a copy plays with one set.
    explore = not agent.explores_by_parameters
    return FrozenPolicy.of_state(agent, agent_state, num_masked(env), explore=explore)
