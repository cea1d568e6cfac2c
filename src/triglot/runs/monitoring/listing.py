"""`triglot runs`: list the runs in a folder, with their state and return."""

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import TriglotError, check_known
from ...core.folders import NotPlain
from ...core.records import JSON, JSONDict
from ...shared.machine.files import DamagedRecord
from ...shared.pages.tables import Column, Record, Table, as_text
from ...shared.statistics import format_return
from ...shared.statistics.curves import finite_mean
from ...shared.terminal.wrapping import terminal_width, wrapped
from ..jobs.ledger import FILE
from ..options import RunsOptions
from ..storage.config import read_config
from ..storage.journal import last_metrics
from ..storage.records import SUMMARY, recorded, state_of
from ..storage.trust import CONFIG

DAMAGED = "damaged"
BESIDE = 30  # characters that state, age and return take; a run's name has the others
AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
COLUMNS = (
    Column("run", lambda row: row["run"], left=True),
    Column("state", lambda row: row["state"], left=True),
    Column("age", lambda row: _age(row["age"])),
    Column("return", lambda row: _return(row)),
    Column("steps", lambda row: f"{row['steps']:,}"),
    Column("seeds", lambda row: str(row["seeds"])),
    Column("algorithm", lambda row: row["algorithm"], left=True),
    Column("networks", lambda row: row["networks"], left=True),
    Column("env", lambda row: row["env"], left=True),
)
SORTS = tuple(column.header for column in COLUMNS)


def list_runs(options: RunsOptions) -> str:
    """Describe the runs below a folder in a table that fits the terminal.

    Args:
      options: what was chosen.

    Raises:
      TriglotError: if the folder does not exist, or a name to filter or sort by is unknown.
    """
    check_known("column to sort by", options.sort, SORTS)
    is_new = options.folder == RunsOptions.folder and not options.folder.exists()
    if not is_new and not options.folder.is_dir():
        raise TriglotError(
            f"{options.folder} is not a folder: give one that holds runs, triglot runs FOLDER."
        )
    rows = [row for row in map(_row, _run_folders(options.folder)) if row is not None]
    if not rows:
        return f"no runs in {options.folder}: `triglot train ... --out FOLDER` writes one"
    wanted = _filters(options.where, rows)
    chosen = [row for row in rows if all(_fits(row, *condition) for condition in wanted)]
    chosen.sort(key=lambda row: _rank(row, options.sort))
    if not chosen:
        return f"none of {len(rows)} runs in {options.folder} has {' '.join(options.where)}"
    table = Table(name="runs", title="Runs", columns=COLUMNS, records=chosen)
    width = terminal_width()
    text = as_text(table, width, longest=max(width - BESIDE, 8))
    left_out = [name for name in SORTS if name not in text.splitlines()[0].split()]
    if left_out:
        text += f"\na wider terminal also shows {', '.join(left_out)}"
    if any(row["is_training"] for row in chosen):
        text += (
            "\n* of the last update's training episodes, which explore; other returns are greedy, "
            "after training"
        )
    return wrapped(text, width)


def _run_folders(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        if CONFIG in files or FILE in files:  # a run has none inside; a comparison's jobs are not
            folders.clear()  # runs of their own
        if CONFIG in files and FILE not in files:
            yield Path(path)


def _row(folder: Path) -> JSON | None:
    """Read what is shown of a run, and its options for `--where`; None if it is not a run."""
    try:
        config = read_config(folder)
    except (DamagedRecord, NotPlain):
        return _damaged(folder)
    except TriglotError:
        return None
    try:
        state, summary = state_of(folder), recorded(folder, SUMMARY) or {}
    except TriglotError:
        state, summary = DAMAGED, {}
    algorithm, env, seeds = (config[name] for name in ("algorithm", "env", "num_seeds"))
    networks = " ".join(config["network"]) or config["backend"]
    evaluation, last = summary.get("evaluation"), last_metrics(folder)
    value = evaluation["return_mean"] if evaluation else _mean(last.get("episode_return", ()))
    return {
        "run": str(folder),
        "state": state,
        "age": time.time() - (folder / CONFIG).stat().st_mtime,
        "return": value,
        "is_training": not evaluation and value is not None,
        "steps": last.get("env_steps") or summary.get("num_steps") or 0,
        "algorithm": algorithm,
        "env": env,
        "networks": networks,
        "seeds": seeds,
        "options": _scalars(config)
        | _scalars(config["config"])
        | config["hyper"]
        | {"state": state, "seeds": seeds, "networks": networks},
    }


def _damaged(folder: Path) -> JSON:
    """Fill the row of a run whose options cannot be read; commands on it say why."""
    unknown = dict.fromkeys(("algorithm", "env", "networks"), "")
    return {
        **{"run": str(folder), "state": DAMAGED, "return": None, "is_training": False},
        "age": time.time() - (folder / CONFIG).lstat().st_mtime,
        **{"steps": 0, "seeds": 0, **unknown},
        "options": {"state": DAMAGED},
    }


def _scalars(config: Record) -> JSONDict:
    return {name: value for name, value in config.items() if not isinstance(value, dict)}


def _filters(words: Sequence[str], rows: Sequence[Record]) -> list[tuple[str, str]]:
    known = {name for row in rows for name in row["options"]}
    wanted = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise TriglotError(f"--where takes NAME=VALUE, got {word!r}.")
        check_known("option to filter by", name, known)
        wanted.append((name, value))
    return wanted


def _fits(row: Record, name: str, value: str) -> bool:
    if name not in row["options"]:  # a damaged run has none
        return False
    recorded_value = row["options"][name]
    if value in (str(recorded_value), json.dumps(recorded_value)):
        return True
    with suppress(ValueError):
        return float(value) == recorded_value
    return False


def _rank(row: Record, column: str) -> Any:
    if column in ("return", "steps"):  # the largest first, and those without one last
        return float("inf") if row[column] is None else -row[column]
    return row[column]


def _age(seconds: float) -> str:
    size, unit = next((age for age in AGES if seconds >= age[0]), AGES[-1])
    return f"{seconds / size:.0f} {unit}"


def _return(row: Record) -> str:
    if row["return"] is None:
        return "-"
    return format_return(row["return"]) + ("*" if row["is_training"] else "")


def _mean(values: Sequence[float | None]) -> float | None:
    mean = float(finite_mean(np.array(values, float)))
    return mean if math.isfinite(mean) else None
