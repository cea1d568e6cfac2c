"""Compare a part with triglot's, switch by switch, until `diff` finds them equivalent."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from triglot import diff_networks
from triglot.diff.report import DIFFERENT, Report
from triglot.diff.types import Cause

from .parts import PARTS, SWITCHES, Function, Project, Theirs
from .sources import Checkout, SourceError

ROOT, OURS = Path(__file__).parents[2], "triglot/"
LINE = re.compile(r"(?P<file>[\w./-]+\.py):(?P<line>\d+)")


@dataclass(frozen=True)
class Finding:
    """One difference.

    Attributes:
      switch: its name in `SWITCHES`.
      cause: the name that `diff` gave it; empty if it named no right one.
      theirs, ours: the lines, `file:line`, that `diff` named, else those that have the code.
      by_hand: which of both lines `diff` did not name: `theirs`, `ours`.
    """

    switch: str
    cause: str
    theirs: str
    ours: str
    by_hand: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """A part beside triglot's.

    Attributes:
      project, part: their names.
      defaults: whether each side had its own default hyperparameters, and not equal ones.
      findings: the differences, in the order in which they were found.
      verdicts: what `diff` said before and after each switch.
      others: causes that `diff` named in some round, and that belong to no switch.
      seconds: of the first comparison.
    """

    project: str
    part: str
    defaults: bool
    findings: tuple[Finding, ...]
    verdicts: tuple[str, ...]
    others: tuple[str, ...]
    seconds: float


def compare(
    project: Project, checkout: Checkout, part: str, theirs: Theirs, *, defaults: bool
) -> Comparison:
    """Compare one part.

    Args:
      project: whose part it is.
      checkout: the files.
      part: a name of `PARTS`.
      theirs: the other side.
      defaults: whether it has its default hyperparameters.
    """
    remaining = [*theirs.switches]
    applied: list[str] = []
    findings: list[Finding] = []
    others: list[str] = []
    started = time.perf_counter()
    report = _difference(part, frozenset(), theirs.function, project)
    seconds = time.perf_counter() - started
    verdicts = [report.verdict]
    while report.verdict == DIFFERENT and remaining:
        named = [each for each in remaining if _cause_of(each, report)]
        for name in named or remaining[:1]:
            findings.append(_finding(name, report, checkout, theirs))
            remaining.remove(name)
            applied.append(name)
        known = {cause for each in named for cause in SWITCHES[each].causes}
        others += [
            f"{cause.name}: {cause.evidence.replace(f'{checkout.path}/', '').replace(OURS, '')}"
            for cause in report.causes
            if cause.name not in known and cause.name != "initializer"
        ]
        report = _difference(part, frozenset(applied), theirs.function, project)
        verdicts.append(report.verdict)
    return Comparison(
        project.name, part, defaults, tuple(findings), tuple(verdicts), tuple(others), seconds
    )


def _difference(
    part: str, switches: frozenset[str], function: Function, project: Project
) -> Report:
    names = (f"triglot, {part}", f"{project.name}, {part}")
    ours = PARTS[part].ours(switches)
    return diff_networks(ours, function, PARTS[part].inputs, names=names, level="standard")


def _cause_of(switch: str, report: Report) -> Cause | None:
    """Return the cause of a report that is right for a switch; None if there is none."""
    right = SWITCHES[switch].causes
    return next((cause for cause in report.causes if cause.name in right), None)


def _finding(switch: str, report: Report, checkout: Checkout, part: Theirs) -> Finding:
    cause = _cause_of(switch, report)
    where = "" if cause is None else f"{cause.where} {cause.evidence}"
    places = [(found["file"], found["line"]) for found in LINE.finditer(where)]
    lines = {
        side: [
            f"{file.removeprefix(root)}:{line}" for file, line in places if file.startswith(root)
        ]
        for side, root in (("theirs", f"{checkout.path}/"), ("ours", OURS))
    }
    by_hand = tuple(side for side, found in lines.items() if not found)
    known = SWITCHES[switch]
    if not lines["theirs"] and switch in part.lines:
        lines["theirs"] = [line_with(checkout.path, *part.lines[switch])]
    if not lines["ours"]:
        lines["ours"] = [line_with(ROOT, known.file, known.code)]
    return Finding(
        switch,
        "" if cause is None else cause.name,
        "".join(lines["theirs"][:1]),
        lines["ours"][0],
        by_hand,
    )


def line_with(folder: Path, file: str, code: str) -> str:
    """Return `file:line` of the first line of a file that has some code.

    Raises:
      SourceError: if no line has it.
    """
    for number, line in enumerate((folder / file).read_text().splitlines(), start=1):
        if code in line:
            return f"{file}:{number}"
    raise SourceError(f"{folder / file} has no line with {code!r}.")
