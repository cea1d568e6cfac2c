"""`triglot watch`: show in the terminal how a run goes that another program trains."""

import itertools
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from ...core.errors import TriglotError, check_known, counted
from ...shared.machine.files import visible_files
from ...shared.machine.interrupt import raising
from ...shared.statistics import format_return
from ...shared.statistics.curves import finite_mean
from ...shared.terminal.chart import chart
from ...shared.terminal.progress import duration
from ...shared.terminal.wrapping import terminal_width, wrapped
from ..options import WatchOptions
from ..plots.learning_curves import AXES
from ..storage.config import read_config
from ..storage.journal import last_metrics, read_metrics
from ..storage.records import BEST, RUNNING, SUMMARY, recorded, state_of
from ..summary import describe_recent
from .evaluating import METRIC
from .forwarding import Forwarding

RATE_SECONDS = 30.0  # over which the speed is measured
MAX_SHARE = 0.1  # of the time that reading the metrics may take
MAX_HEIGHT = 20
RETURN = "episode_return"
OTHER_LINES = 8  # around the curve

Point = tuple[float, int]  # a time and the steps done by then


def watch(options: WatchOptions) -> int:
    """Run `triglot watch`: until the run ends, or Ctrl-C.

    Args:
      options: what was chosen.

    Returns:
      The exit code, 0.

    Raises:
      TriglotError: if the folder is not a run directory, or an option is invalid.
    """
    if not options.seconds > 0:
        raise TriglotError(f"seconds must be greater than 0, got {options.seconds}.")
    read_config(options.run)
    with closing(Forwarding(options.run, options.log, options.wandb)) as forwarding:
        return _watch(options, forwarding)


def _watch(options: WatchOptions, forwarding: Forwarding) -> int:
    if not sys.stdout.isatty():
        # The speed is known after two looks at the files; metrics are sent until the run ends.
        looks = itertools.islice(frames(options), None if options.log else 2)
        shown = ""
        for text in looks:
            shown = text
            forwarding.send()
        print(shown)
        return 0
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    # Redirected output has no encoding, by which the characters of the curve are chosen.
    with raising(), Live(console=Console(), auto_refresh=False, redirect_stdout=False) as live:
        try:
            for text in frames(options):
                forwarding.send()
                live.update(Text(text), refresh=True)
        except KeyboardInterrupt:
            pass
    return 0


def frames(options: WatchOptions, sleep: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Describe a run again and again, the last time when it has ended.

    Raises:
      TriglotError: if the metric is unknown.
    """
    points: deque[Point] = deque()
    while True:
        started = time.perf_counter()
        state = state_of(options.run)  # before its metrics, so that the last frame has all of them
        text = _frame(options, state, points)
        yield text
        if state != RUNNING:
            return
        sleep(max(options.seconds, (time.perf_counter() - started) / MAX_SHARE))


def _frame(options: WatchOptions, state: str, points: "deque[Point]") -> str:
    folder, config = options.run, read_config(options.run)
    networks = " ".join(config["network"]) or config["backend"]
    num_seeds, total = config["num_seeds"], config["num_steps"]
    seeds = counted(num_seeds, "seed")
    title = f"{config['algorithm']} on {config['env']}, {networks}, {seeds}: {state}"
    try:
        env_steps, metrics = read_metrics(folder, [RETURN, METRIC, options.metric])
    except TriglotError:  # none yet
        if state != RUNNING:
            return f"{title}, before its first update"
        age = time.time() - (folder / "config.json").stat().st_mtime
        return f"{title}, no update yet (it compiles first), started {duration(age)} ago"
    check_known(f"metric of {folder}", options.metric, {**last_metrics(folder), **metrics})
    done = int(env_steps[-1])
    points.append((time.monotonic(), done))
    while len(points) > 2 and points[-1][0] - points[0][0] > RATE_SECONDS:
        points.popleft()
    lines = [title, f"{done:,} of {total:,} steps per seed ({done / total:.0%})"]
    (before, first), (now, _) = points[0], points[-1]
    if state == RUNNING and now > before and done > first:
        rate = (done - first) / (now - before)  # of each seed
        lines[-1] += (
            f", {rate * num_seeds:,.0f} steps/s over all seeds, "
            f"about {duration((total - done) / rate)} left"
        )
    lines += _returns(folder, metrics)
    values = finite_mean(metrics[options.metric].T)
    name = AXES.get(options.metric, options.metric.replace("_", " "))
    size = shutil.get_terminal_size()
    height = min(MAX_HEIGHT, max(4, size.lines - OTHER_LINES))
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    drawn = chart(
        env_steps,
        values,
        width=terminal_width() - 1,
        height=height,
        braille=encoding.startswith("utf"),
    )
    lines += ["", f"{name}, mean over seeds, up to {done:,} steps", *drawn] if drawn else []
    if state != RUNNING:
        lines += ["", f"in {folder}: {', '.join(visible_files(folder))}"]
    return wrapped("\n".join(lines))


def _returns(folder: Path, metrics: dict[str, np.ndarray]) -> list[str]:
    """Describe the last returns: of training, of evaluations, and after the training."""
    in_training = describe_recent(finite_mean(metrics[RETURN].T))
    parts = [in_training] if in_training else []
    evaluated = finite_mean(metrics[METRIC].T) if METRIC in metrics else np.empty(0)
    evaluated = evaluated[np.isfinite(evaluated)]
    if len(evaluated):
        parts.append(f"greedy return {format_return(evaluated[-1])} (last evaluation)")
    best = recorded(folder, BEST)
    if best is not None:
        where = f"after {counted(best['num_updates'], 'update')}"
        parts.append(f"best {format_return(best['return_mean'])} {where}")
    evaluation = (recorded(folder, SUMMARY) or {}).get("evaluation")
    if evaluation:
        parts.append(f"after training {format_return(evaluation['return_mean'])}")
    return [", ".join(parts)] if parts else []
