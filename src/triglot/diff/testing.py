"""Assert in a test that two networks, or two losses, compute the same function."""

from collections.abc import Mapping

import numpy as np

from ..backends.calling import Inputs
from ..core.errors import TriglotError
from .compare import diff_networks
from .measures.effort import QUICK
from .measures.numbers import OUTPUTS
from .report import DIFFERENT, Report

EPS = float(np.finfo(np.float32).eps)


def assert_same_function(
    reference: object,
    port: object,
    inputs: Inputs | Mapping[str, object] | None = None,
    *,
    mapping: Mapping[str, str] | None = None,
    max_ulps: float | None = None,
    level: str = QUICK,
) -> Report:
    """Fail unless two networks compute the same function with the same weights, for tests of ports.

    Two losses, targets or update steps are compared in the same way:
    `assert_same_function("algorithm:ppo", my_ppo.loss)`.

    Args:
      reference, port, inputs, mapping: the arguments of `diff_networks`.
      max_ulps: largest difference of outputs, in units in the last place of a float32 as large as
        the largest output; None accepts any rounding, which vanishes in float64.
      level: `quick` compares the functions, `standard` gradients and initializers too.

    Returns:
      The report.

    Raises:
      AssertionError: if they differ, with the report.
      TriglotError: if the networks cannot be compared, or `max_ulps` is negative.
    """
    if max_ulps is not None and not max_ulps >= 0:
        raise TriglotError(f"max_ulps must be at least 0, got {max_ulps}.")
    report = diff_networks(reference, port, inputs, mapping=mapping, level=level)
    if report.verdict == DIFFERENT:
        raise AssertionError(str(report))
    outputs = [each for each in report.measurements if each.quantity.name == OUTPUTS]
    ulps = max((each.native.max_rel for each in outputs), default=0.0) / EPS
    if max_ulps is not None and ulps > max_ulps:
        raise AssertionError(
            f"the outputs are {ulps:.3g} units in the last place apart, {max_ulps:g} are allowed"
            f"\n{report}"
        )
    return report
