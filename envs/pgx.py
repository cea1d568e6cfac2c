"""pgx's games: board games against an opponent, and single-player games such as MinAtar's.

Source: Koyamada et al. (2023), "Pgx: Hardware-Accelerated Parallel Game Simulators for
Reinforcement Learning", https://github.com/sotetsuk/pgx, version 2.6.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..core.environment import TimeStep
from ..core.errors import require, unknown
from ..core.specs import Box, Discrete
from . import adapting
from .adapting import Adapted, Adapter, check_options

Opponent: TypeAlias = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""Choose an action from the observation, the legal actions, bool `[num_actions]`, and a key."""

AGENT = 0  # the number of the agent's player
SMALLEST_IMAGE = 4  # smaller boards are vectors, since the default convolutions do not fit


def names() -> list[str]:
    """List the games that `make` takes."""
    return list(require("pgx", "pgx").available_envs())


def make(game: str, **options: Hashable) -> Adapted:
    """Make one of pgx's games.

    In games of several players the agent is one of them, at a random seat; a step takes its move
    and those of the others until it is its turn again. The reward is the agent's. Every game is
    terminated at its end; none is truncated. Illegal actions are masked.

    Args:
      game: such as `"connect_four"` or `"minatar-breakout"`.
      options: `opponent`, in games of several players: `random` (the default), or an `Opponent`, a
        hashable function, which `make_env` also takes by name, `my_file:play`.

    Raises:
      MissingExtra: if pgx is not installed.
      TriglotError: if the game or the opponent is unknown.
    """
    adapting.check_name("pgx", game, names(), {})
    return adapting.adapted("pgx", game, options, _build)


def random_opponent(obs: jax.Array, legal: jax.Array, key: jax.Array) -> jax.Array:
    """Play a legal action, all alike."""
    return jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf))


def _build(game: str, options: dict[str, Any]) -> Adapter:
    name, pgx = f"pgx:{game}", require("pgx", "pgx")
    env = pgx.make(game)
    several = env.num_players > 1
    check_options(name, options, ["opponent"] if several else [])
    opponent = options.get("opponent", "random")
    opponent = random_opponent if opponent == "random" else opponent
    if not callable(opponent):
        choices = ["random", "a function, such as my_file:play"]
        raise unknown(f"opponent of {name}", str(opponent), choices)

    def started(key: jax.Array) -> TimeStep:
        init_key, others_key = jax.random.split(key)
        state = env.init(init_key)
        step = observed(
            others_play(state.replace(rewards=jnp.zeros_like(state.rewards)), others_key)
        )
        return replace(step, reward=jnp.zeros((), jnp.float32))

    def step(state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        own_key, others_key = jax.random.split(key)
        return observed(others_play(env.step(state, action, own_key), others_key))

    def others_play(state: Any, key: jax.Array) -> Any:
        if not several:
            return state

        def waits(carry: Any) -> jax.Array:
            state, _ = carry
            return (state.current_player != AGENT) & ~state.terminated & ~state.truncated

        def move(carry: Any) -> Any:
            state, key = carry
            next_key, choice_key, step_key = jax.random.split(key, 3)
            action = opponent(floats(state.observation), state.legal_action_mask, choice_key)
            after = env.step(state, action, step_key)
            return adapting.strong(after.replace(rewards=state.rewards + after.rewards)), next_key

        return jax.lax.while_loop(waits, move, (adapting.strong(state), key))[0]

    def floats(obs: jax.Array) -> jax.Array:
        return obs.astype(jnp.float32).reshape(shape)

    def observed(state: Any) -> TimeStep:
        return TimeStep(
            state=state,
            obs=floats(env._observe(state, jnp.int32(AGENT)) if several else state.observation),
            reward=state.rewards[AGENT],
            terminated=state.terminated,
            truncated=state.truncated,
            action_mask=state.legal_action_mask,
        )

    state = jax.eval_shape(env.init, jax.random.key(0))
    shape = state.observation.shape
    if len(shape) == 3 and min(shape[:2]) < SMALLEST_IMAGE:
        shape = (math.prod(shape),)
    whole = {"low": 0.0, "high": 1.0, "whole": True} if state.observation.dtype == bool else {}
    draw, suffix = (_draw_minatar, ".gif") if game.startswith("minatar") else (_draw_svg, ".svg")
    obs_spec = Box(shape, "float32", **whole)
    actions = Discrete(state.legal_action_mask.shape[0])
    return Adapter(started, step, obs_spec, actions, draw, draw_suffix=suffix)


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
