"""`triglot render`: episodes of a run's agent as a picture that moves."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ..core.environment import Drawn, Environment, TimeLimit
from ..core.errors import TriglotError, writing
from ..core.host import HostEnvironment
from ..core.record import Recording, record
from .plan import Plan, check_numbers, prepare
from .run import restore

if TYPE_CHECKING:
    from .options import RenderCommand, TrainOptions

HOW_TO_DRAW = (
    "give it `draw_suffix = '.gif'` and a method draw(states, path), where states are its states "
    "at each time, [T, ...] (see triglot.envs.gif and triglot.envs.gridworld)"
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
    env = plan.env
    if isinstance(env, HostEnvironment):
        raise TriglotError(
            f"{env.name} is stepped in Python and keeps no states that could be drawn: play it "
            "with gymnasium.wrappers.RecordVideo around it."
        )
    out = _target(env, options)
    progress = restore(plan, previous=options.previous)
    agent_state = jax.tree.map(
        lambda leaf: leaf[options.seed_index],
        progress.state.agent,  # pyright: ignore[reportOptionalMemberAccess]
    )
    recordings = _play(plan, env, options, agent_state)
    for number, recording in enumerate(recordings, 1):
        cut = "" if recording.finished else ", cut there: --max-steps allows more"
        print(
            f"episode {number}: return {float(recording.episode_return):.1f} in "
            f"{int(recording.length):,} steps{cut}",
            flush=True,
        )
    states = [recording.played() for recording in recordings]
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
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn.draw(states, str(path))


def _drawn(env: Environment) -> Drawn:
    while isinstance(env, TimeLimit):
        env = env.env
    if not isinstance(env, Drawn):
        raise TriglotError(f"{env.name} does not say how it is drawn: {HOW_TO_DRAW}.")
    return env


def _target(env: Environment, options: "RenderCommand") -> Path:
    suffix = _drawn(env).draw_suffix
    out = options.out or options.run / f"episode{suffix}"
    if out.suffix != suffix:
        raise TriglotError(f"{env.name} is drawn as {suffix}, got --out {out}: name it so.")
    if out.is_dir():
        raise TriglotError(f"--out {out} is a folder: name a file.")
    return out


def _play(
    plan: Plan, env: Environment, options: "RenderCommand", agent_state: Any
) -> list[Recording]:
    key = jax.random.fold_in(jax.random.key(options.seed), plan.options.num_seeds + 2)
    return [
        record(
            plan.trainer.agent,
            env,
            agent_state,
            episode_key,
            max_steps=options.max_steps,
            explore=options.sampled,
        )
        for episode_key in jax.random.split(key, options.episodes)
    ]
