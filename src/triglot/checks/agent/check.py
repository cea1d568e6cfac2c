"""`check_agent`: check an agent before it trains."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...core.families.extension import Extended
from ..purity import purity_checks
from ..report import Checklist, Report
from . import acting, episodes, learning, protocol, targets
from .feeder import LearningCase

CHECKS: Checklist[Any] = Checklist(
    [
        *protocol.CHECKS.checks,
        *purity_checks(needs=["update"]),
        *learning.TRAINING.checks,
        *learning.CHECKS.checks,
        *episodes.CHECKS.checks,
        *targets.CHECKS.checks,
        *acting.CHECKS.checks,
    ]
)


def check_agent(agent: Any, env: Any, *, seed: int = 0) -> Report:
    """Check an agent: its interface, its purity, what it learns at ends, and from what it learns.

    It acts and learns in the environment and on synthetic trajectories. Small `num_envs` and
    `rollout_length` make this fast.

    Args:
      agent: a `triglot.Agent`; anything else is reported as a failure.
      env: a single environment for the agent to act in.
      seed: random seed of the keys and trajectories.

    Returns:
      The report. Exceptions raised by the agent are findings in it.
    """
    case = LearningCase(agent, env, seed)
    name = getattr(env, "name", None)
    where = f" on {name}" if isinstance(name, str) else ""
    title = agent.name if isinstance(agent, Extended) else _kind(agent).__name__
    report = CHECKS.report(f"agent {title}{where}", case)
    unused: list[str] = []
    with suppress(Exception):  # an agent of unusual structure has no such note
        unused = targets.unused_hyperparameters(case) if report.passed else []
    if not unused:
        return report
    note = f"nothing in act and update depends on hyper.{', hyper.'.join(unused)}."
    return replace(report, notes=(*report.notes, note))


def _kind(agent: Any) -> type:
    return agent if isinstance(agent, type) else type(agent)
