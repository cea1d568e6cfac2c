"""Property-based tests: the same few examples in every run, many more in `pytest -m slow`."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings


def examples(quick: int, slow: int, **strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """Make a test of a property that runs on `quick` random examples, and on `slow` ones if slow.

    Args:
      strategies: hypothesis strategies by name of the property's arguments.
    """
    budgets = [
        pytest.param(quick, id="quick"),
        pytest.param(slow, id="slow", marks=pytest.mark.slow),
    ]

    def decorate(check: Callable[..., None]) -> Any:
        @pytest.mark.parametrize("max_examples", budgets)
        def run(max_examples: int) -> None:
            options = settings(
                derandomize=True,
                deadline=None,
                max_examples=max_examples,
                # Each example compiles: it is slow, and shrinking a failing one would take minutes.
                suppress_health_check=[HealthCheck.too_slow],
                phases=[Phase.explicit, Phase.generate],
            )
            options(given(**strategies)(check))()

        run.__doc__ = check.__doc__
        return run

    return decorate
