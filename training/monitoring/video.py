"""Log a video of an evaluation episode, for `--log`."""

import tempfile
from pathlib import Path
from typing import Any

import jax
from tqdm import tqdm

from ...core.environment import without_time_limit
from ...core.errors import TriglotError
from ...core.host.player import film
from ...core.host_environment import HostRenderable
from ...core.loop.episode import play_episode
from ...core.loop.state import RunnerState
from ...envs.gif import write_gif
from ...terminal.wrapping import wrapped
from ..plan import Plan
from ..render import suffix_of
from ..storage.logs import Logs
from .evaluating import VIDEO, evaluation_key

MAX_STEPS = 500  # of the episode; CartPole's are as long


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
        key = jax.random.fold_in(evaluation_key(self._plan, VIDEO), num_updates)
        agent_state = jax.tree.map(lambda leaf: leaf[0], state.agent)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "episode.gif"
            try:
                _write(self._plan, agent_state, key, path)
            except TriglotError as error:
                tqdm.write(wrapped(f"no videos are logged: {error}"))
                self._logs = None
                return
            self._logs.add_video(num_updates, path)
        self._last = num_updates


def _write(plan: Plan, agent_state: Any, key: jax.Array, path: Path) -> None:
    """Write an episode as a GIF.

    Raises:
      TriglotError: if the environment cannot be rendered as a GIF.
    """
    agent, env = plan.trainer.agent, plan.env
    suffix = suffix_of(env)
    if suffix != path.suffix:
        raise TriglotError(f"{env.name} is rendered as {suffix}, and logs take GIFs.")
    if isinstance(env, HostRenderable):
        frames = film(agent, env, agent_state, key, max_steps=MAX_STEPS)
        write_gif(str(path), frames, milliseconds=env.milliseconds)
        return
    episode = play_episode(agent, env, agent_state, key, max_steps=MAX_STEPS)
    env, states = without_time_limit(env, episode.played())
    env.draw(states, str(path))
