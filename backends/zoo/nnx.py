"""The former place of `triglot.backends.nnx.zoo`."""

from ..nnx.zoo import make
from . import warn_moved

__all__ = ["make"]

warn_moved(__name__, "triglot.backends.nnx.zoo")
