"""A finished or interrupted training, read back from its folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.agent import Agent
from ...core.environment import Environment
from ...core.host_environment import HostEnvironment
from .plan import prepare
from .train import restore


@dataclass(frozen=True, kw_only=True)
class Run:
    """What `load_run` found.

    Attributes:
      agent: the algorithm, as it was built.
      env: the single environment it was trained in.
      agent_states: `[S, ...]` of the `S` seeds, from the last checkpoint.
      num_updates: updates done by then.
    """

    agent: Agent
    env: Environment | HostEnvironment
    agent_states: Any
    num_updates: int


def load_run(folder: str | Path, *, previous: bool = False) -> Run:
    """Read the folder of `triglot train`, to go on with what it learned in Python.

    Args:
      folder: the run's.
      previous: where the last checkpoint is damaged, take the one before.

    Raises:
      TriglotError: if it is no training's folder, there is no checkpoint, or it is damaged.
    """
    from ..cli import begun

    plan = prepare(begun(Path(folder)), folder=Path(folder))
    progress = restore(plan, previous=previous)
    state: Any = progress.state
    return Run(
        agent=plan.trainer.agent,
        env=plan.env,
        agent_states=state.agent,
        num_updates=progress.num_updates,
    )
