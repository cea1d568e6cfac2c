"""When a training is evaluated, kept and stopped: `--eval-every`, `--keep-every`, `--stop-at`."""

import math

from ...core.errors import TriglotError, counted
from ...core.hyper import check_count
from ..options import TrainOptions


def evaluation_period(options: TrainOptions, steps_per_update: int) -> int | None:
    """Count the updates between two evaluations of a training; None if there are none.

    Steps are rounded up to whole updates whose metrics are written (`--metrics-every`).
    """
    if options.eval_every is None:
        return None
    unit = steps_per_update * options.metrics_every
    return -(-options.eval_every // unit) * options.metrics_every


def keeping_period(options: TrainOptions, steps_per_update: int) -> int | None:
    """Count the updates between two checkpoints that are kept; None if none are."""
    return None if options.keep_every is None else -(-options.keep_every // steps_per_update)


def check_schedule(options: TrainOptions, steps_per_update: int, num_updates: int) -> None:
    """Check `--eval-every`, `--keep-every` and `--stop-at`.

    Raises:
      TriglotError: if a value is invalid, or nothing would be evaluated or kept.
    """
    if options.keep_every is not None:
        check_count("keep_every", options.keep_every)
        if options.keep_every > num_updates * steps_per_update:
            raise TriglotError(
                f"--keep-every {options.keep_every:,} is more than the "
                f"{num_updates * steps_per_update:,} steps of the training, so no checkpoint would "
                "be kept: give less, or leave it out."
            )
    if options.stop_at is not None and not math.isfinite(options.stop_at):
        raise TriglotError(f"stop_at must be a finite return, got {options.stop_at}.")
    if options.eval_every is None:
        return
    check_count("eval_every", options.eval_every)
    if not options.eval_episodes:
        raise TriglotError(
            "--eval-every plays --eval-episodes at a time, got 0: give at least 1, or leave "
            "--eval-every out."
        )
    period = evaluation_period(options, steps_per_update)
    if period is not None and period > num_updates:
        raise TriglotError(
            f"--eval-every {options.eval_every:,} is more than the "
            f"{counted(num_updates, 'update')} of "
            f"{steps_per_update:,} steps, so nothing would be evaluated: give at most "
            f"{num_updates // options.metrics_every * options.metrics_every * steps_per_update:,}."
        )


def describe_schedule(options: TrainOptions, steps_per_update: int) -> list[str]:
    """Say when a training is evaluated and when it stops early, a line each."""
    lines = []
    period = evaluation_period(options, steps_per_update)
    if period is not None:
        lines.append(
            f"evaluates every {period * steps_per_update:,} steps (updates: {period:,}), "
            f"{options.num_seeds} x {options.eval_episodes:,} greedy episodes"
        )
    if options.stop_at is not None:
        lines.append(
            f"stops when the mean {measure(options)} over seeds reaches {options.stop_at:g}"
        )
    return lines


def measure(options: TrainOptions) -> str:
    """Name the return that `--stop-at` reads."""
    if options.eval_every is None:
        return "return of training episodes in about a second"
    return "greedy return"
