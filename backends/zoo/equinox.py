"""The former place of `triglot.backends.equinox.zoo`."""

from ..equinox.zoo import make
from . import warn_moved

__all__ = ["make"]

warn_moved(__name__, "triglot.backends.equinox.zoo")
