"""The checkpoint of a job that is not finished: the state of its seeds, and the record so far."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import TriglotError, describe, writing
from ...core.loop.checkpoint import UNFINISHED, check_manifest, write_manifest
from ..results import Record

if TYPE_CHECKING:
    from .session import Session


@dataclass(frozen=True)
class Saved:
    """The checkpoint of one job.

    Attributes:
      folder: the job's unfinished folder. A checkpoint is a folder in it, named by the updates
        done; only the last one is kept.
    """

    folder: Path

    def newest(self) -> Path | None:
        """The folder of the last checkpoint; None if there is none."""
        found = [path for path in self.folder.glob("*") if path.name.isdigit()]
        return max(found, key=lambda path: int(path.name), default=None)

    def save(self, session: "Session", record: Record) -> None:
        """Write a checkpoint, atomically, unless there is one of as many updates.

        Raises:
          CannotWrite: if the disk is full, or the folder is read-only; the one before is kept.
        """
        path = self.folder / f"{record.updates:08d}"
        if path.exists():
            return
        unfinished = path.with_name(f"{UNFINISHED}{path.name}")
        with writing(path):
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
        session.save(unfinished)
        with writing(path):
            record.save(unfinished)
            write_manifest(unfinished)
            unfinished.replace(path)
        for old in self.folder.iterdir():
            if old != path:
                shutil.rmtree(old, ignore_errors=True)

    def load(self) -> Record | None:
        """Read the record of the last checkpoint; None if there is no checkpoint.

        Raises:
          TriglotError: if it is damaged.
        """
        newest = self.newest()
        if newest is None:
            return None
        try:
            check_manifest(newest)
            record = Record.load(newest)
        # A folder of another version may hold anything.
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise TriglotError(f"{describe(error)}.") from None
        record.process = 1 + max(chunk.get("process", 0) for chunk in record.chunks)
        return record

    def drop(self) -> None:
        """Delete the checkpoint."""
        shutil.rmtree(self.folder, ignore_errors=True)
