"""What a training came to: the time of each stage, and the return at the end."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..core.evaluate import Episodes
from .journal import Journal
from .plan import Plan
from .records import interval95


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
    interrupted: bool,
    diverged: str | None,
) -> dict[str, Any]:
    """Collect what `summary.json` holds.

    Args:
      plan: what was to be done.
      journal: what was done.
      seconds: of each stage.
      episodes: `[S, E]`, played greedily at the end; None where none were.
      interrupted: by Ctrl-C.
      diverged: which metric was no number, and when; None where none was.

    Returns:
      `num_steps` and `num_updates` count per seed; `steps_per_second` counts environment steps of
      all seeds, in training alone.
    """
    steps = int(journal.env_steps[-1]) if journal.history else 0
    return {
        "interrupted": interrupted,
        "num_updates": steps // plan.trainer.steps_per_update,
        "num_steps": steps,
        "num_seeds": plan.options.num_seeds,
        "evaluation": None if episodes is None else _evaluation(episodes),
        "steps_per_second": steps * plan.options.num_seeds / seconds["train"],
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
    evaluation = summary["evaluation"]
    if evaluation is not None:
        bounds = evaluation["return_interval95"]
        interval = f" (95% interval {bounds[0]:.1f} to {bounds[1]:.1f})" if bounds else ""
        lines.append(
            f"greedy return {evaluation['return_mean']:.1f}{interval}: "
            f"{summary['num_seeds']} x {evaluation['episodes_per_seed']} episodes"
        )
        if evaluation["share_finished"] < 1:
            lines.append(
                f"{1 - evaluation['share_finished']:.0%} of these episodes did not end by "
                "themselves and were cut"
            )
    lines.append(f"{summary['steps_per_second']:,.0f} steps/s of all seeds in training")
    times = ", ".join(f"{name} {value:.1f}" for name, value in summary["seconds"].items())
    lines += [f"seconds: {times}", f"in {out}: {', '.join(sorted(p.name for p in out.iterdir()))}"]
    return "\n".join(lines)


def _evaluation(episodes: Episodes) -> dict[str, Any]:
    returns = np.asarray(episodes.returns)
    per_seed = returns.mean(axis=1)
    return {
        "return_mean": float(per_seed.mean()),
        "return_interval95": interval95(per_seed.tolist()),
        "return_per_seed": per_seed,
        "episodes_per_seed": returns.shape[1],
        "share_finished": float(np.asarray(episodes.finished).mean()),
    }
