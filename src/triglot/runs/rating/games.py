"""Games between two policies, many in one compiled program."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ...core.environment import Game, TimeStep
from ...core.types import Obs, PyTree
from ...core.wrappers.games import random_player

Act: TypeAlias = Callable[[PyTree, Obs, Any, jax.Array], jax.Array]
"""Choose an action from a policy's arrays, an observation, its action mask and a key."""


def act_randomly(arrays: PyTree, obs: Obs, mask: jax.Array, key: jax.Array) -> jax.Array:
    """Choose an allowed action, all alike."""
    return random_player(obs, mask, key)


@functools.partial(jax.jit, static_argnames=("game", "one", "other", "num_games"))
def play_games(
    game: Game,
    one: Act,
    other: Act,
    arrays: PyTree,
    others: PyTree,
    key: jax.Array,
    *,
    num_games: int,
) -> jax.Array:
    """Play games between two policies, each at a random seat.

    Args:
      game: of two players; hashed.
      one, other: the policies; hashed.
      arrays, others: of the policies.
      key: a typed key.
      num_games: `G`.

    Returns:
      int32 `[3]`, the games that the first won, drew and lost.
    """
    env = game.against(functools.partial(other, others))

    def running(loop: tuple[TimeStep, jax.Array, jax.Array]) -> jax.Array:
        now, _, _ = loop
        return ~(now.terminated | now.truncated)

    def play(key: jax.Array) -> jax.Array:
        reset_key, loop_key = jax.random.split(key)

        def move(
            loop: tuple[TimeStep, jax.Array, jax.Array],
        ) -> tuple[TimeStep, jax.Array, jax.Array]:
            now, score, time = loop
            act_key, step_key = jax.random.split(jax.random.fold_in(loop_key, time))
            action = one(arrays, now.obs, now.action_mask, act_key)
            after = env.step(now.state, action, step_key)
            return after, score + after.reward, time + 1

        start = env.reset(reset_key), jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
        return jax.lax.while_loop(running, move, start)[1]

    scores = jax.vmap(play)(jax.random.split(key, num_games))
    return jnp.stack([(scores > 0).sum(), (scores == 0).sum(), (scores < 0).sum()])
