"""Games inside of wrappers: find one, and replace the opponent."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from ..environment import Environment, Game, Player
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
