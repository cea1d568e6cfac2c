"""Checkers for custom components: networks, agents and environments.

Each runs an ordered list of checks and returns a `Report`: what was found, why it matters and how
to fix it. `Report.passed` is True if no check failed; print the report to read it.
"""

from .agent.check import check_agent
from .environment.check import check_environment
from .network.check import check_network
from .report import Report

__all__ = ["Report", "check_agent", "check_environment", "check_network"]
