"""Describe a run: what is not as it was when it is resumed, its time and its final return."""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..core.errors import counted
from ..core.loop.episode import Episodes
from ..core.records import JSON
from ..shared.machine.files import visible_files
from ..shared.machine.version import device, versions
from ..shared.statistics import format_return, interval95, interval95_over_seeds
from .plan import Plan
from .storage.journal import RECENTLY, recent_mean
from .storage.records import REACHED, recorded_progress

RENDER = """
  triglot render {run}"""
NEXT = """
  triglot evaluate {run} --episodes 1000
  triglot export {run} --format stablehlo --out policy"""


class Stopwatch:
    """Splits the time since `started` (from `time.perf_counter`) into named laps, `seconds`."""

    def __init__(self, started: float) -> None:
        self.seconds: dict[str, float] = {}
        self._last = started

    def lap(self, name: str) -> None:
        """End the current lap and name it."""
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now

    def move(self, source: str, target: str, seconds: float) -> None:
        """Count seconds that were spent in one lap to another."""
        self.seconds[source] -= seconds
        self.seconds[target] = self.seconds.get(target, 0.0) + seconds


def resume_notes(plan: Plan, config: JSON, done: int, lost: Sequence[int]) -> Iterator[str]:
    """Describe what is not as in the interrupted run.

    Args:
      plan: the training.
      config: the contents of `config.json`.
      done: updates done at the checkpoint.
      lost: updates whose metrics are damaged or missing.
    """
    if done == 0 and plan.options.init_from is None:
        yield "no checkpoint was written before: training starts from the beginning"
    last = recorded_progress(plan.out)
    if last > done:
        yield (
            f"the checkpoint after {counted(last, 'update')} is missing or damaged: continuing "
            f"after {done:,}"
        )
    if lost:
        yield (
            f"warning: the metrics of {counted(len(lost), 'update')} are lost, the first is "
            f"{lost[0]:,}; the training itself is not affected"
        )
    yield from version_notes(config)
    if plan.experiment.trainer.steps_on_host:
        yield f"the state of {plan.env.name} cannot be saved: its environments begin new episodes"


def version_notes(config: JSON) -> Iterator[str]:
    """Say which versions, or which device, are not those that a run began with."""
    differing = list(_differences(config))
    if differing:
        yield (
            f"warning: {'; '.join(differing)}. The numbers may differ in the last bits from those "
            "with what the run began with"
        )


def _differences(config: JSON) -> Iterator[str]:
    before = config.get("versions")
    for name, now in versions().items():
        was = before.get(name) if isinstance(before, Mapping) else None
        if was is not None and was != now:
            yield f"{name} was {was} and is {now or 'not installed'}"
    was, now = config.get("device"), device()
    # Their number is JAX's, and not that of the devices in use (`--devices`).
    if was is not None and was.rpartition(" x ")[0] != now.rpartition(" x ")[0]:
        yield f"the device was {was} and is {now}"


def describe_recent(returns: Sequence[float] | np.ndarray) -> str:
    """Describe the return of the last training episodes; empty if none ended.

    Args:
      returns: mean over seeds of each update, `[U]`; NaN where no episode ended.
    """
    recent = recent_mean(np.asarray(returns))
    return "" if np.isnan(recent) else f"return in training {format_return(recent)} ({RECENTLY})"


def describe_summary(
    summary: JSON, out: Path, returns: Sequence[float], *, explained: bool = False
) -> str:
    """Format `summary.json` for the terminal.

    Args:
      summary: its contents.
      out: the run directory.
      returns: as in `describe_recent`.
      explained: whether a divergence was looked into already.
    """
    lines = []
    if summary["interrupted"]:
        lines.append(f"interrupted after {counted(summary['num_updates'], 'update')}")
    if reached := summary[REACHED]:
        lines.append(
            f"stopped early after {counted(summary['num_updates'], 'update')}: the "
            f"{reached['measure']} {format_return(reached['return'])} "
            f"reached --stop-at {reached['stop_at']:g}"
        )
    if summary["diverged"]:
        saved = recorded_progress(out)
        kept = (
            f"The checkpoint after {counted(saved, 'update')} is kept"
            if saved
            else "Nothing was saved"
        )
        hint = "" if explained else "; `--debug nans` names the operation behind the first NaN"
        lines.append(f"stopped: {summary['diverged']}. {kept}{hint}")
    if summary["warning"]:
        lines.append(f"warning: {summary['warning']}")
    if recent := describe_recent(returns):
        lines.append(recent)
    if summary["evaluation"] is not None:
        lines += describe_evaluation(summary["evaluation"])
    if summary["steps_per_second"] is not None:
        lines.append(f"{summary['steps_per_second']:,.0f} steps/s over all seeds in training")
    times = ", ".join(f"{name} {value:.1f}" for name, value in summary["seconds"].items())
    lines += [f"seconds: {times}", f"in {out}: {', '.join(visible_files(out))}"]
    return "\n".join(lines)


def next_commands(out: Path, *, renders: bool) -> str:
    """List commands that look at a finished run, whose environment may be rendered."""
    commands = RENDER + NEXT if renders else NEXT
    return "next:" + commands.format(run=shlex.quote(str(out)))


def evaluation(episodes: Episodes, unseen: Episodes | None = None) -> JSON:
    """Compute the statistics of `[S, E]` episodes; lengths are in steps.

    The interval is Student's t interval of the mean over seeds, or over episodes if there is one
    seed; there is none over 2 to 4 seeds.

    Args:
      episodes: of the environment, on the levels of the training if it has levels.
      unseen: on other levels. Their statistics are `unseen_levels`, and `generalization_gap` is by
        how much their mean return is less.
    """
    if unseen is not None:
        evaluated, unseen_levels = evaluation(episodes), evaluation(unseen)
        gap = evaluated["return_mean"] - unseen_levels["return_mean"]
        return {**evaluated, "unseen_levels": unseen_levels, "generalization_gap": gap}
    returns, lengths = np.asarray(episodes.returns), np.asarray(episodes.lengths)
    per_seed = returns.mean(axis=1)
    if len(per_seed) > 1:
        over, interval = "seeds", interval95_over_seeds(per_seed.tolist())
    else:
        over, interval = "episodes", interval95(returns[0].tolist())
    return {
        "return_mean": float(per_seed.mean()),
        "return_interval95": interval,
        "interval_over": over,
        "return_per_seed": per_seed,
        "return_min": float(returns.min()),
        "return_max": float(returns.max()),
        "episodes_per_seed": returns.shape[1],
        "length_mean": float(lengths.mean()),
        "length_min": int(lengths.min()),
        "length_max": int(lengths.max()),
        "share_finished": float(np.asarray(episodes.finished).mean()),
    }


def describe_evaluation(evaluation: JSON, policy: str = "greedy") -> list[str]:
    """Format the results of `evaluation` as lines."""
    bounds, per_seed = evaluation["return_interval95"], evaluation["return_per_seed"]
    num_seeds, count = len(per_seed), evaluation["episodes_per_seed"]
    interval = ""
    if bounds:
        low, high = map(format_return, bounds)
        interval = f" (95% interval over {evaluation['interval_over']} {low} to {high})"
    elif num_seeds > 1:
        low, high = map(format_return, (min(per_seed), max(per_seed)))
        interval = f" (seeds {low} to {high})"
    lines = [
        f"{policy} return {format_return(evaluation['return_mean'])}{interval}: "
        f"{num_seeds} x {counted(count, 'episode')}"
    ]
    share = evaluation["share_finished"]
    if share < 1:
        cut = round((1 - share) * num_seeds * count)
        lines.append(
            f"{cut:,} of these {num_seeds * count:,} episodes were cut at the maximum number of "
            "steps"
        )
    if "unseen_levels" in evaluation:
        first, *more = describe_evaluation(evaluation["unseen_levels"], policy)
        gap = format_return(evaluation["generalization_gap"])
        lines += [f"on unseen levels: {first}", *more, f"generalization gap: {gap}"]
    return lines
