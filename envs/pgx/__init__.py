"""pgx's games: board games against an opponent, and single-player games such as MinAtar's.

Source: Koyamada et al. (2023), "Pgx: Hardware-Accelerated Parallel Game Simulators for
Reinforcement Learning", https://github.com/sotetsuk/pgx, version 2.6.
"""

from collections.abc import Hashable

from ...core.environment import Environment
from ...core.errors import require
from .. import adapting
from . import opponents
from .game import build, library_game


def names() -> list[str]:
    """List the games that `make` takes."""
    return list(require("pgx", "pgx").available_envs())


def make(game: str, **options: Hashable) -> Environment:
    """Make one of pgx's games.

    In games of several players the agent is one of them, at a random seat; a step takes its move
    and those of the others until it is its turn again. The reward is the agent's. Every game is
    terminated at its end; none is truncated. Illegal actions are masked.

    Args:
      game: such as `"connect_four"` or `"minatar-breakout"`.
      options: in games of several players, who plays the others, see `opponents.against`.

    Raises:
      MissingExtra: if pgx is not installed.
      TriglotError: if the game or the opponent is unknown.
    """
    adapting.check_name("pgx", game, names(), {})
    several = library_game(game).num_players > 1
    adapting.check_options(f"pgx:{game}", options, opponents.OPTIONS if several else [])
    env = adapting.adapted("pgx", game, {}, build)
    return opponents.against(env, options) if several else env
