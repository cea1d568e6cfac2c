"""A comparison as a list of independent jobs.

One job trains one library on one rung in one environment. Its results are a folder, which appears
under its name when the job is done, so that an interrupted comparison continues with the jobs that
are missing; a job that was interrupted continues from its checkpoint in its unfinished folder.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..core.errors import TriglotError, counted
from ..core.records import JSONDict
from ..runs.jobs.choose import Executor
from ..runs.jobs.job import Task
from ..runs.jobs.ledger import Ledger
from ..runs.jobs.local import LocalExecutor
from ..runs.jobs.run import run_tasks
from ..shared.machine.cores import free_cores
from ..shared.machine.files import plain
from ..shared.machine.interrupt import Interrupt
from .options import CompareOptions
from .rungs import RUNGS, Rung, rung_named, rung_of_arithmetic

WHAT = "comparison"
# What a process calls: it imports JAX and the library, timed, and then a function of this package.
START = f"{__package__}.start:start"
TRAIN = f"{__package__}.training.train"
# Options that change no job; another call with the same folder may change them, and adds what is
# missing. Whether `devices` may change is decided by the folder's facts.
ADDABLE = (
    "out", "margin", "against", "fail_on", "open", "repetitions", "ladder", "no_preset", "preset",
    "executor", "jobs", "address", "devices",
)  # fmt: skip


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
    def label(self) -> str:
        """What the user sees."""
        return f"{self.rung} {self.backend}"

    @property
    def shared(self) -> Rung:
        """What the libraries share."""
        return rung_named(self.rung)


@dataclass(frozen=True)
class Failure:
    """A job that could not be done.

    Attributes:
      job: which one.
      stage: what it was doing.
      message: why it failed.
    """

    job: Job
    stage: str
    message: str

    def as_json(self) -> JSONDict:
        """Give the entry of `comparison.json`."""
        names = ("backend", "rung", "env")
        facts = {name: getattr(self.job, name) for name in names}
        return {**facts, "stage": self.stage, "message": self.message}


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


def size_of(jobs: Sequence[Job]) -> str:
    """Describe how many trainings a comparison has.

    >>> size_of([Job("probe:reach", "weights", name) for name in ("haiku", "linen")])
    '2 trainings: 2 libraries'
    """
    num_libraries = len({job.backend for job in jobs})
    num_rungs = len({job.rung for job in jobs})
    num_envs = len({job.env for job in jobs})
    parts = [f"{num_libraries} libraries"]
    if num_rungs > 1:
        parts.append(f"{num_rungs} rungs")
    if num_envs > 1:
        only = "; the ladder in the first" if num_rungs > 1 else ""
        parts.append(f"{counted(num_envs, 'environment')}{only}")
    return f"{counted(len(jobs), 'training')}: {', '.join(parts)}"


def environments(options: CompareOptions) -> tuple[str, ...]:
    """List the environments of a comparison."""
    return (options.env, *options.envs)


def weights_file(out: Path, position: int) -> Path:
    """The file of the shared initial weights in one environment of a comparison."""
    return out / f"initial_params{f'-{position}' if position else ''}.safetensors"


def computing(options: CompareOptions) -> JSONDict:
    """List the options that decide what is computed, as JSON values."""
    return plain({name: value for name, value in vars(options).items() if name not in ADDABLE})


def run_jobs(
    executor: Executor | None, options: CompareOptions, ledger: Ledger, jobs: Sequence[Job]
) -> list[Failure]:
    """Run the trainings that are not done yet; a library that fails does not stop the others.

    Without an executor, one trains after the other with all cores. Where costs are measured by
    themselves, the next one imports and compiles meanwhile.

    Args:
      executor: runs them at the same time, each on one core; None for one after the other.
      options: of the comparison, with `out`.
      ledger: its folder.
      jobs: all of them, the reference library first in each environment.

    Returns:
      The failures, of which the job's results are missing.

    Raises:
      TriglotError: if the initial weights could not be computed.
      Signalled: after an interruption, of which checkpoints are kept.
    """
    left = [job for job in jobs if not ledger.is_done(job.name)]
    missing: dict[int, list[Job]] = {}  # of those that share weights, by environment
    for job in left:
        if job.shared.shared_weights and not weights_file(ledger.out, job.position).exists():
            missing.setdefault(job.position, []).append(job)
    leading = [sharing[0] for sharing in missing.values()]

    def task(name: str, label: str, backend: str, function: str, **arguments: object) -> Task:
        chosen = arguments_of(options, backend, f"{TRAIN}:{function}")
        return ledger.task(name, label, START, chosen | arguments)

    trainings = [
        task(job.name, job.label, job.backend, "train", job=asdict(job), leads=job in leading)
        for job in left
    ]
    weights: list[Task] = []
    if executor is not None:
        # All libraries load the weights of the first, whichever of them is trained first.
        weights = [
            task(
                f"weights-{position}",
                f"initial weights on {sharing[0].env}",
                sharing[0].backend,
                "write_weights",
                jobs=[asdict(sharing_job) for sharing_job in sharing],
            )
            for position, sharing in missing.items()
        ]
    else:  # where costs are not measured, the report shows how long a job prepares
        ahead = int(options.repetitions > 0 and len(free_cores()) > 1)
        executor = LocalExecutor(1, one_core=False, ahead=ahead)
    with Interrupt() as interrupt:
        outcomes = run_tasks(executor, weights, interrupt)
        outcomes |= run_tasks(executor, trainings, interrupt)
    interrupt.check()
    for weights_outcome in (outcomes[weights_task.name] for weights_task in weights):
        if weights_outcome.is_lost:
            raise TriglotError(
                f"the initial weights could not be computed. {weights_outcome.message}"
            )
    return [
        Failure(job, outcome.phase or "import and build", outcome.message)
        for job in left
        if (outcome := outcomes[job.name]).is_lost
    ]


def arguments_of(options: CompareOptions, backend: str, function: str) -> JSONDict:
    """Build the arguments with which a process starts; see `start`."""
    resolved = {
        name: path.resolve()
        for name in ("out", "mapping")
        if (path := getattr(options, name)) is not None
    }
    shown = plain(vars(replace(options, **resolved)))
    return {"options": shown, "backend": backend, "function": function}
