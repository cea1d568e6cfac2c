"""The former place of `triglot.backends.linen.zoo`."""

from ..linen.zoo import make
from . import warn_moved

__all__ = ["make"]

warn_moved(__name__, "triglot.backends.linen.zoo")
