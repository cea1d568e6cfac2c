"""The ledger of a long command: its options, and the jobs that are done.

The results of a job are a folder, which gets its name when the job is done. What is not done yet,
such as the checkpoint of a job, lies in an unfinished folder, and the same command continues there.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from ...core.errors import TriglotError
from ...core.folders import require_plain
from ...core.manifest import DamagedError, check_manifest, write_manifest
from ...core.records import JSON
from ...shared.machine.files import (
    TABLE,
    TEXT,
    UNFINISHED,
    check_fields,
    make_folder,
    plain,
    read_record,
    visible_files,
    write_json,
)
from ...shared.terminal.wrapping import wrapped
from .job import Task

FILE = "jobs.json"
SCHEMA = 4
FIELDS = {"what": TEXT, "options": TABLE, "facts": TABLE}
JOBS = "jobs"
RESULTS = "results"  # in an unfinished folder: what is renamed when it is complete
CHECKPOINTS = "checkpoints"  # in an unfinished folder
RUNNING = ".running"  # in the folder of jobs: what running jobs report and print


class Ledger:
    """The folder of a command with several jobs; `open` begins or continues one.

    Attributes:
      out: the folder.
      facts: what was decided when it was begun; empty in the process of a job.
    """

    def __init__(self, out: Path, facts: JSON | None = None) -> None:
        self.out, self.facts = out, {} if facts is None else facts

    @cached_property
    def options(self) -> JSON:
        """What decides which numbers are computed, as the folder says it."""
        record = read_record(self.out / FILE, FIELDS)
        return {} if record is None else record["options"]

    @classmethod
    def open(cls, out: Path, *, what: str, options: JSON, facts: JSON) -> "Ledger":
        """Create the folder, or continue what it holds.

        Args:
          out: the folder.
          what: such as `sweep`.
          options: what decides which numbers are computed; the same command has the same.
          facts: what this machine decided, such as sizes; what the folder has already wins.

        Raises:
          TriglotError: if the folder holds something else, or was begun with other options.
        """
        options = plain(options)
        record = _read(out, what)
        if record is None:
            make_folder(out)
            content = {"what": what, "schema": SCHEMA, "options": options, "facts": facts}
            write_json(out / FILE, content)
            return cls(out, plain(facts))
        for name in options | record["options"]:
            before, now = record["options"].get(name), options.get(name)
            if before != now:
                raise other_options(out, what, name, before, now)
        return cls(out, record["facts"])

    def folder(self, name: str) -> Path:
        """The folder of a job's results."""
        return self.out / JOBS / name

    def results(self, name: str) -> Path:
        """The folder of a job's results, after checking that they are whole and of this job.

        Raises:
          DamagedError: if a file is missing or was modified, or belongs to another job.
        """
        folder, advice = self.folder(name), "Delete the folder to compute the job again."
        try:
            of = check_manifest(folder, nested=False)
        except DamagedError as error:
            raise DamagedError(f"{error} {advice}") from None
        if of != self._belongs_to(name):
            raise DamagedError(
                f"{folder} holds results of another job or of other options: it was copied. "
                f"{advice}"
            )
        return folder

    def _belongs_to(self, name: str) -> JSON:
        return {"job": name, "options": self.options}

    def is_done(self, name: str) -> bool:
        """Whether a job's results are there."""
        return self.folder(name).is_dir()

    def unfinished(self, name: str) -> Path:
        """The folder of a job that is not done yet."""
        return self.out / JOBS / f"{UNFINISHED}{name}"

    def checkpoints(self, name: str) -> Path:
        """The folder of the checkpoints of a job that is not done yet."""
        return self.unfinished(name) / CHECKPOINTS

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield an empty folder that becomes the job's results when it is complete."""
        unfinished = self.unfinished(name)
        results = unfinished / RESULTS
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir(parents=True)
        yield results
        write_manifest(results, self._belongs_to(name), nested=False)
        results.replace(self.folder(name))
        shutil.rmtree(unfinished, ignore_errors=True)

    def task(
        self, name: str, label: str, function: str, arguments: JSON, size: float = 1.0
    ) -> Task:
        """Describe a job of this folder; see `Task`."""
        return Task(
            name=name,
            label=label,
            function=function,
            arguments=plain(arguments),
            folder=str((self.out / JOBS).resolve() / RUNNING),
            size=size,
        )

    def tidy(self) -> None:
        """Remove what a kill left of jobs that are done."""
        for done in (self.out / JOBS).glob("[!.]*"):
            shutil.rmtree(self.unfinished(done.name), ignore_errors=True)

    @contextmanager
    def continuable(
        self, names: Sequence[str], things: str, is_saved: Callable[[str], bool], command: str
    ) -> Iterator[None]:
        """Say what is done and how to continue, if the block is interrupted or fails.

        A folder without anything in it is removed.

        Args:
          names: of the jobs; more may be added while the block runs.
          things: what they are, such as `batches`.
          is_saved: whether the job of a name that is not done has a checkpoint.
          command: continues.
        """
        try:
            yield
        except BaseException:
            done = sum(map(self.is_done, names))
            saved = sum(is_saved(name) for name in names if not self.is_done(name))
            if done or saved:
                more = f", and {saved} more {'has' if saved == 1 else 'have'} a checkpoint"
                text = f"Stopped: {done} of {len(names)} {things} are done and kept"
                text += f"{more if saved else ''}. Continue by:"
            else:
                text = f"Stopped before any of {len(names)} {things} was saved. Begin again by:"
                if visible_files(self.out) == [FILE]:
                    shutil.rmtree(self.out, ignore_errors=True)
            print(f"{wrapped(text)}\n  {command}", file=sys.stderr)
            raise


def read_facts(out: Path | None, what: str) -> JSON | None:
    """Read what was decided when a folder was begun; None if nothing was begun there.

    Raises:
      TriglotError: if it holds something else.
    """
    record = None if out is None else _read(out, what)
    return None if record is None else record["facts"]


def other_options(out: Path, what: str, name: str, before: object, now: object) -> TriglotError:
    """Say that a folder was begun with another option."""
    return TriglotError(
        f"{out} holds a {what} with {name} {json.dumps(before)}, and this command has "
        f"{json.dumps(now)}: choose another --out, or the same options to continue it."
    )


def _read(out: Path, what: str) -> JSON | None:
    path, advice = out / FILE, "Choose another --out, or delete the folder."
    require_plain(out)
    record = read_record(path, {}, advice)
    if record is None:
        return None
    if record.get("schema") != SCHEMA:
        raise TriglotError(
            f"{path} was written by another version of triglot: choose another --out."
        )
    check_fields(path, record, FIELDS, advice)
    if record["what"] != what:
        raise TriglotError(f"{path} does not belong to a {what}: choose another --out.")
    return record
