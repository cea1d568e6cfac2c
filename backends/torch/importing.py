"""Import torchax, which turns PyTorch's operations into JAX's, without side effects.

torchax 0.0.13 looks up overloads of operations on named tensors, which PyTorch dropped in 2.10. It
enters them in tables and never calls them, so a stand-in serves.
"""

import functools
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import jax

from ...core.errors import MissingExtra, TriglotError, describe, require

TELEMETRY = "ENABLE_RUNTIME_UPTIME_TELEMETRY"  # torchax sets it


class DroppedOverload:
    """Stands in for an overload on named tensors in torchax's tables."""


@functools.cache
def load_torchax() -> Any:
    """Import PyTorch and torchax with its tables of operations.

    What importing torchax changes is set back: PyTorch's fast path of attention and an environment
    variable. It names PyTorch's spare device type `jax`, which cannot be undone; PyTorch still
    finds no such device, so that its other functions do not look for one.

    Returns:
      The module `torchax`.

    Raises:
      MissingExtra: if one of them is not installed.
      TriglotError: if the installed versions do not fit.
    """
    torch = require("torch", "torch")
    fast_path, telemetry = torch.backends.mha.get_fastpath_enabled(), os.environ.get(TELEMETRY)
    try:
        with stand_ins(torch), jax.ensure_compile_time_eval():
            torchax = require("torchax", "torch")
            importlib.import_module("torchax.tensor").Environment()  # it imports the tables
        torchax.device_module.is_available = lambda: False
        torchax.device_module.device_count = lambda: 0
    except MissingExtra:
        raise
    except Exception as error:
        raise TriglotError(
            f"torchax {version('torchax')} cannot be imported with torch {version('torch')} "
            f"({describe(error)}): run `pip install 'triglot[torch]'`, which installs versions "
            "that fit."
        ) from None
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        if telemetry is None:
            os.environ.pop(TELEMETRY, None)
    return torchax


@contextmanager
def stand_ins(torch: Any) -> Iterator[None]:
    """Look up a stand-in for each missing overload on named tensors; other names fail as before."""
    packet = torch._ops.OpOverloadPacket
    look_up = packet.__getattr__

    def with_stand_ins(self: Any, name: str) -> Any:
        try:
            return look_up(self, name)
        except AttributeError:
            if "dimname" in name.lower() or "names" in name.split("_"):
                return DroppedOverload()
            raise

    packet.__getattr__ = with_stand_ins
    try:
        yield
    finally:
        packet.__getattr__ = look_up
