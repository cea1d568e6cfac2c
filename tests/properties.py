"""Run a property of Hypothesis on few examples in the quick suite, and on many in the slow one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings


def examples(quick: int, slow: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a `@given` test without fixtures; the examples are the same in every run.

    Args:
      quick: examples in the quick suite.
      slow: examples in the slow suite.
    """

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        counts = [pytest.param(quick, id="quick")]
        counts.append(pytest.param(slow, id="slow", marks=pytest.mark.slow))

        @pytest.mark.parametrize("count", counts)
        def run(count: int) -> None:
            settings(derandomize=True, deadline=None, max_examples=count, database=None)(test)()

        return run

    return decorate
