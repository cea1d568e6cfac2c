"""`check_network`: check a network before it trains."""

from typing import Any

from ..purity import purity_checks
from ..report import Checklist, Report
from . import outputs, protocol
from .case import NetworkCase

PURITY = purity_checks(needs=["training"])
CHECKS: Checklist[Any] = Checklist([*protocol.CHECKS.checks, *PURITY, *outputs.CHECKS.checks])


def check_network(network: Any, obs_spec: Any, *, seed: int = 0) -> Report:
    """Check a network: its outputs, its purity, its gradients and its carry.

    Args:
      network: a `triglot.Network`; anything else is reported as a failure.
      obs_spec: the spec of one observation, such as `env.obs_spec`; a tuple for several inputs.
      seed: random seed of the keys and observations.

    Returns:
      The report. Exceptions raised by the network are findings in it.
    """
    name = getattr(network, "name", None)
    title = repr(name) if isinstance(name, str) else f"of type {type(network).__name__}"
    return CHECKS.report(f"network {title}", NetworkCase(network, obs_spec, seed))
