"""pgx's games: board games against an opponent, and single-player games such as MinAtar's.

Source: Koyamada et al. (2023), "Pgx: Hardware-Accelerated Parallel Game Simulators for
Reinforcement Learning", https://github.com/sotetsuk/pgx, version 2.6.
"""

import math
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.environment import Environment, TimeStep
from ..core.errors import require
from ..core.specs import Box, Discrete
from ..core.types import EnvState, abstract_key
from . import adapting
from .adapting import AGENT, Adapter, Players
from .adapting.games import against

# Games of two players who see the whole board and always move in turn.
IN_TURN = (
    "animal_shogi",
    "chess",
    "connect_four",
    "gardner_chess",
    "go_9x9",
    "go_19x19",
    "hex",
    "othello",
    "shogi",
    "tic_tac_toe",
)
SMALLEST_IMAGE = 4  # smaller boards are vectors, since the default convolutions do not fit


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
      options: in games of several players, who plays the others, see `adapting.games.against`.

    Raises:
      MissingExtra: if pgx is not installed.
      TriglotError: if the game or the opponent is unknown.
    """
    adapting.check_name("pgx", game, names(), {})
    return against(adapting.adapted("pgx", game, {}, _build), options)


def _build(game: str, options: dict[str, Any]) -> Adapter:
    """Make the game; observations are of the player who moves, rewards those of `AGENT`."""
    pgx = require("pgx", "pgx")
    env = pgx.make(game)

    def reset(key: jax.Array) -> TimeStep:
        return observed(env.init(key))

    def step(state: EnvState, action: jax.Array, key: jax.Array) -> TimeStep:
        return observed(env.step(state, action, key))

    def observed(state: EnvState) -> TimeStep:
        return TimeStep(
            state=state,
            obs=_floats(state.observation),
            reward=state.rewards[AGENT],
            terminated=state.terminated,
            truncated=state.truncated,
            action_mask=state.legal_action_mask,
        )

    def observe(state: EnvState, player: int) -> jax.Array:
        return _floats(env._observe(state, jnp.int32(player)))

    def draw(states: list[EnvState], path: str) -> None:
        pgx.save_svg_animation(states, path, frame_duration_seconds=0.5)

    state = jax.eval_shape(env.init, abstract_key())
    whole = {"low": 0.0, "high": 1.0, "whole": True} if state.observation.dtype == bool else {}
    obs_spec = Box(_shape(state.observation.shape), "float32", **whole)
    is_minatar, several = game.startswith("minatar"), env.num_players > 1
    players = Players(env.num_players, lambda state: state.current_player, observe, game in IN_TURN)
    return Adapter(
        reset,
        step,
        obs_spec,
        Discrete(state.legal_action_mask.shape[0]),
        draw=adapting.gif(_minatar_image) if is_minatar else draw,
        draw_suffix=".gif" if is_minatar else ".svg",
        players=players if several else None,
    )


def _floats(obs: jax.Array) -> jax.Array:
    return obs.astype(jnp.float32).reshape(_shape(obs.shape))


def _shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    is_small = len(shape) == 3 and min(shape[:2]) < SMALLEST_IMAGE
    return (math.prod(shape),) if is_small else shape


def _minatar_image(state: EnvState) -> np.ndarray:
    """Give each kind of object of the observation `[10, 10, C]` its colour."""
    from matplotlib import colormaps

    obs = np.asarray(state.observation)
    colours = (colormaps["tab10"](np.arange(obs.shape[-1]))[:, :3] * 255).astype(np.uint8)
    kinds = np.where(obs.any(axis=-1), obs.argmax(axis=-1), -1)
    image = np.where(kinds[..., None] >= 0, colours[kinds], np.uint8(0))
    return image.repeat(24, axis=0).repeat(24, axis=1)
