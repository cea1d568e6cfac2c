"""Games of several players: the agent is one of them, and the others are played for it."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from ...core.environment import Environment, Player, TimeStep
from ...core.errors import TriglotError, unknown
from ...core.hyper import check_count
from ...core.records import Values
from ...core.types import PyTree
from ...core.wrappers.base import Stateless
from ...core.wrappers.games import random_player
from . import AGENT, Adapted, Players, library_promotion, strong
from .options import check_options, check_values

OPTIONS = ("opponent", "opponent_sampled", "copy_period")
RANDOM, SELF = "random", "self"
CHOICES = [RANDOM, SELF, "a run's folder", "a function, such as my_file:play"]
COPY_PERIOD = 10  # updates


@dataclass(frozen=True)
class Against(Stateless):
    """A game as one of its players sees it, at a random seat; a step holds the others' moves.

    Attributes:
      env: the game, in which the caller moves for every player.
      player: moves for the others.
      copy_period: see `Game`.
    """

    env: Adapted
    player: Player = random_player
    copy_period: int | None = None

    @property
    def num_players(self) -> int:
        return _players(self.env).number

    def against(self, player: Player) -> "Against":
        return replace(self, player=player)

    def for_both(self) -> "Both":
        return Both(self.env)

    def reset(self, key: jax.Array) -> TimeStep:
        init_key, others_key = jax.random.split(key)
        start = self._others_play(self.env.reset(init_key), others_key)
        return replace(start, reward=jnp.zeros((), jnp.float32))

    def step(self, state: PyTree, action: jax.Array, key: jax.Array) -> TimeStep:
        own_key, others_key = jax.random.split(key)
        return self._others_play(self.env.step(state, action, own_key), others_key)

    def _others_play(self, now: TimeStep, key: jax.Array) -> TimeStep:
        """Play until it is the agent's turn or the game has ended; rewards are summed."""
        players = _players(self.env)

        def waits(carry: tuple[TimeStep, jax.Array]) -> jax.Array:
            now, _ = carry
            return (players.moving(now.state) != AGENT) & ~now.terminated & ~now.truncated

        def move(carry: tuple[TimeStep, jax.Array]) -> tuple[TimeStep, jax.Array]:
            now, key = carry
            next_key, choice_key, step_key = jax.random.split(key, 3)
            action = self.player(now.obs, now.action_mask, choice_key)
            after = self.env.step(now.state, action, step_key)
            return replace(after, reward=now.reward + after.reward), next_key

        last, _ = jax.lax.while_loop(waits, move, (strong(now), key))
        with library_promotion():
            return replace(last, obs=players.observe(last.state, AGENT))


@dataclass(frozen=True)
class Both(Stateless):
    """A zero-sum game of two players as the one who has the turn sees it; see `BothPlayers`."""

    env: Adapted

    @property
    def alternates(self) -> bool:
        return _players(self.env).alternates

    def moving(self, state: PyTree) -> jax.Array:
        with library_promotion():
            return _players(self.env).moving(state)

    def step(self, state: PyTree, action: jax.Array, key: jax.Array) -> TimeStep:
        after = self.env.step(state, action, key)
        return replace(
            after, reward=jnp.where(self.moving(state) == AGENT, after.reward, -after.reward)
        )


def _players(game: Adapted) -> Players:
    """Return the players of a game of several, such as `against` wraps."""
    assert game.adapter.players is not None
    return game.adapter.players


def against(game: Adapted, options: Values) -> Environment:
    """Let an opponent play the other players of a game; one of a single player stays as it is.

    Args:
      game: its players are all moved by the caller.
      options: of a game of several players. `opponent`: `random` (the default); `self`, the policy
        in training, of which a copy is made every `copy_period` updates (10) and samples its
        actions, while evaluations are against `random`; an agent that searches moves for both
        players instead, without a copy; or a hashable `Player`, which `make_env`
        also takes by name, `my_file:play`, or as the folder of a run, whose policy is greedy unless
        `opponent_sampled`.

    Raises:
      TriglotError: if there is no such opponent, or an option does not go with it.
    """
    check_options(game.name, options, OPTIONS if game.adapter.players else [])
    if game.adapter.players is None:
        return game
    settings: dict[str, Any] = {"opponent": RANDOM, **options}
    opponent = settings.pop("opponent")
    period = COPY_PERIOD if opponent == SELF else None
    if opponent == SELF and "copy_period" in settings:
        period = settings.pop("copy_period")
        check_count(f"copy_period of {game.name}", period)
    sampling = getattr(opponent, "sampling", None)  # of a run's policy
    if sampling is not None and "opponent_sampled" in settings:
        sampled = settings.pop("opponent_sampled")
        check_values(game.name, {"opponent_sampled": sampled}, {"opponent_sampled": True})
        opponent = sampling(sampled)
    for name in settings:
        needed = {"copy_period": "opponent=self", "opponent_sampled": "opponent=FOLDER, of a run"}
        raise TriglotError(f"{name} of {game.name} goes with {needed[name]}.")
    if opponent in (RANDOM, SELF):
        return Against(game, random_player, period)
    if not callable(opponent):
        if "/" in str(opponent):
            raise TriglotError(
                f"opponent={opponent} of {game.name}: there is no run directory at that path. Put "
                f"it back, or give the folder of a finished run of {game.name}, random or self."
            )
        raise unknown(f"opponent of {game.name}", str(opponent), CHOICES)
    player: Any = opponent
    return Against(game, player)
