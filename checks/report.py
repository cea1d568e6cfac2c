"""What a checker asks, and what it found: one question at a time, each with its answer in words."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from ..core.errors import TriglotError, describe

Case = TypeVar("Case")
Outcome = Literal["passed", "failed", "skipped"]


class Failed(Exception):
    """A check found something.

    Attributes:
      found: what was found, in words, with the numbers.
      mend: how to mend it, where that depends on what was found.
    """

    def __init__(self, found: str, mend: str = "") -> None:
        super().__init__(found)
        self.found, self.mend = found, mend


class NotApplicable(Exception):
    """A check has nothing to ask of this part; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Check(Generic[Case]):
    """One question.

    Attributes:
      name: what it is called in reports and tests.
      asks: the question, of which yes is the right answer.
      why: why it matters.
      mend: how a part is usually mended.
      run: returns where all is well, raises `Failed` or `NotApplicable`; any other exception is
        taken for the part's own.
      needs: names of checks without which this one has nothing to stand on.
    """

    name: str
    asks: str
    why: str
    mend: str
    run: Callable[[Case], None]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Result:
    """The answer to one question; `found` and `mend` are empty where it passed."""

    name: str
    asks: str
    why: str
    outcome: Outcome
    found: str = ""
    mend: str = ""

    def __str__(self) -> str:
        if self.outcome == "passed":
            return f"  passed   {self.name}: {self.asks}"
        if self.outcome == "skipped":
            return f"  skipped  {self.name}: {self.found}"
        return (
            f"  FAILED   {self.name}: {self.asks}\n"
            f"           found: {self.found}\n"
            f"           why it matters: {self.why}\n"
            f"           to mend it: {self.mend}"
        )


@dataclass(frozen=True)
class Report:
    """All answers about one part; print it to read them.

    Attributes:
      part: what was checked, such as "network 'mine'".
      results: in the order asked.
      notes: observations that are no mistakes by themselves.
    """

    part: str
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Tell whether nothing failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Name the checks that failed."""
        return tuple(result.name for result in self.results if result.outcome == "failed")

    def summary(self) -> str:
        """Say the outcome in one line."""
        counts = {
            outcome: sum(result.outcome == outcome for result in self.results)
            for outcome in ("passed", "failed", "skipped")
        }
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
        return f"{self.part}: {told}" + (f" ({', '.join(self.failed)})" if self.failed else "")

    def __str__(self) -> str:
        notes = [f"  note     {note}" for note in self.notes]
        return "\n".join([self.summary(), *map(str, self.results), *notes])


@dataclass(frozen=True)
class Checklist(Generic[Case]):
    """An ordered list of checks of one kind of part, filled by decorating functions."""

    checks: list[Check[Case]] = field(default_factory=list)

    def check(
        self, name: str, *, asks: str, why: str, mend: str, needs: Sequence[str] = ()
    ) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
        """Add the decorated function as a check."""
        unknown = set(needs) - {check.name for check in self.checks}
        if unknown:
            raise TriglotError(f"check {name!r} needs {sorted(unknown)}, which do not precede it.")

        def add(run: Callable[[Case], None]) -> Callable[[Case], None]:
            made = Check(name=name, asks=asks, why=why, mend=mend, run=run, needs=tuple(needs))
            self.checks.append(made)
            return run

        return add

    def run(self, case: Case) -> Iterator[Result]:
        """Ask one question after the other; those that stand on a failed one are skipped."""
        broken: set[str] = set()
        for check in self.checks:
            result = _ask(check, case, [name for name in check.needs if name in broken])
            if result.outcome == "failed" or (result.found and broken & set(check.needs)):
                broken.add(check.name)
            yield result


def _ask(check: Check[Case], case: Case, broken: list[str]) -> Result:
    def answer(outcome: Outcome, found: str = "", mend: str = "") -> Result:
        return Result(
            name=check.name,
            asks=check.asks,
            why=check.why,
            outcome=outcome,
            found=found,
            mend=mend,
        )

    if broken:
        return answer("skipped", f"it stands on {', '.join(broken)}, which did not pass.")
    try:
        check.run(case)
    except NotApplicable as reason:
        return answer("skipped", str(reason))
    except Failed as failure:
        return answer("failed", failure.found, failure.mend or check.mend)
    except TriglotError as error:
        return answer("failed", str(error), check.mend)
    except Exception as error:
        return answer("failed", describe(error), check.mend)
    return answer("passed")
