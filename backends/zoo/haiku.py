"""The former place of `triglot.backends.haiku.zoo`."""

from ..haiku.zoo import make
from . import warn_moved

__all__ = ["make"]

warn_moved(__name__, "triglot.backends.haiku.zoo")
