"""The policy of a run as an opponent in a game: `pgx:connect_four,opponent=runs/first`."""

import functools
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

import jax

from ..core.errors import TriglotError, prefixed
from ..core.loop.frozen import check_plays
from ..core.wrappers.games import game_in
from ..runs.acting import Acting
from ..runs.load import Run, run_of
from ..runs.registry.environments import make_env
from ..runs.storage.config import options_of_run
from ..runs.storage.records import recorded_progress, state_of

DONE = ("finished", "stopped")
# The runs that are being loaded, each as an opponent of the one before it.
_loading: ContextVar[tuple[Path, ...]] = ContextVar("_loading", default=())


@dataclass(frozen=True)
class RunPlayer:
    """The policy of the first seed of a run, which plays others' moves; a `Player`.

    Attributes:
      folder: the run directory, resolved.
      num_updates: of the run.
      sampled: whether it samples actions instead of taking the argmax.
    """

    folder: Path
    num_updates: int
    sampled: bool = False

    def sampling(self, sampled: bool) -> "RunPlayer":
        """Choose whether actions are sampled."""
        return replace(self, sampled=sampled)

    def __call__(self, obs: jax.Array, legal: jax.Array, key: jax.Array) -> jax.Array:
        acting = _acting(self)
        return acting.play(acting.arrays, obs, legal, key)


def player_of_run(folder: str, env: str) -> RunPlayer:
    """Load the policy of a run as an opponent.

    Args:
      folder: the run directory.
      env: the game, such as `pgx:connect_four`.

    Raises:
      TriglotError: if the run is not finished, is of another game or names code that is not
        trusted, or its policy needs more than an observation.
    """
    path, what = Path(folder), f"opponent={folder}"
    if path.resolve() in _loading.get():
        raise TriglotError(
            f"{what} of {env} was trained against itself, or against a run that was trained "
            "against it: name a run whose opponents are others."
        )
    with prefixed(f"{what} of {env}: "):
        options = options_of_run(path, advice=f"run `triglot evaluate {folder} --trust`")
    name = options.env.partition(",")[0]
    if name != env:
        raise TriglotError(f"{what} of {env} was trained in {name}: give a run of {env}.")
    if (state := state_of(path)) not in DONE:
        raise TriglotError(
            f"{what} of {env} is {state}: an opponent is a run that has finished; `triglot resume "
            f"{folder}` continues it."
        )
    player = RunPlayer(path.resolve(), recorded_progress(path))
    game = game_in(make_env(env))
    if game is None:
        raise TriglotError(f"{env} is not a game of several players: leave {what} out.")
    token = _loading.set((*_loading.get(), player.folder))
    try:
        check_plays(_run(player.folder, player.num_updates).agent, game, what)
    finally:
        _loading.reset(token)
    return player


@functools.lru_cache(8)
def _run(folder: Path, num_updates: int) -> Run:
    """Read a run again only if it has been continued."""
    return run_of(folder)


@functools.lru_cache(8)
def _acting(player: RunPlayer) -> Acting:
    with jax.ensure_compile_time_eval():  # the first call may be traced
        run = _run(player.folder, player.num_updates)
        return Acting.of(run, 0, explore=player.sampled)
