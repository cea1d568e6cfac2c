"""Load a finished or interrupted run from its folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.agent import Agent
from ..core.environment import Environment
from ..core.host_environment import HostEnvironment
from .plan import prepare
from .resume.restoring import restore
from .storage.config import options_of_run


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run read from its folder.

    Attributes:
      agent: the algorithm with its network.
      env: the single environment.
      agent_states: `[S, ...]`, one entry per seed, from the checkpoint.
      num_updates: updates done at that checkpoint.
    """

    agent: Agent
    env: Environment | HostEnvironment
    agent_states: Any
    num_updates: int


def load_run(
    folder: str | Path, *, previous: bool = False, trust: bool = False, checkpoint: str = "last"
) -> Run:
    """Load the agent, its states and the environment from a folder of `triglot train`.

    Args:
      folder: the run directory.
      previous: if the last checkpoint is damaged, use the one before it.
      trust: import the custom code that the run names, although this user did not begin it here.
      checkpoint: last; or best, the one with the highest evaluated return.

    Raises:
      TriglotError: if the folder is not a run directory, it names code that is not trusted, or its
        last checkpoint is missing or damaged.
    """
    plan = prepare(options_of_run(Path(folder), trust=trust), folder=Path(folder), training=False)
    progress = restore(plan, previous=previous, kind=checkpoint)
    state: Any = progress.state
    return Run(
        agent=plan.trainer.agent,
        env=plan.env,
        agent_states=state.agent,
        num_updates=progress.num_updates,
    )
