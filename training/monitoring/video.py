"""Log a video of an evaluation episode, for `--log`."""

import tempfile
from pathlib import Path

import jax
from tqdm import tqdm

from ...core.errors import TriglotError
from ...core.loop.state import RunnerState
from ...terminal.wrapping import wrapped
from ..plan import Plan
from ..render import record, suffix_of
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
                suffix = suffix_of(self._plan.env)
                if suffix != path.suffix:
                    raise TriglotError(
                        f"{self._plan.env.name} is rendered as {suffix}, and logs take GIFs."
                    )
                record(path, self._plan, agent_state, key[None], max_steps=MAX_STEPS)
            except TriglotError as error:
                tqdm.write(wrapped(f"no videos are logged: {error}"))
                self._logs = None
                return
            self._logs.add_video(num_updates, path)
        self._last = num_updates
