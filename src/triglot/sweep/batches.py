"""Divide the trainings of a sweep into batches, each one compiled program, that fit in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from ..core.errors import TriglotError, counted, user_error_context
from ..shared.machine import memory
from .learning import Learning
from .plan import Group, SweepPlan

# Of the free memory; the rest is for gradients and other temporary arrays, which are not counted.
SHARE = 0.5
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
METRICS = 20  # that an update has, about


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Trainings that one call of a compiled program continues together.

    Attributes:
      name: of its folder.
      group: number of the group.
      settings: `[S]`, the number of each training's setting.
      seeds: `[S]`, the number of each training's seed.
      start: updates done before.
      stop: updates done at the end.
      is_last: whether the trainings are then complete.
    """

    name: str
    group: int
    settings: tuple[int, ...]
    seeds: tuple[int, ...]
    start: int
    stop: int
    is_last: bool = True

    def __len__(self) -> int:
        return len(self.settings)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Setting and seed of each training."""
        return list(zip(self.settings, self.seeds, strict=True))


def capacities(plan: SweepPlan, bytes_per_job: int | None = None) -> list[int]:
    """Choose how many trainings of each group fit in memory at the same time.

    Args:
      plan: the sweep.
      bytes_per_job: the memory of each batch; None for all that is free.

    Raises:
      TriglotError: if a single training, or what `--batch` asks for, does not fit.
    """
    return [_capacity(group, plan.options.batch, bytes_per_job) for group in plan.groups]


def bytes_of_one(group: Group) -> memory.Parts:
    """Estimate the memory of one training."""
    options = group.options
    with user_error_context(f"{options.algorithm} on {options.env} failed when it was traced"):
        parts = memory.of_training(
            replace(group.experiment, num_seeds=1, hyper=group.hypers[0]),
            num_lines=0,
            eval_episodes=options.eval_episodes,
        )
    in_chunk = group.experiment.chunk_size * METRICS * 4
    return parts | {"metrics": in_chunk + Learning.empty(1, group.num_updates).nbytes}


def _capacity(group: Group, batch: int | None, bytes_per_job: int | None) -> int:
    parts = bytes_of_one(group)
    size = max(1, sum(parts.values()))
    if bytes_per_job is None:
        memory.check(parts)
    elif size > bytes_per_job:
        raise TriglotError(
            f"one training needs at least {_bytes(size)} of memory, and each job has "
            f"{_bytes(bytes_per_job)}: lower --jobs, or choose --executor sequential."
        )
    free = _free() if bytes_per_job is None else bytes_per_job
    if batch is None:
        return max(1, int(SHARE * free // size))
    together = min(batch, len(group.settings) * group.options.num_seeds)
    if together * size > free:
        raise TriglotError(
            f"--batch {batch} needs at least {_bytes(together * size)} of memory, and "
            f"{_bytes(free)} are free: lower it, or leave it out."
        )
    return batch


def _free() -> int:
    on_device = memory.device_free()
    return memory.free() if on_device is None else on_device


def divide(
    plan: SweepPlan,
    sizes: Sequence[int],
    *,
    stage: int,
    settings: Sequence[int],
    spans: Sequence[tuple[int, int]],
    is_last: bool,
    prefix: str = "",
) -> list[Batch]:
    """Divide the trainings of some settings into batches of about equal size.

    The seeds of a setting stay together if they fit.

    Args:
      plan: the sweep.
      sizes: the most trainings in a batch, by group.
      stage: 0, or the number of rungs of successive halving before.
      settings: the settings that are still trained.
      spans: updates done before and after, by group.
      is_last: whether the trainings are then complete.
      prefix: of the batches' names.
    """
    alive = set(settings)
    batches = []
    for number, (group, size) in enumerate(zip(plan.groups, sizes, strict=True)):
        seeds = range(group.options.num_seeds)
        pairs = [
            (setting, seed) for setting in group.settings if setting in alive for seed in seeds
        ]
        together = len(seeds) if size >= len(seeds) else 1
        units = [pairs[i : i + together] for i in range(0, len(pairs), together)]
        count = -(-len(units) // (size // together))
        for index, part in enumerate(np.array_split(np.arange(len(units)), count or 1)):
            chosen = [pair for unit in part for pair in units[unit]]
            if chosen:
                batches.append(
                    Batch(
                        name=f"{prefix}{stage}-{number}-{index}",
                        group=number,
                        settings=tuple(pair[0] for pair in chosen),
                        seeds=tuple(pair[1] for pair in chosen),
                        start=spans[number][0],
                        stop=spans[number][1],
                        is_last=is_last,
                    )
                )
    return batches


def describe(plan: SweepPlan, batches: Sequence[Batch], bytes_per_job: int | None = None) -> str:
    """Describe how the trainings are divided, and why."""
    trainings = sum(map(len, batches))
    num_settings, num_seeds = len(plan.settings), plan.options.num_seeds
    text = (
        f"{counted(num_settings, 'setting')} x {counted(num_seeds, 'seed')} = "
        f"{counted(trainings, 'training')}"
    )
    counts = [(size, len(list(same))) for size, same in groupby(map(len, batches))]
    shown = ", ".join(f"{count} of {size}" for size, count in counts[:4])
    if len(counts) > 4:
        shown += ", ..."
    if len(batches) == 1:
        text += f" in one batch of {len(batches[0])}"
    else:
        text += f" in {len(batches)} batches ({shown})"
    if plan.options.batch is not None:
        return f"{text}, by --batch {plan.options.batch}"
    run_bytes = sum(bytes_of_one(plan.groups[0]).values())
    if bytes_per_job is not None:
        return f"{text}; {_bytes(run_bytes)} per run; {_bytes(bytes_per_job)} per job"
    return f"{text}; {_bytes(run_bytes)} per run; {_bytes(_free())} free"


def _bytes(number: int) -> str:
    """Format bytes.

    >>> _bytes(1_234_000), _bytes(140_300), _bytes(8_000_000_000)
    ('1.2 MB', '140 kB', '8.0 GB')
    """
    unit, name = next((u, n) for u, n in UNITS if number >= u or n == "kB")
    size = number / unit
    return f"{size:.{1 if size < 10 else 0}f} {name}"


def by_pair(batches: Sequence[Batch]) -> Mapping[tuple[int, int], tuple[Batch, int]]:
    """Find the batch and the row of each training."""
    return {pair: (batch, row) for batch in batches for row, pair in enumerate(batch.pairs)}
