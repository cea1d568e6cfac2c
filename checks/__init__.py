"""Checkers for parts that people bring: networks, agents and environments.

Each asks its questions in order, and answers with what was found, why it matters and how to mend
it. `Report.passed` says whether all went well; print the report to read it.
"""

from .agent.check import check_agent
from .environment.check import check_environment
from .network.check import check_network
from .report import Report

__all__ = ["Report", "check_agent", "check_environment", "check_network"]
