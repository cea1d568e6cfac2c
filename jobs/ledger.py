"""The ledger of a long command: its options, and the jobs that are done.

The results of a job are a folder, which gets its name when the job is done. What is not done yet,
such as the checkpoint of a job, lies in an unfinished folder, and the same command continues there.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.errors import TriglotError
from ..machine.files import UNFINISHED, make_folder, plain, visible_files, write_json

FILE = "jobs.json"
JOBS = "jobs"
RESULTS = "results"  # in an unfinished folder: what is renamed when it is complete


class JobFolders:
    """The folders of the jobs of one command, done and unfinished, by the jobs' names.

    Attributes:
      out: the command's folder.
    """

    def __init__(self, out: Path) -> None:
        self.out = out

    def results(self, name: str) -> Path:
        """The folder of a job's results."""
        return self.out / JOBS / name

    def unfinished(self, name: str) -> Path:
        """The folder of a job that is not done yet."""
        return self.out / JOBS / f"{UNFINISHED}{name}"

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield an empty folder that becomes the job's results when it is complete."""
        unfinished = self.unfinished(name)
        results = unfinished / RESULTS
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir(parents=True)
        yield results
        results.replace(self.results(name))
        shutil.rmtree(unfinished, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a kill left of jobs that are done."""
        for done in (self.out / JOBS).glob("[!.]*"):
            shutil.rmtree(self.unfinished(done.name), ignore_errors=True)

    def drop_if_empty(self) -> None:
        """Remove the folder if nothing was computed."""
        if visible_files(self.out) == [FILE]:
            shutil.rmtree(self.out, ignore_errors=True)


class Ledger(JobFolders):
    """The folder of a command with several jobs; `open` begins or continues one.

    Attributes:
      out: the folder.
      facts: what was decided when it was begun.
    """

    def __init__(self, out: Path, facts: Mapping[str, Any]) -> None:
        super().__init__(out)
        self.facts = facts

    @classmethod
    def open(
        cls,
        out: Path,
        *,
        what: str,
        schema: int,
        options: Mapping[str, Any],
        facts: Mapping[str, Any],
    ) -> "Ledger":
        """Create the folder, or continue what it holds.

        Args:
          out: the folder.
          what: such as `sweep`.
          schema: of the files.
          options: what decides which numbers are computed; the same command has the same.
          facts: what this machine decided, such as sizes; what the folder has already wins.

        Raises:
          TriglotError: if the folder holds something else, or was begun with other options.
        """
        path, options = out / FILE, plain(options)
        if not path.exists():
            make_folder(out)
            content = {"what": what, "schema": schema, "options": options, "facts": facts}
            write_json(path, content)
            return cls(out, plain(facts))
        found = _read(path, what, schema)
        for name in options | found["options"]:
            before, now = found["options"].get(name), options.get(name)
            if before != now:
                raise other_options(out, what, name, before, now)
        return cls(out, found["facts"])

    def folder(self, name: str) -> Path:
        """The folder of a job's results."""
        return self.results(name)

    def is_done(self, name: str) -> bool:
        """Whether a job's results are there."""
        return self.folder(name).is_dir()


def other_options(out: Path, what: str, name: str, before: Any, now: Any) -> TriglotError:
    """Say that a folder was begun with another option."""
    return TriglotError(
        f"{out} holds a {what} with {name} {json.dumps(before)}, and this command has "
        f"{json.dumps(now)}: choose another --out, or the same options to continue it."
    )


def load(path: Path) -> Any:
    """Read the file of a ledger.

    Raises:
      TriglotError: if it cannot be read.
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TriglotError(
            f"{path} cannot be read ({error}): choose another --out, or delete the folder."
        ) from None


def other_version(path: Path) -> TriglotError:
    """Say that the file of a ledger has another schema."""
    return TriglotError(f"{path} was written by another version of triglot: choose another --out.")


def _read(path: Path, what: str, schema: int) -> Mapping[str, Any]:
    found = load(path)
    if not isinstance(found, dict) or found.get("what") != what:
        raise TriglotError(f"{path} does not belong to a {what}: choose another --out.")
    if found.get("schema") != schema:
        raise other_version(path)
    return found
