"""Which defects the quick tests try."""

from collections.abc import Sequence

import pytest


def marks(checks: Sequence[str]) -> list[tuple[pytest.MarkDecorator, ...]]:
    """Mark defects, given the check that finds each: all but the first of a check are slow."""
    return [(pytest.mark.slow,) if check in checks[:n] else () for n, check in enumerate(checks)]
