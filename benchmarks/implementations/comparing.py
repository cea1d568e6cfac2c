"""Compare a part with triglot's, switch by switch, until `diff` finds them equivalent."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triglot import diff_networks
from triglot.diff.report import DIFFERENT, Report

from .parts import PARTS, SWITCHES, Project, Theirs
from .sources import Checkout

LINE = re.compile(r"(?P<file>[\w./-]+\.py):(?P<line>\d+)")


@dataclass(frozen=True)
class Finding:
    """One difference.

    Attributes:
      switch: its name in `SWITCHES`.
      cause: the name that `diff` gave it; empty if it named no right one.
      evidence: what `diff` said.
      theirs, ours: the lines that `diff` named, `file:line`; empty if it named none.
    """

    switch: str
    cause: str
    evidence: str
    theirs: str
    ours: str


@dataclass(frozen=True)
class Comparison:
    """A part beside triglot's.

    Attributes:
      project, part: their names.
      defaults: whether each side had its own default hyperparameters, and not equal ones.
      code: what of theirs ran.
      findings: the differences, in the order in which they were found.
      verdicts: what `diff` said before and after each switch.
      others: causes that `diff` named in some round, and that belong to no switch.
      seconds: of the first comparison.
    """

    project: str
    part: str
    defaults: bool
    code: str
    findings: tuple[Finding, ...]
    verdicts: tuple[str, ...]
    others: tuple[str, ...]
    seconds: float

    @property
    def explained(self) -> bool:
        """Whether nothing differs with all switches."""
        return self.verdicts[-1] != DIFFERENT


def compare(project: Project, checkout: Checkout, part: str, theirs: Theirs, *,
            defaults: bool = False) -> Comparison:  # fmt: skip
    """Compare one part.

    Args:
      project: whose part it is.
      checkout: the files.
      part: a name of `PARTS`.
      theirs: the other side.
      defaults: compare each side at its default hyperparameters.
    """
    remaining = [*((theirs.of_defaults or ()) if defaults else theirs.switches)]
    applied: list[str] = []
    findings: list[Finding] = []
    others: list[str] = []
    function = theirs.build(defaults)
    started = time.perf_counter()
    report = _difference(part, frozenset(), function, project)
    seconds = time.perf_counter() - started
    verdicts = [report.verdict]
    while report.verdict == DIFFERENT and remaining:
        named = [each for each in remaining if _cause_of(each, report)]
        for name in named or remaining[:1]:
            findings.append(_finding(name, report, checkout))
            remaining.remove(name)
            applied.append(name)
        known = {cause for each in named for cause in SWITCHES[each].causes}
        others += [f"{cause.name}: {cause.evidence}" for cause in report.causes
                   if cause.name not in known and cause.name != "initializer"]  # fmt: skip
        report = _difference(part, frozenset(applied), function, project)
        verdicts.append(report.verdict)
    return Comparison(project.name, part, defaults, theirs.code, tuple(findings), tuple(verdicts),
                      tuple(others), seconds)  # fmt: skip


def _difference(part: str, switches: frozenset[str], function: Any, project: Project) -> Report:
    inputs: Mapping[str, Any] = PARTS[part].inputs
    names = (f"triglot, {part}", f"{project.name}, {part}")
    return diff_networks(
        PARTS[part].ours(switches), function, inputs, names=names, level="standard"
    )


def _cause_of(switch: str, report: Report) -> Any:
    """Return the cause of a report that is right for a switch; None if there is none."""
    right = SWITCHES[switch].causes
    return next((cause for cause in report.causes if cause.name in right), None)


def _finding(switch: str, report: Report, checkout: Checkout) -> Finding:
    cause = _cause_of(switch, report)
    where = "" if cause is None else f"{cause.where} {cause.evidence}"
    places = [(found["file"], found["line"]) for found in LINE.finditer(where)]
    root = str(checkout.path)
    theirs = [f"{file.removeprefix(root + '/')}:{line}" for file, line in places
              if file.startswith(root)]  # fmt: skip
    ours = [f"{file}:{line}" for file, line in places
            if not file.startswith((root, "/")) and "implementations" not in file]  # fmt: skip
    return Finding(
        switch,
        "" if cause is None else cause.name,
        "" if cause is None else cause.evidence,
        theirs[0] if theirs else "",
        ours[0] if ours else "",
    )
