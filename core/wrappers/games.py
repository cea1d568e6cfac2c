"""Games inside of wrappers: find one, replace the opponent, or let the caller move for both."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from ..environment import BothPlayers, Environment, Game, InTurn, Player, TwoPlayerGame
from ..types import PyTree
from .base import Wrapper


def random_player(obs: PyTree, legal: jax.Array, key: jax.Array) -> jax.Array:
    """Play a legal action, all alike."""
    return jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf))


def game_in(env: Environment) -> Game | None:
    """Take a game out of its wrappers; None if there is none."""
    while isinstance(env, Wrapper) and not isinstance(env, Game):
        env = env.env
    return env if isinstance(env, Game) else None


def against(env: Environment, player: Player) -> Environment:
    """Let `player` play the others in the game inside of `env`; see `Game`."""
    if isinstance(env, Game):
        return env.against(player)
    if not isinstance(env, Wrapper):
        return env
    return replace(env, env=against(env.env, player))


def for_both(env: Environment) -> Environment:
    """Let the caller move for both players of the game inside of `env`; see `TwoPlayerGame`."""
    if isinstance(env, TwoPlayerGame):
        return env.for_both()
    if not isinstance(env, Wrapper):
        return env
    return replace(env, env=for_both(env.env))


def alternates(env: Environment) -> bool:
    """Return whether the caller moves for two players in turn; see `InTurn`."""
    while isinstance(env, Wrapper) and not isinstance(env, BothPlayers):
        env = env.env
    return isinstance(env, InTurn) and env.alternates


def moving(env: Environment, states: PyTree) -> jax.Array | None:
    """Return who moves in states `[N, ...]`; None if the caller moves for one player only."""
    while not isinstance(env, BothPlayers):
        if not isinstance(env, Wrapper):
            return None
        env, states = env.env, env.inner(states)
    return jax.vmap(env.moving)(states)
