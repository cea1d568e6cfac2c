"""Drive the processes of a comparison, one at a time.

The processes train their chunks in rotating order, so that other load on the machine affects all
libraries alike.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from safetensors.numpy import save_file
from tqdm import tqdm

from ...core.loop.chunks import chunk_sizes
from ..options import CompareOptions
from ..runs.plan import rounded_up
from ..storage.files import make_folder, plain
from .results import Record
from .worker import Worker

Workers: TypeAlias = dict[str, Worker]
Records: TypeAlias = dict[str, Record]

DISPATCH_ROUNDS = 3
BAR = "{desc:<28}{bar} {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"  # counts chunks of training


def run_all(options: CompareOptions, out: Path, records: Records) -> None:
    """Start, train and evaluate every backend's process; all processes end with this function.

    Args:
      options: what to compare.
      out: the folder, which is created once the first backend has accepted the options.
      records: by backend, empty. They are filled while the processes run, so that they hold all
        results before an interruption.
    """
    with ExitStack() as stack:
        bar = stack.enter_context(tqdm(bar_format=BAR, dynamic_ncols=True, leave=False))
        workers: Workers = {}
        for backend, record in records.items():
            workers[backend] = stack.enter_context(Worker(backend))
            _prepare(options, out, workers[backend], record, bar)
        _train(workers, records, bar)
        _finish(options, workers, records, bar)


def _prepare(options: CompareOptions, out: Path, worker: Worker, record: Record, bar: tqdm) -> None:
    """Build and compile one backend's program, with the first backend's weights."""
    weights = out / "initial_params.safetensors"
    bar.set_description_str(f"{worker.backend}: import and build")
    task = plain(vars(options))
    record.facts |= worker.ask("start", backend=worker.backend, options=task)[0]
    facts, params = worker.ask("init")
    record.facts |= facts
    if not weights.exists():  # the first backend, which has accepted the options
        make_folder(out)
        save_file(params, weights)
        bar.write(_announcement(options, record))
    worker.ask("load", path=str(weights.resolve()))
    bar.set_description_str(f"{worker.backend}: compile")
    record.facts |= worker.ask("compile")[0]


def _announcement(options: CompareOptions, record: Record) -> str:
    """Describe the comparison, and whether the total was rounded up."""
    updates, per_update = record.facts["num_updates"], record.facts["steps_per_update"]
    text = (
        f"{options.algorithm} on {options.env}, {' '.join(options.backends)}: {options.num_seeds} "
        f"x {updates * per_update:,} steps, {updates:,} updates of {per_update:,} steps"
    )
    if updates * per_update == options.total_steps:
        return text
    return f"{text}\n{rounded_up(options.total_steps, per_update, updates * per_update)}"


def _train(workers: Workers, records: Records, bar: tqdm) -> None:
    facts = next(iter(records.values())).facts
    counts = list(chunk_sizes(facts["num_updates"], facts["chunk_size"]))
    bar.reset(total=len(counts) * len(workers))
    for turn, count in enumerate(counts):
        for backend in _rotated(list(workers), turn):
            bar.set_description_str(f"{backend}: train")
            timing, metrics = workers[backend].ask("train", count=count)
            records[backend].add_chunk(count, timing["seconds"], metrics)
            bar.update()


def _finish(options: CompareOptions, workers: Workers, records: Records, bar: tqdm) -> None:
    for turn in range(DISPATCH_ROUNDS):
        for backend in _rotated(list(workers), turn):
            bar.set_description_str(f"{backend}: time single calls")
            records[backend].dispatch_seconds += workers[backend].ask("dispatch")[0]["seconds"]
    for backend, worker in workers.items():
        bar.set_description_str(f"{backend}: evaluate")
        facts, params = worker.ask("finish", eval_episodes=options.eval_episodes)
        records[backend].facts |= facts
        records[backend].params = params


def _rotated(names: list[str], turn: int) -> list[str]:
    start = turn % len(names)
    return names[start:] + names[:start]
