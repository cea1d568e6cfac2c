"""Self-play: a copy of the policy in training plays the other players of a game.

An agent that searches needs no copy: it moves for both players, whose turn it is.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from ..agent import Agent
from ..environment import Environment, TwoPlayerGame
from ..errors import TriglotError
from ..rl.planning import model_in, moves_for_both, takes_turns
from ..types import AnyAgentState, PyTree
from ..wrappers.games import against, game_in
from .frozen import FrozenPolicy, check_plays, check_same_specs, num_masked
from .state import RunnerState
from .vectorize import VectorEnvironment

NUM_PLAYERS = 2  # of whom what one wins, the other loses


def copy_period(agent: Agent, env: Environment) -> int | None:
    """Count the updates between two copies of the policy; None if no copy of it plays."""
    game = game_in(env)
    return None if game is None or moves_for_both(agent, env) else game.copy_period


def check_self_play(agent: Agent, env: Environment) -> None:
    """Reject an agent that cannot play the others, where it or its copy should.

    Raises:
      TriglotError: as `check_plays`; or if the agent searches, and the game is not one of two
        players in which it can move for both.
    """
    game = game_in(env)
    kind = agent.name
    if agent.two_players and not takes_turns(env):
        raise TriglotError(
            f"this {kind} was built for two players who move in turn, which {env.name} is not with "
            "opponent=self: build the agent for this environment."
        )
    if game is None or game.copy_period is None:
        return
    if not moves_for_both(agent, env):
        check_plays(agent, game, "a copy of the policy")
        return
    if game.num_players != NUM_PLAYERS or not isinstance(game, TwoPlayerGame):
        raise TriglotError(
            f"{kind} plays itself in games of {NUM_PLAYERS} players, since it plans for both; "
            f"{game.name} has {game.num_players}: choose another opponent."
        )
    check_same_specs(agent, game, kind)


def in_training(agent: Agent, env: VectorEnvironment) -> VectorEnvironment:
    """Return the environments to train in: for an agent that moves for both, that game."""
    return replace(env, env=model_in(env.env)) if moves_for_both(agent, env.env) else env


def copied(agent: Agent, env: Environment, agent_state: AnyAgentState) -> PyTree:
    """Copy the arrays that the policy of one seed reads; None if no copy of it plays."""
    return None if copy_period(agent, env) is None else _policy(agent, env, agent_state).arrays


def renewed(
    agent: Agent, env: VectorEnvironment, runner_state: RunnerState
) -> tuple[VectorEnvironment, PyTree]:
    """Copy the policy if it is time, and let the copy play.

    Returns:
      The environments in which the copy plays, for use in this trace; and the copy.
    """
    period, opponent = copy_period(agent, env.env), runner_state.opponent
    if period is None:
        return in_training(agent, env), opponent
    policy = _policy(agent, env.env, runner_state.agent)
    is_due = runner_state.num_updates % period == 0
    opponent = jax.tree.map(partial(jnp.where, is_due), policy.arrays, opponent)
    return replace(env, env=against(env.env, partial(policy.play, opponent))), opponent


def _policy(agent: Agent, env: Environment, agent_state: AnyAgentState) -> FrozenPolicy:
    # Exploration by parameters gives each environment others, and a copy plays with one set.
    explore = not agent.explores_by_parameters
    return FrozenPolicy.of_state(agent, agent_state, num_masked(env), explore=explore)
