"""The state of a run, from its files alone: nothing is locked, so that no writer is disturbed."""

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from ...machine.files import HOLDER
from ..resume.resuming import recorded_progress
from ..summary import REACHED

SUMMARY = "summary.json"
RUNNING = "running"


def state_of(folder: Path) -> str:
    """Name the state of a run: running, finished, stopped, interrupted, diverged or killed.

    A run that another machine writes counts as running until it writes its summary.
    """
    summary, holder = read_json(folder / SUMMARY), read_json(folder / HOLDER)
    if holder and _written(folder / SUMMARY) < _written(folder / HOLDER) and _lives(folder, holder):
        return RUNNING
    return ended_state(folder, summary)


def ended_state(folder: Path, summary: Mapping[str, Any]) -> str:
    """Name the state of a run that no program writes; see `state_of`."""
    if not summary or recorded_progress(folder) > summary["num_updates"]:
        return "killed"
    if summary["diverged"]:
        return "diverged"
    if summary.get(REACHED):
        return "stopped"
    return "interrupted" if summary["interrupted"] else "finished"


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if there is none, or it is damaged."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lives(folder: Path, holder: Mapping[str, Any]) -> bool:
    """Return whether the program that wrote `holder` runs; True if that cannot be known here."""
    if holder.get("host") != platform.node():
        return True
    try:
        # Another program may have got the number since.
        return psutil.Process(holder["pid"]).create_time() <= _written(folder / HOLDER) + 1
    except (psutil.NoSuchProcess, KeyError, TypeError, ValueError):
        return False
    except psutil.Error:  # of another user
        return True


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
