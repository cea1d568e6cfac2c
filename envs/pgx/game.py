"""A game of pgx in which the caller moves for every player."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.environment import TimeStep
from ...core.errors import require
from ...core.specs import Box, Discrete
from .. import adapting
from ..adapting import Adapter

AGENT = 0  # the number of the agent's player
SMALLEST_IMAGE = 4  # smaller boards are vectors, since the default convolutions do not fit


@functools.cache
def library_game(game: str) -> Any:
    """Make pgx's own object of a game."""
    with adapting.construction():
        return require("pgx", "pgx").make(game)


def observe(game: str, state: Any, player: int) -> jax.Array:
    """Observe a state as one of the players, in the shape and dtype of the spec."""
    return _floats(library_game(game)._observe(state, jnp.int32(player)))


def build(game: str, options: dict[str, Any]) -> Adapter:
    """Make the game; observations are of the player who moves, rewards those of `AGENT`."""
    env = library_game(game)

    def reset(key: jax.Array) -> TimeStep:
        return observed(env.init(key))

    def step(state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        return observed(env.step(state, action, key))

    def observed(state: Any) -> TimeStep:
        return TimeStep(
            state=state,
            obs=_floats(state.observation),
            reward=state.rewards[AGENT],
            terminated=state.terminated,
            truncated=state.truncated,
            action_mask=state.legal_action_mask,
        )

    state = jax.eval_shape(env.init, jax.random.key(0))
    whole = {"low": 0.0, "high": 1.0, "whole": True} if state.observation.dtype == bool else {}
    obs_spec = Box(_shape(state.observation.shape), "float32", **whole)
    draw, suffix = (_draw_minatar, ".gif") if game.startswith("minatar") else (_draw_svg, ".svg")
    actions = Discrete(state.legal_action_mask.shape[0])
    return Adapter(reset, step, obs_spec, actions, draw, draw_suffix=suffix)


def _floats(obs: jax.Array) -> jax.Array:
    return obs.astype(jnp.float32).reshape(_shape(obs.shape))


def _shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    is_small = len(shape) == 3 and min(shape[:2]) < SMALLEST_IMAGE
    return (math.prod(shape),) if is_small else shape


def _draw_svg(states: list[Any], path: str) -> None:
    require("pgx", "pgx").save_svg_animation(states, path, frame_duration_seconds=0.5)


def _draw_minatar(states: list[Any], path: str) -> None:
    adapting.gif(_minatar_image)(states, path)


def _minatar_image(state: Any) -> np.ndarray:
    """Give each kind of object of the observation `[10, 10, C]` its colour."""
    from matplotlib import colormaps

    obs = np.asarray(state.observation)
    colours = (colormaps["tab10"](np.arange(obs.shape[-1]))[:, :3] * 255).astype(np.uint8)
    kinds = np.where(obs.any(axis=-1), obs.argmax(axis=-1), -1)
    image = np.where(kinds[..., None] >= 0, colours[kinds], np.uint8(0))
    return image.repeat(24, axis=0).repeat(24, axis=1)
