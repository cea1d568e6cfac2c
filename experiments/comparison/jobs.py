"""A comparison as a list of independent jobs, and the ledger of those that are done.

One job trains one library on one rung in one environment. Its results are a folder, which appears
under its name when the job is done, so that an interrupted comparison continues with the jobs that
are missing; a job that was interrupted continues from its checkpoint in its unfinished folder.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ...core.errors import TriglotError
from ..options import CompareOptions
from ..storage.files import UNFINISHED, make_folder, plain, visible_files, write_json
from .rungs import RUNGS, Rung, rung_named, rung_of_arithmetic

LEDGER = "jobs.json"
JOBS, COSTS = "jobs", "costs"
RESULTS = "results"  # in an unfinished folder, what is renamed when it is complete
SCHEMA = 2
# Options that change no job; another call with the same folder may change them, and adds what is
# missing.
ADDABLE = ("out", "margin", "against", "fail_on", "open", "repetitions", "ladder")


@dataclass(frozen=True)
class Job:
    """One training.

    Attributes:
      env: the environment.
      rung: what the libraries share, by name.
      backend: the library.
      position: number of the environment, for the folder's name.
    """

    env: str
    rung: str
    backend: str
    position: int = 0

    @property
    def name(self) -> str:
        """The folder's name."""
        return f"{self.position}-{self.rung}-{self.backend}"

    @property
    def shared(self) -> Rung:
        """What the libraries share."""
        return rung_named(self.rung)


def job_list(options: CompareOptions) -> list[Job]:
    """List the jobs of a comparison: the rung that is judged first, the reference library first.

    The other rungs of the ladder are trained in the first environment only.
    """
    main = rung_of_arithmetic(options.arithmetic)
    others = [rung for rung in RUNGS if rung is not main] if options.ladder else []
    if options.network:  # custom networks keep their own initializers
        others = [rung for rung in others if rung.name != "initializers"]
    return [
        Job(env, rung.name, backend, position)
        for position, env in enumerate(environments(options))
        for rung in (main, *(others if position == 0 else []))
        for backend in options.libraries
    ]


def environments(options: CompareOptions) -> tuple[str, ...]:
    """List the environments of a comparison."""
    return (options.env, *options.envs)


class Ledger:
    """The folder of a comparison.

    Use `open` to begin or to continue one, under its lock.
    """

    def __init__(self, out: Path) -> None:
        self.out = out

    @classmethod
    def open(cls, out: Path, options: CompareOptions) -> "Ledger":
        """Create the folder, or continue what it holds.

        Raises:
          TriglotError: if the folder holds something else, or a comparison with other options.
        """
        ledger, path = cls(out), out / LEDGER
        chosen = _computing(options)
        if path.exists():
            found = _read(path)
            for name, value in chosen.items():
                if found.get(name) != value:
                    raise TriglotError(
                        f"{out} holds a comparison with {name} {_shown(found.get(name))}, and this "
                        f"command has {_shown(value)}: choose another --out, or the same options "
                        "to continue it."
                    )
            return ledger
        make_folder(out)
        write_json(path, {"schema": SCHEMA, "options": chosen})
        return ledger

    def is_done(self, job: Job) -> bool:
        """Whether a job's results are there."""
        return self.folder(job).is_dir()

    def folder(self, job: Job) -> Path:
        """The folder of a job's results."""
        return self.out / JOBS / job.name

    def weights(self, position: int) -> Path:
        """The file of the shared initial weights in one environment."""
        return self.out / f"initial_params{f'-{position}' if position else ''}.safetensors"

    def costs(self) -> Path:
        """The file of the measured costs."""
        return self.out / JOBS / COSTS / "costs.json"

    def unfinished(self, name: str) -> Path:
        """The folder of what is not done yet, such as the checkpoint of a job."""
        return self.out / JOBS / f"{UNFINISHED}{name}"

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield an empty folder that gets its name when it is complete."""
        unfinished = self.unfinished(name)
        results = unfinished / RESULTS
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir(parents=True)
        yield results
        results.replace(self.out / JOBS / name)
        shutil.rmtree(unfinished, ignore_errors=True)

    def sweep(self) -> None:
        """Remove unfinished folders of jobs that are done, which a kill may have left."""
        for done in (self.out / JOBS).glob("[!.]*"):
            shutil.rmtree(self.unfinished(done.name), ignore_errors=True)

    def drop_if_empty(self) -> None:
        """Remove the folder of a comparison of which nothing was computed."""
        if visible_files(self.out) == [LEDGER]:
            shutil.rmtree(self.out, ignore_errors=True)


def _computing(options: CompareOptions) -> dict[str, Any]:
    """List the options that decide what is computed, as JSON values."""
    named = {one.name: getattr(options, one.name) for one in fields(options)}
    return plain({name: value for name, value in named.items() if name not in ADDABLE})


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TriglotError(
            f"{path} cannot be read ({error}): choose another --out, or delete the folder."
        ) from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise TriglotError(
            f"{path} was written by another version of triglot: choose another --out."
        )
    return found["options"]


def _shown(value: Any) -> str:
    return json.dumps(value)
