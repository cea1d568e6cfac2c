"""The processes of a comparison, of which one works at any time.

Chunks of training take turns in rotating order, so that what the machine does meanwhile meets all
libraries alike.
"""

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias

from safetensors.numpy import save_file
from tqdm import tqdm

from ...core.loop.trainer import chunks
from ..runs.files import make_folder
from .results import Record
from .worker import Worker

if TYPE_CHECKING:
    from .compare import CompareOptions

Workers: TypeAlias = dict[str, Worker]
Records: TypeAlias = dict[str, Record]

DISPATCH_ROUNDS = 3
BAR = "{desc:<28}{bar} {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"  # counts chunks of training


def run_all(options: "CompareOptions", records: Records) -> None:
    """Start, train and question every backend's process, and end them all, whatever happens.

    Args:
      options: what to compare; its folder is made once the first backend has accepted its task.
      records: by backend, empty; they are filled as the processes tell, so that what was told
        before an interruption is there.
    """
    with ExitStack() as stack:
        bar = stack.enter_context(tqdm(bar_format=BAR, dynamic_ncols=True, leave=False))
        workers: Workers = {}
        for backend, record in records.items():
            workers[backend] = stack.enter_context(Worker(backend))
            _prepare(options, workers[backend], record, bar)
        _train(workers, records, bar)
        _finish(options, workers, records, bar)


def _prepare(options: "CompareOptions", worker: Worker, record: Record, bar: tqdm) -> None:
    """Take one backend as far as its compiled program, on the first backend's weights."""
    weights = options.out / "initial_params.safetensors"
    bar.set_description_str(f"{worker.backend} imports and builds")
    record.facts |= worker.ask("start", **asdict(options.task(worker.backend)))[0]
    facts, params = worker.ask("init")
    record.facts |= facts
    if not weights.exists():  # the first backend: its task is accepted, so there will be a run
        make_folder(options.out)
        save_file(params, weights)
        bar.write(_announcement(options, record))
    worker.ask("load", path=str(weights.resolve()))
    bar.set_description_str(f"{worker.backend} compiles")
    record.facts |= worker.ask("compile")[0]


def _announcement(options: "CompareOptions", record: Record) -> str:
    """Say what comes, and that a total was rounded up."""
    updates, per_update = record.facts["num_updates"], record.facts["steps_per_update"]
    text = (
        f"{options.algorithm} on {options.env}, {' '.join(options.backends)}: {options.num_seeds} "
        f"x {updates * per_update:,} steps, {updates:,} updates of {per_update:,} steps"
    )
    if updates * per_update == options.total_steps:
        return text
    return (
        f"{text}\n{options.total_steps:,} steps are no whole number of rollouts of "
        f"{per_update:,}: rounded up to {updates * per_update:,}"
    )


def _train(workers: Workers, records: Records, bar: tqdm) -> None:
    facts = next(iter(records.values())).facts
    counts = list(chunks(facts["num_updates"], facts["chunk_size"]))
    bar.reset(total=len(counts) * len(workers))
    for turn, count in enumerate(counts):
        for backend in _rotated(list(workers), turn):
            bar.set_description_str(f"{backend} trains")
            told, metrics = workers[backend].ask("train", count=count)
            records[backend].add_chunk(count, told["seconds"], metrics)
            bar.update()


def _finish(options: "CompareOptions", workers: Workers, records: Records, bar: tqdm) -> None:
    for turn in range(DISPATCH_ROUNDS):
        for backend in _rotated(list(workers), turn):
            bar.set_description_str(f"{backend} is called singly")
            records[backend].dispatch_seconds += workers[backend].ask("dispatch")[0]["seconds"]
    for backend, worker in workers.items():
        bar.set_description_str(f"{backend} is evaluated")
        facts, params = worker.ask("finish", eval_episodes=options.eval_episodes)
        records[backend].facts |= facts
        records[backend].params = params


def _rotated(names: list[str], turn: int) -> list[str]:
    start = turn % len(names)
    return names[start:] + names[:start]
