"""Which defects the quick tests try, and what a checker says of one."""

from collections.abc import Sequence
from typing import Any

import pytest

from triglot.checks.report import Report, Result


def marks(checks: Sequence[str]) -> list[tuple[pytest.MarkDecorator, ...]]:
    """Mark defects, given the check that finds each: all but the first of a check are slow."""
    return [(pytest.mark.slow,) if check in checks[:n] else () for n, check in enumerate(checks)]


def cases(broken: Sequence[Any]) -> list[Any]:
    """Name and mark defects that have the fields `check` and `defect`."""
    marked = zip(broken, marks([one.check for one in broken]), strict=True)
    return [pytest.param(one, id=f"{one.check}: {one.defect}", marks=slow) for one, slow in marked]


def only_failure(report: Report, check: str, *also: str) -> Result:
    """Assert that one check failed, with a finding of one line, and none but those of `also`."""
    assert set(report.failed) == {check, *also}, str(report)
    (result,) = [r for r in report.results if r.outcome == "failed" and r.name == check]
    assert result.found and result.fix and result.why
    assert "\n" not in result.found and "Traceback" not in str(report)
    return result
