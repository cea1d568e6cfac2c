"""`triglot render`: episodes of a run's agent as a picture that moves."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from ...core.environment import Drawn, Environment, TimeLimit
from ...core.errors import TriglotError, writing
from ...core.host.player import film
from ...core.host_environment import Filmed, HostEnvironment
from ...core.loop.episode import Episode, play_episode
from ...envs.gif import write_gif
from ..statistics import format_return
from .plan import Plan, check_numbers, prepare
from .train import restore

if TYPE_CHECKING:
    from ..options import RenderCommand, TrainOptions

HOW_TO_DRAW = (
    "give it `draw_suffix = '.gif'` and a method draw(states, path), where states are its states "
    "at each time, [T, ...] (see triglot.envs.gif and triglot.envs.gridworld)"
)
HOW_TO_FILM = (
    "give it `milliseconds` and a method open_filmed() (see triglot.core.host_environment.Filmed), or "
    "play it with gymnasium.wrappers.RecordVideo around it"
)


def render(options: "RenderCommand", begun: "TrainOptions") -> int:
    """Run `triglot render`.

    Args:
      options: what the person chose.
      begun: what the training was begun with.

    Returns:
      The exit code, 0.

    Raises:
      TriglotError: if the environment cannot draw itself, a number cannot be served, there is no
        checkpoint, or the file cannot be written.
    """
    check_numbers(options, episodes=1, max_steps=1, seed_index=0)
    if options.seed_index >= begun.num_seeds:
        raise TriglotError(
            f"seed_index counts the run's {begun.num_seeds} trainings from 0, got "
            f"{options.seed_index}: give at most {begun.num_seeds - 1}."
        )
    plan = prepare(begun, folder=options.run)
    env, suffix = plan.env, suffix_of(plan.env)
    out = _target(env.name, suffix, options)
    progress = restore(plan, previous=options.previous)
    agent_state = jax.tree.map(
        lambda leaf: leaf[options.seed_index],
        progress.state.agent,  # pyright: ignore[reportOptionalMemberAccess]
    )
    keys = enumerate(_keys(plan, options), 1)
    how: Any = {"max_steps": options.max_steps, "explore": options.sampled}
    if isinstance(env, Filmed):

        def frames() -> Iterator[np.ndarray]:
            for number, key in keys:
                _tell(number, (yield from film(plan.trainer.agent, env, agent_state, key, **how)))

        # Played and drawn at once: the frames of a whole episode are large.
        with _into(out):
            write_gif(str(out), frames(), milliseconds=env.milliseconds)
    else:
        states = []
        for number, key in keys:
            episode = play_episode(plan.trainer.agent, env, agent_state, key, **how)
            _tell(number, episode)
            states.append(episode.played())
        draw(env, jax.tree.map(lambda *parts: jnp.concatenate(parts), *states), out)
    print(f"drawn: {out}")
    return 0


def draw(env: Environment, states: Any, path: Path) -> None:
    """Draw states `[T, ...]` of an environment to a file.

    Raises:
      TriglotError: if the environment cannot draw itself, or the file cannot be written.
    """
    drawn = _drawn(env)
    while isinstance(env, TimeLimit):
        env, states = env.env, states.state
    with _into(path):
        drawn.draw(states, str(path))


@contextmanager
def _into(path: Path) -> Iterator[None]:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        yield


def suffix_of(env: Environment | HostEnvironment) -> str:
    """Say what files an environment is drawn to, such as `.gif`.

    Raises:
      TriglotError: if it cannot be drawn.
    """
    if isinstance(env, Filmed):
        return ".gif"
    if isinstance(env, HostEnvironment):
        raise TriglotError(f"{env.name} does not say how it is drawn: {HOW_TO_FILM}.")
    return _drawn(env).draw_suffix


def _drawn(env: Environment) -> Drawn:
    while isinstance(env, TimeLimit):
        env = env.env
    if not isinstance(env, Drawn):
        raise TriglotError(f"{env.name} does not say how it is drawn: {HOW_TO_DRAW}.")
    return env


def _target(name: str, suffix: str, options: "RenderCommand") -> Path:
    out = options.out or options.run / f"episode{suffix}"
    if out.suffix != suffix:
        raise TriglotError(f"{name} is drawn as {suffix}, got --out {out}: name it so.")
    if out.is_dir():
        raise TriglotError(f"--out {out} is a folder: name a file.")
    return out


def _keys(plan: Plan, options: "RenderCommand") -> jax.Array:
    """Make a key for each episode, none of which was used before."""
    key = jax.random.fold_in(jax.random.key(options.seed), plan.options.num_seeds + 2)
    return jax.random.split(key, options.episodes)


def _tell(number: int, episode: Episode) -> None:
    cut = "" if episode.finished else ", cut there: --max-steps allows more"
    tqdm.write(  # which takes the bar of a film away first
        f"episode {number}: return {format_return(float(episode.episode_return))} in "
        f"{int(episode.length):,} steps{cut}"
    )
