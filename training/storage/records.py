"""The records of a run beside its options, and what they say about its state."""

from pathlib import Path
from typing import Any

from ...machine.files import Fields, read_record
from .lock import is_written

PROGRESS = "progress.json"  # outside the checkpoints, so that their loss is noticed
SUMMARY = "summary.json"
BEST = "best.json"
REACHED = "reached"  # a field of the summary, which earlier versions did not write
RUNNING = "running"
# Of each record, the fields that are read, and what to do if it is damaged.
_KINDS: dict[str, tuple[Fields, str]] = {
    PROGRESS: ({"num_updates": int}, "Delete it: the run continues from its last checkpoint."),
    SUMMARY: (
        {
            "num_updates": int,
            "interrupted": bool,
            "diverged": str | None,
            "evaluation": dict | None,
        },
        "Delete it: `triglot resume` writes it again.",
    ),
    BEST: (
        {"num_updates": int, "return_mean": int | float},
        "Delete it: the next evaluation writes it again, and keeps its checkpoint as the best.",
    ),
}


def recorded(folder: Path, name: str) -> dict[str, Any] | None:
    """Read `progress.json`, `summary.json` or `best.json` of a run; None if there is none.

    Raises:
      DamagedRecord: if it is damaged.
    """
    return read_record(folder / name, *_KINDS[name])


def recorded_progress(folder: Path) -> int:
    """Read after how many updates the last checkpoint was written; 0 if none was.

    Raises:
      DamagedRecord: if the record is damaged.
    """
    found = recorded(folder, PROGRESS)
    return found["num_updates"] if found else 0


def state_of(folder: Path) -> str:
    """Name the state of a run: running, finished, stopped, interrupted, diverged or killed.

    Raises:
      DamagedRecord: if a record is damaged.
    """
    summary = recorded(folder, SUMMARY)
    if is_written(folder, until=SUMMARY):
        return RUNNING
    if summary is None or recorded_progress(folder) > summary["num_updates"]:
        return "killed"
    if summary["diverged"]:
        return "diverged"
    if summary.get(REACHED):
        return "stopped"
    return "interrupted" if summary["interrupted"] else "finished"
