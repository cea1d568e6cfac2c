"""The checker of networks."""

from typing import Any

from ..report import Report
from .case import NetworkCase
from .transforms import CHECKS


def check_network(network: Any, obs_spec: Any, *, seed: int = 0) -> Report:
    """Check a network before it trains: what it answers, under which transformations.

    Args:
      network: a `triglot.Network`, or what somebody takes for one.
      obs_spec: one observation, such as `env.obs_spec`; a tuple of specs for several inputs.
      seed: of the keys and observations it is tried with.

    Returns:
      The report; print it to read what was found, why it matters and how to mend it. Nothing that
      the network does raises an exception here.
    """
    case = NetworkCase(network, obs_spec, seed)
    results = tuple(CHECKS.run(case))
    name = getattr(network, "name", None)
    called = repr(name) if isinstance(name, str) else f"of type {type(network).__name__}"
    return Report(f"network {called}", results, tuple(case.notes))
