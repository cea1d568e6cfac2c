"""Render episodes of a run's agent as an animation: `triglot render`, and videos for `--log`."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from ..core.agent import Agent
from ..core.environment import Renderable
from ..core.errors import TriglotError, writing
from ..core.host.player import film
from ..core.host_environment import AnyEnvironment, HostEnvironment, HostRenderable
from ..core.loop.episode import Episode, play_episode
from ..core.loop.state import RunnerState
from ..core.types import AnyAgentState, EnvState, abstract_key
from ..core.wrappers.base import without_wrappers
from ..envs.gif import write_gif
from ..shared.machine import memory
from ..shared.machine.files import replacing
from ..shared.machine.interrupt import raising
from ..shared.statistics import format_return
from ..shared.terminal.progress import phase
from ..shared.terminal.wrapping import wrapped
from .monitoring.evaluating import VIDEO, key_of_kind
from .options import RenderOptions, TrainOptions
from .plan import Plan, check_minimums, prepare
from .population import chosen_seed_index
from .resume.restoring import restore
from .storage.logs import Logs

VIDEO_STEPS = 500  # of the episode in a video; CartPole's are as long
HOW_TO_DRAW = (
    "add `draw_suffix = '.gif'` and a method draw(states, path), where states are its states "
    "[T, ...] (see triglot.envs.gif and triglot.envs.gridworld); to a host environment, add "
    "`milliseconds` and a method open_filmed() (see triglot.core.host_environment.HostRenderable), "
    "or wrap a Gymnasium one in gymnasium.wrappers.RecordVideo"
)


def render(options: RenderOptions, run_options: TrainOptions) -> int:
    """Run `triglot render`.

    Args:
      options: what was chosen.
      run_options: the options with which the run was started.

    Returns:
      The exit code, 0.

    Raises:
      TriglotError: if the environment cannot be rendered, an option is invalid, the checkpoint is
        missing or damaged, or the file cannot be written.
    """
    check_minimums(options, episodes=1, max_steps=1)
    index = chosen_seed_index(options.run, options.seed_index, run_options.num_seeds)
    with phase("building"):
        plan = prepare(run_options, folder=options.run, training=False)
        env, suffix = plan.env, suffix_of(plan.env)
        out = _target(env.name, suffix, options)
        if not isinstance(env, HostEnvironment):
            step = jax.eval_shape(env.reset, abstract_key())
            memory.check({"episodes": options.max_steps * memory.nbytes(step.state)})
        progress = restore(plan, previous=options.previous, kind=options.checkpoint)
        state = progress.state
        assert state is not None  # there is a checkpoint
    if progress.warning:
        print(wrapped(progress.warning))
    agent_state = jax.tree.map(lambda leaf: leaf[index], state.agent)
    # One key per episode, different from those of training and evaluation.
    key = jax.random.fold_in(jax.random.key(options.seed), run_options.num_seeds + 2)
    keys = jax.random.split(key, options.episodes)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with raising(), replacing(out) as unfinished, phase("playing"):
        record(
            unfinished,
            plan.agent,
            env,
            agent_state,
            keys,
            max_steps=options.max_steps,
            explore=options.sampled,
            played=_report,
        )
    print(f"written: {out}")
    return 0


def record(
    path: Path,
    agent: Agent,
    env: AnyEnvironment,
    agent_state: AnyAgentState,
    keys: jax.Array,
    *,
    max_steps: int,
    explore: bool = False,
    played: Callable[[int, Episode], None] = lambda number, episode: None,
) -> None:
    """Play episodes and draw them to a file, one after the other.

    Args:
      path: the file, whose suffix is that of the environment.
      agent: the algorithm with its network.
      env: the single environment.
      agent_state: of one seed.
      keys: one per episode.
      max_steps: of each episode.
      explore: whether to sample actions.
      played: called after each episode with its number, counted from 1.

    Raises:
      TriglotError: if the environment cannot be rendered.
    """
    if isinstance(env, HostRenderable):

        def frames() -> Iterator[np.ndarray]:
            for number, key in enumerate(keys, 1):
                episode = yield from film(
                    agent, env, agent_state, key, max_steps=max_steps, explore=explore
                )
                played(number, episode)

        # Written while it is played: the frames of a whole episode take much memory.
        write_gif(str(path), frames(), milliseconds=env.milliseconds)
        return
    states = []
    for number, key in enumerate(keys, 1):
        episode = play_episode(agent, env, agent_state, key, max_steps=max_steps, explore=explore)
        played(number, episode)
        states.append(episode.played())
    draw(env, jax.tree.map(lambda *parts: jnp.concatenate(parts), *states), path)


def draw(env: Any, states: EnvState, path: Path) -> None:
    """Draw states `[T, ...]` of an environment to a file.

    Raises:
      TriglotError: if the environment cannot be rendered.
    """
    suffix_of(env)
    env, states = without_wrappers(env, states)
    env.draw(states, str(path))


def suffix_of(env: Any) -> str:
    """Return the suffix of the files that an environment is rendered to, such as `.gif`.

    Raises:
      TriglotError: if the environment cannot be rendered.
    """
    if isinstance(env, HostRenderable):
        return ".gif"
    env, _ = without_wrappers(env)
    if not isinstance(env, Renderable):
        raise TriglotError(f"{env.name} cannot be rendered: {HOW_TO_DRAW}.")
    return env.draw_suffix


def can_render(env: Any) -> bool:
    """Whether an environment is rendered, so far as it is known before an episode is."""
    try:
        suffix_of(env)
    except TriglotError:
        return False
    return True


def _target(name: str, suffix: str, options: RenderOptions) -> Path:
    out = options.out or options.run / f"episode{suffix}"
    if out.suffix != suffix:
        raise TriglotError(f"{name} is rendered as {suffix}; got --out {out}: change the suffix.")
    if out.is_dir():
        raise TriglotError(f"--out {out} is a folder: give a file.")
    return out


def _report(number: int, episode: Episode) -> None:
    cut = "" if episode.finished else ", cut at --max-steps"
    tqdm.write(  # removes a progress bar first
        f"episode {number}: return {format_return(float(episode.episode_return))} in "
        f"{int(episode.length):,} steps{cut}"
    )


class Videos:
    """Logs greedy episodes of the first seed, as GIFs.

    If the environment cannot be rendered, that is printed once and nothing is logged.

    Args:
      plan: the training.
      logs: where the videos go; None without `--log`.
    """

    def __init__(self, plan: Plan, logs: Logs | None) -> None:
        self._plan, self._logs = plan, logs
        self._last: int | None = None

    def add(self, num_updates: int, state: RunnerState) -> None:
        """Play an episode with the states `[S, ...]` after `num_updates` updates, and log it."""
        if self._logs is None or num_updates == self._last:
            return
        key = jax.random.fold_in(key_of_kind(self._plan, VIDEO), num_updates)
        agent_state = jax.tree.map(lambda leaf: leaf[0], state.agent)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "episode.gif"
            try:
                suffix = suffix_of(self._plan.env)
                if suffix != path.suffix:
                    raise TriglotError(
                        f"{self._plan.env.name} is rendered as {suffix}, and logs take GIFs."
                    )
                played = self._plan.agent, self._plan.env, agent_state
                record(path, *played, key[None], max_steps=VIDEO_STEPS)
            except TriglotError as error:
                tqdm.write(wrapped(f"no videos are logged: {error}"))
                self._logs = None
                return
            self._logs.add_video(num_updates, path)
        self._last = num_updates
