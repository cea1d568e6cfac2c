"""Compare all pairs of the gallery, clean and with each bug, in one process per pair."""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks import harness
from benchmarks.child import Child, Ended
from triglot.diff.measures.effort import STANDARD

from .pair import ROOT, Pair

CLEAN = "clean"
COMMAND = (sys.executable, "-m", "tests.gallery.worker")


def run(
    chosen: Mapping[str, Pair],
    rows: dict[str, Any],
    out: Path,
    seconds_limit: float,
    level: str = STANDARD,
    most: int | None = None,
) -> Iterator[None]:
    """Compare pairs, and keep each result as soon as it is known.

    Args:
      chosen: by `PAIR` or `PAIR@SIZE`.
      rows: finished ones, by these names; added to.
      out: the JSON file, written after each comparison.
      seconds_limit: of one comparison; a longer one is stopped, and counts as failed.
      level: of `diff`.
      most: bugs of each pair; None for all.

    Yields:
      None after each comparison.
    """
    wanted = {
        name: [bug for bug in (CLEAN, *(each.name for each in pair.bugs[:most]))
               if bug not in rows.get(name, {}).get("rows", {})]
        for name, pair in chosen.items()
    }  # fmt: skip
    with tqdm(total=sum(map(len, wanted.values())), unit="comparison") as bar:
        for name, bugs in wanted.items():
            row = rows.setdefault(name, describe(chosen[name], level))
            for bug, found in compared(name, bugs, seconds_limit, level, bar):
                row["rows"][bug] = found
                harness.write_json(out, {"environment": harness.environment(), "pairs": rows})
                bar.update()
                yield


def describe(pair: Pair, level: str = STANDARD) -> dict[str, Any]:
    """Describe a pair for the JSON file, with a hash of its networks and of `diff`."""
    return {
        "pair": pair.name,
        "source": pair.source,
        "libraries": pair.libraries,
        "level": level,
        "fingerprint": fingerprint(pair.file, *sorted((ROOT / "diff").rglob("*.py"))),
        "bugs": {
            bug.name: {"planted": bug.planted, "causes": bug.causes} for bug in pair.bugs
        },
        "rows": {},
    }  # fmt: skip


def fingerprint(*files: Path) -> str:
    """Hash the contents of some files."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def compared(
    name: str, bugs: list[str], seconds_limit: float, level: str, bar: Any
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Compare one pair in a process of its own; a new one follows where it ends or takes too long.

    Yields:
      The name of a bug, or `clean`, and its row.
    """
    child: Child | None = None
    try:
        for bug in bugs:
            bar.set_postfix_str(f"{name}: {bug}")
            child = child or Child(name, COMMAND, cwd=ROOT, stderr=None)
            try:
                found = child.ask([name, "" if bug == CLEAN else bug, level], seconds_limit)
            except (TimeoutError, Ended) as error:
                with closing(child):
                    child = None
                stopped = isinstance(error, TimeoutError)
                why = f"not done after {seconds_limit:g} s" if stopped else "the process ended"
                found = {"error": why, "seconds": seconds_limit}
            yield bug, found
            if child is not None and "@" in name:  # its memory is measured
                child.close()
                child = None
    finally:
        if child is not None:
            child.close()


def load(
    out: Path, chosen: Mapping[str, Pair], *, resume: bool, level: str = STANDARD
) -> dict[str, Any]:
    """Read the finished rows: those of other pairs, and with `resume` those of the chosen ones."""
    kept = json.loads(out.read_text())["pairs"] if out.exists() else {}
    return {
        name: row
        for name, row in kept.items()
        if name not in chosen or (resume and is_current(row, describe(chosen[name], level)))
    }


def is_current(row: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Check whether a row is of the same networks, `diff` and level."""
    return all(row[each] == wanted[each] for each in ("fingerprint", "level"))
