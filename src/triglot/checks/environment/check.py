"""`check_environment`: check an environment before training in it."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..purity import purity_checks
from ..report import Checklist, Report
from ..trees import flat
from . import host_checks, play, protocol
from .case import EnvironmentCase
from .episode_ends import notes_of_lengths
from .host_case import HostCase
from .reading import reading_notes

CaseT = TypeVar("CaseT", EnvironmentCase, HostCase)
TYPED = ["flags", "observation", "action mask"]  # what must fit the specs before a batch is made
CHECKS: Checklist[Any] = Checklist(
    [
        *protocol.CHECKS.checks,
        *purity_checks(
            "arguments unchanged", "deterministic", "keys used once", "jit", needs=["arrays"]
        ),
        *protocol.TYPES.checks,
        *purity_checks("vmap", "scan", "compiles once", "checkpoint", needs=TYPED),
        *play.CHECKS.checks,
    ]
)


def check_environment(env: Any, *, seed: int = 0) -> Report:
    """Check an environment: its interface, purity, types, observations and episode ends.

    It is called, compiled, batched and run with random actions for about 2,000 steps, which takes
    seconds.

    Args:
      env: a `triglot.Environment`, or an environment that is stepped in Python (a
        `HostEnvironment`, such as one of Gymnasium); anything else is reported as a failure.
      seed: random seed of the keys and actions.

    Returns:
      The report. Exceptions raised by the environment are findings in it.

    >>> from triglot.envs import probes
    >>> check_environment(probes.make("two-step")).passed
    True
    """
    if _is_host(env):
        host_case = HostCase(env, seed)
        return _report(host_case, host_checks.CHECKS, "finite", host_checks.add_notes)
    return _report(EnvironmentCase(env, seed), CHECKS, "scan", _add_notes)


def _report(
    case: CaseT, checks: Checklist[CaseT], played: str, add_notes: Callable[[CaseT], None]
) -> Report:
    """Run checks; with notes if the check `played` passed, after which there is a rollout."""
    results = checks.run(case)
    if any(result.name == played and result.outcome == "passed" for result in results):
        add_notes(case)
    return Report(f"environment {_name(case.env)}", results, tuple(case.notes))


def _is_host(env: Any) -> bool:
    """Return whether an object is meant as an environment that is stepped in Python."""
    return not isinstance(env, type) and hasattr(env, "open") and hasattr(env, "obs_spec")


def _name(env: Any) -> str:
    try:
        name = env.name
        return repr(name) if isinstance(name, str) else type(env).__name__
    except Exception:
        return getattr(env, "__name__", type(env).__name__)


def _add_notes(case: EnvironmentCase) -> None:
    """Note properties that may or may not be mistakes."""
    rollout = case.rollout
    case.notes += reading_notes(case.env.obs_spec, [case.starts.obs, rollout.after.obs])
    if len(np.unique(flat(case.starts, 1), axis=0)) == 1:
        case.notes.append("Every reset gives the same start: the key has no effect.")
    advice, truncated = "set `truncated` (or wrap it in TimeLimit)", rollout.after.truncated
    case.notes += notes_of_lengths(rollout, truncated=bool(truncated.any()), advice=advice)
