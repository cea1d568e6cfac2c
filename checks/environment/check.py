"""`check_environment`: is it pure, does it compile, does it keep its word, are its ends true?"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from ..report import Report
from ..shared import numbers
from .case import NUM_STARTS, EnvironmentCase
from .play import CHECKS


def check_environment(env: Any, *, seed: int = 0) -> Report:
    """Try an environment out, and say what is wrong with it, why it matters and how to mend it.

    It is called, compiled, batched and played at random for some 2,000 steps, which takes seconds.

    Args:
      env: what is meant to be a `triglot.Environment`; whatever it lacks or raises is a finding.
      seed: where its keys come from.

    Returns:
      The answers, which can be printed; `passed` where nothing failed.

    >>> from triglot.envs import probes
    >>> check_environment(probes.make("two-step")).passed
    True
    """
    case = EnvironmentCase(env, seed)
    with _no_logging():
        results = tuple(CHECKS.run(case))
    if any(result.name == "compiled play" and result.outcome == "passed" for result in results):
        _note(case)
    return Report(f"environment {_name(env)}", results, tuple(case.notes))


@contextmanager
def _no_logging() -> Iterator[None]:
    # JAX and orbax log the traceback of what is raised here, and then told in words.
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _name(env: Any) -> str:
    try:
        name = env.name
        return repr(name) if isinstance(name, str) else type(env).__name__
    except Exception:
        return getattr(env, "__name__", type(env).__name__)


def _note(case: EnvironmentCase) -> None:
    """Observe what is no mistake by itself."""
    played = case.played
    if all(len(np.unique(x, axis=0)) == 1 for x in _rows(case.starts)):
        case.notes.append("Every reset gives the same start, whatever its key.")
    ends = np.flatnonzero(played.done)
    lengths = played.time.ravel()[ends]
    if not len(ends):
        case.notes.append(f"No episode ended in {played.done.size} random steps.")
    elif (
        len(ends) >= 4
        and lengths.min() == lengths.max() >= 10
        and not np.any(played.after.truncated)
    ):
        case.notes.append(
            f"All {len(ends)} episodes terminated after {lengths[0]} steps. If that is a time "
            "limit and not the task's end, set `truncated` (or wrap it in TimeLimit)."
        )


def _rows(tree: Any) -> list[np.ndarray]:
    return [numbers(leaf).reshape(NUM_STARTS, -1) for leaf in jax.tree.leaves(tree)]
