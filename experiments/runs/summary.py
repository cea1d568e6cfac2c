"""What a training came to: the time of each stage, and the return at the end."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...core.evaluate import Episodes
from ..statistics import format_return, interval95
from .journal import Journal
from .plan import Plan


class Stopwatch:
    """Splits the time since `started` (of `time.perf_counter`) into named laps, `seconds`."""

    def __init__(self, started: float) -> None:
        self.seconds: dict[str, float] = {}
        self._last = started

    def lap(self, name: str) -> None:
        """End the present lap and give it a name."""
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now


def summary(
    plan: Plan,
    journal: Journal,
    seconds: Mapping[str, float],
    episodes: Episodes | None,
    *,
    resumed_at: int,
    interrupted: bool,
    diverged: str | None,
) -> dict[str, Any]:
    """Collect what `summary.json` holds.

    Args:
      plan: what was to be done.
      journal: what was done.
      seconds: of each stage.
      episodes: `[S, E]`, played greedily at the end; None where none were.
      resumed_at: updates that were done before, in which `seconds` have no part.
      interrupted: by Ctrl-C.
      diverged: which metric was no number, and when; None where none was.

    Returns:
      `num_steps` and `num_updates` count per seed; `steps_per_second` counts environment steps of
      all seeds, in training alone, since it was resumed; None where there were none.
    """
    steps = int(journal.env_steps[-1]) if journal.history else 0
    here = steps - resumed_at * plan.trainer.steps_per_update
    return {
        "interrupted": interrupted,
        "num_updates": steps // plan.trainer.steps_per_update,
        "num_steps": steps,
        "num_seeds": plan.options.num_seeds,
        "evaluation": None if episodes is None else evaluation(episodes),
        "steps_per_second": here * plan.options.num_seeds / seconds["train"] if here else None,
        "seconds": dict(seconds),
        "diverged": diverged,
    }


def in_words(summary: Mapping[str, Any], out: Path) -> str:
    """Tell a person."""
    lines = []
    if summary["interrupted"]:
        lines.append(f"interrupted after {summary['num_updates']:,} updates")
    if summary["diverged"]:
        lines.append(
            f"stopped: {summary['diverged']}. The last checkpoint before it is kept; "
            "`--debug nans` stops where a NaN comes from"
        )
    if summary["evaluation"] is not None:
        lines += evaluation_in_words(summary["evaluation"])
    if summary["steps_per_second"] is not None:
        lines.append(f"{summary['steps_per_second']:,.0f} steps/s of all seeds in training")
    times = ", ".join(f"{name} {value:.1f}" for name, value in summary["seconds"].items())
    lines += [f"seconds: {times}", f"in {out}: {', '.join(sorted(p.name for p in out.iterdir()))}"]
    return "\n".join(lines)


def evaluation(episodes: Episodes) -> dict[str, Any]:
    """Collect what is written down of `[S, E]` episodes; lengths are in steps.

    The interval is Student's, of the mean over seeds; of one seed, of the mean over its episodes.
    """
    returns, lengths = np.asarray(episodes.returns), np.asarray(episodes.lengths)
    per_seed = returns.mean(axis=1)
    several = len(per_seed) > 1
    return {
        "return_mean": float(per_seed.mean()),
        "return_interval95": interval95((per_seed if several else returns[0]).tolist()),
        "interval_over": "seeds" if several else "episodes",
        "return_per_seed": per_seed,
        "return_least": float(returns.min()),
        "return_greatest": float(returns.max()),
        "episodes_per_seed": returns.shape[1],
        "length_mean": float(lengths.mean()),
        "length_least": int(lengths.min()),
        "length_greatest": int(lengths.max()),
        "share_finished": float(np.asarray(episodes.finished).mean()),
    }


def evaluation_in_words(evaluation: Mapping[str, Any], policy: str = "greedy") -> list[str]:
    """Tell a person what `evaluation` collected, in lines."""
    bounds, over = evaluation["return_interval95"], evaluation["interval_over"]
    interval = (
        f" (95% interval over {over} {format_return(bounds[0])} to {format_return(bounds[1])})"
        if bounds
        else ""
    )
    num_seeds, count = len(evaluation["return_per_seed"]), evaluation["episodes_per_seed"]
    lines = [
        f"{policy} return {format_return(evaluation['return_mean'])}{interval}: "
        f"{num_seeds} x {count} episodes"
    ]
    share = evaluation["share_finished"]
    if share < 1:
        cut = round((1 - share) * num_seeds * count)
        lines.append(
            f"{cut:,} of these {num_seeds * count:,} episodes did not end by themselves and were "
            "cut"
        )
    return lines
