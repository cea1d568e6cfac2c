"""What tests of sweeps share."""

from collections.abc import Iterator

import pytest

from triglot.sweep import report


@pytest.fixture(scope="module")
def no_pages() -> Iterator[None]:
    """Draw nothing: test_report.py looks at the report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "page", lambda *given: "")
        patch.setattr(report, "main_charts", lambda result: {})
        yield
