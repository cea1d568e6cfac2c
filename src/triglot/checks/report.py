"""Checks and reports: run checks in order, and explain in words what each of them found."""

import inspect
import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, TypeVar, get_args

import jax
import numpy as np

from ..core.errors import TriglotError, describe, silenced

Case = TypeVar("Case")
Outcome = Literal["passed", "failed", "skipped"]


class Failed(Exception):
    """Raised by a check that found a defect.

    Attributes:
      found: the finding in one sentence, with the numbers.
      fix: how to fix this finding; empty to use the check's general advice.
    """

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem)
        self.found, self.fix = problem, fix


def reject(problem: str, context: str = "") -> None:
    """Raise `Failed` with what a function of `trees` found; an empty string is no finding."""
    if problem:
        raise Failed(f"{context}{problem}.")


class NotApplicable(Exception):
    """Raised by a check that does not apply to this component; the message gives the reason."""


@dataclass(frozen=True)
class Check(Generic[Case]):
    """One check.

    Attributes:
      name: its name in reports and tests.
      question: the question it answers; yes means that it passed.
      why: why a failure matters.
      fix: how to fix the usual failure.
      run: returns if the check passed, if need be with what it compared; raises `Failed` or
        `NotApplicable` otherwise. Any other exception counts as a failure of the component.
      needs: names of the checks that must pass first.
    """

    name: str
    question: str
    why: str
    fix: str
    run: Callable[[Case], str | None]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one check; of one that passed, `found` may say what it compared."""

    name: str
    question: str
    why: str
    outcome: Outcome
    found: str = ""
    fix: str = ""

    def __str__(self) -> str:
        if self.outcome == "passed":
            compared = f"\n           {self.found}" if self.found else ""
            return f"  passed   {self.name}: {self.question}{compared}"
        if self.outcome == "skipped":
            return f"  skipped  {self.name}: {self.found}"
        return (
            f"  FAILED   {self.name}: {self.question}\n"
            f"           found: {self.found}\n"
            f"           why it matters: {self.why}\n"
            f"           how to fix it: {self.fix}"
        )


@dataclass(frozen=True)
class Report:
    """All results for one component; print it to read them.

    Attributes:
      component: what was checked, such as "network 'mine'".
      results: one per check, in order.
      notes: observations that may or may not be mistakes.
    """

    component: str
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Return True if no check failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Return the names of the checks that failed."""
        return tuple(result.name for result in self.results if result.outcome == "failed")

    def summary(self) -> str:
        """Return the counts of passed, failed and skipped checks in one line."""
        counts = Counter(result.outcome for result in self.results)
        text = ", ".join(f"{counts[name]} {name}" for name in get_args(Outcome) if counts[name])
        return f"{self.component}: {text}" + (f" ({', '.join(self.failed)})" if self.failed else "")

    def __str__(self) -> str:
        notes = [f"  note     {note}" for note in self.notes]
        return "\n".join([self.summary(), *map(str, self.results), *notes])


@dataclass(frozen=True)
class Checklist(Generic[Case]):
    """An ordered list of checks, filled by decorating functions.

    Attributes:
      checks: the checks so far.
      needs: the checks that must pass before a check which does not name its own `needs`.
    """

    checks: list[Check[Case]] = field(default_factory=list)
    needs: Sequence[str] = ()

    def check(
        self, name: str = "", *, needs: Sequence[str] = ()
    ) -> Callable[[Callable[[Case], str | None]], Callable[[Case], str | None]]:
        """Add the decorated function as a check.

        Its docstring is what reports say: the question, a paragraph `Why: ...` and a paragraph
        `Fix: ...`, which `Check` describes.

        Args:
          name: its name; by default `time limits` for a function `_time_limits`.
          needs: the checks that must pass first, if not those of the list.
        """

        def add(run: Callable[[Case], str | None]) -> Callable[[Case], str | None]:
            named = name or run.__name__.strip("_").replace("_", " ")
            # `python -OO` removes docstrings; then a check has its name only.
            said = inspect.getdoc(run) or f"{named}?\n\nWhy: \n\nFix: "
            paragraphs = re.split("\n\n(?:Why|Fix): ", said)
            question, why, fix = (" ".join(text.split()) for text in paragraphs)
            self.checks.append(Check(named, question, why, fix, run, (*(needs or self.needs),)))
            return run

        return add

    def report(self, component: str, case: Any) -> Report:
        """Run the checks; `component` is what reports call it, and `case` has its notes."""
        return Report(component, self.run(case), tuple(case.notes))

    def run(self, case: Case) -> tuple[Result, ...]:
        """Run the checks in order; skip those whose needed checks did not pass."""
        results: list[Result] = []
        not_passed: set[str] = set()
        # JAX and orbax log tracebacks of exceptions that the report states in one sentence.
        with silenced(logging.CRITICAL):
            for check in self.checks:
                missing = [name for name in check.needs if name in not_passed]
                results.append(_run(check, case, missing))
                if results[-1].outcome == "failed" or missing:
                    not_passed.add(check.name)
        return tuple(results)


def _run(check: Check[Case], case: Case, missing: list[str]) -> Result:
    result = partial(Result, name=check.name, question=check.question, why=check.why)
    if missing:
        problem = f"it needs {', '.join(missing)}, which did not pass."
        return result(outcome="skipped", found=problem)
    try:
        compared = check.run(case)
    except NotApplicable as reason:
        return result(outcome="skipped", found=str(reason))
    except Failed as failure:
        return result(outcome="failed", found=failure.found, fix=failure.fix or check.fix)
    except Exception as error:
        problem = str(error) if isinstance(error, TriglotError) else describe(error)
        return result(outcome="failed", found=problem, fix=check.fix)
    return result(outcome="passed", found=compared or "")


class NotTraceable(Exception):
    """JAX cannot trace the component's code; the message says what to write instead."""


# The first match is used: later entries are base classes of earlier ones.
_TRACING_ERRORS = {
    jax.errors.TracerBoolConversionError: (
        "a Python `if`, `while`, `and`, `or`, `not` or `assert` uses the value of a traced array: "
        "write jnp.where, jax.lax.cond, jnp.logical_and ..."
    ),
    jax.errors.TracerArrayConversionError: (
        "a NumPy function, or an assignment into a NumPy array, uses a traced array: use "
        "jax.numpy, and array.at[index].set(value)"
    ),
    jax.errors.TracerIntegerConversionError: (
        "a traced array is used as a Python index or count: make the list or dictionary a "
        "jax.numpy array, or use jax.lax.switch or fori_loop"
    ),
    jax.errors.ConcretizationTypeError: (
        "float(), int(), .item() or a shape uses the value of a traced array: keep it an array, "
        "and keep shapes fixed"
    ),
    jax.errors.UnexpectedTracerError: (
        "an array was stored outside the state (on `self`, in a global or a list) by one call and "
        "used in another: return it in the state"
    ),
}


def describe_error(error: Exception) -> str:
    """Describe an exception of the component in one line; tracing errors get advice."""
    for kind, reason in _TRACING_ERRORS.items():
        if isinstance(error, kind):
            return describe(NotTraceable(reason).with_traceback(error.__traceback__))
    lines = [line for line in str(error).splitlines() if line.strip()]
    if "Traceback (most recent call last)" in str(error):  # raised within a callback
        return f"{type(error).__name__}: {lines[-1].strip()}"
    return describe(error)


def describe_value(value: Any) -> str:
    """Describe a value: dtype and shape of an array, otherwise its type and contents."""
    kind = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        library = "NumPy " if isinstance(value, np.ndarray | np.generic) else ""
        return f"{library}{value.dtype}{list(value.shape)}"
    if isinstance(value, list | tuple):
        inside = ", ".join(type(child).__name__ for child in value[:6])
        return f"a {kind} of {len(value)} ({inside})" if value else f"an empty {kind}"
    if isinstance(value, dict):
        return f"a dictionary with keys {list(value)}" if value else "an empty dictionary"
    if isinstance(value, bool | int | float | str):
        return f"the Python {kind} {value!r}"[:80]
    return f"a {kind}"
