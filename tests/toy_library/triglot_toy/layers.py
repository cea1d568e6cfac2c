"""The toy library's layers, and how their arrays are stored."""

from triglot.backends.layers.kinds import DENSE
from triglot.backends.layers.rules import define, stored
from triglot.backends.layers.storage import Storage

STORAGE = Storage(
    layers=define(DENSE, "Dense", {"weights": stored("kernel", 2), "offset": stored("bias", 1)})
)
