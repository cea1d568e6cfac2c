"""The algorithms, one file each: config, state, agent."""

from ..core import rl as _rl  # noqa: F401  # imports rlax, which takes half a second otherwise
