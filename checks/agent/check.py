"""The checker of agents."""

from typing import Any

from ..report import Report
from .case import AgentCase
from .ends import CHECKS


def check_agent(agent: Any, env: Any, *, seed: int = 0) -> Report:
    """Check an agent before it trains: what it answers, and what it learns from episodes' ends.

    It acts and learns in copies of an environment, and on trajectories made up.

    Args:
      agent: a `triglot.Agent`, or what somebody takes for one; small counts make it quick.
      env: a single environment that it should act in.
      seed: of the keys and trajectories it is tried with.

    Returns:
      The report; print it to read what was found, why it matters and how to mend it. Nothing that
      the agent does raises an exception here.
    """
    case = AgentCase(agent, env, seed)
    results = tuple(CHECKS.run(case))
    name = getattr(env, "name", None)
    place = f" on {name}" if isinstance(name, str) else ""
    called = agent.__name__ if isinstance(agent, type) else type(agent).__name__
    return Report(f"agent {called}{place}", results, tuple(case.notes))
