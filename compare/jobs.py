"""A comparison as a list of independent jobs, and the ledger of those that are done.

One job trains one library on one rung in one environment. Its results are a folder, which appears
under its name when the job is done, so that an interrupted comparison continues with the jobs that
are missing; a job that was interrupted continues from its checkpoint in its unfinished folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..jobs.ledger import FILE, JobFolders, load, other_options, other_version
from ..machine.files import make_folder, plain, write_json
from .options import CompareOptions
from .rungs import RUNGS, Rung, rung_named, rung_of_arithmetic

COSTS = "costs"
SCHEMA = 2
# Options that change no job; another call with the same folder may change them, and adds what is
# missing.
ADDABLE = (
    "out", "margin", "against", "fail_on", "open", "repetitions", "ladder", "no_preset", "preset",
    "executor", "jobs", "address",
)  # fmt: skip
CORES = "cores_per_training"  # one or all, which decides the last bits
ADDED = {CORES: "all", "devices": 1}  # added to schema 2, with what held before


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


class Ledger(JobFolders):
    """The folder of a comparison.

    Use `open` to begin or to continue one, under its lock.
    """

    @classmethod
    def open(cls, out: Path, options: CompareOptions, *, one_core: bool = False) -> "Ledger":
        """Create the folder, or continue what it holds.

        Args:
          out: the folder.
          options: of the comparison.
          one_core: whether each training has one core, and not all of them.

        Raises:
          TriglotError: if the folder holds something else, or a comparison with other options.
        """
        ledger, path = cls(out), out / FILE
        chosen = _computing(options) | {CORES: "one" if one_core else "all"}
        if path.exists():
            found = {**ADDED, **_read(path)}
            for name, value in chosen.items():
                if found.get(name) != value:
                    raise other_options(out, "comparison", name, found.get(name), value)
            return ledger
        make_folder(out)
        write_json(path, {"schema": SCHEMA, "options": chosen})
        return ledger

    def is_done(self, job: Job) -> bool:
        """Whether a job's results are there."""
        return self.folder(job).is_dir()

    def folder(self, job: Job) -> Path:
        """The folder of a job's results."""
        return self.results(job.name)

    def weights(self, position: int) -> Path:
        """The file of the shared initial weights in one environment."""
        return self.out / f"initial_params{f'-{position}' if position else ''}.safetensors"

    def costs(self) -> Path:
        """The file of the measured costs."""
        return self.results(COSTS) / "costs.json"


def _computing(options: CompareOptions) -> dict[str, Any]:
    """List the options that decide what is computed, as JSON values."""
    named = {one.name: getattr(options, one.name) for one in fields(options)}
    return plain({name: value for name, value in named.items() if name not in ADDABLE})


def recorded_devices(out: Path | None) -> int | None:
    """Return the most devices of each training in a folder; None if nothing was begun there."""
    if out is None or not (out / FILE).exists():
        return None
    return {**ADDED, **_read(out / FILE)}["devices"]


def _read(path: Path) -> Mapping[str, Any]:
    found = load(path)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise other_version(path)
    return found["options"]
