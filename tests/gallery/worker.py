"""One process: compares the networks of a pair, and judges the report by what was planted."""

import resource
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.child import serve
from triglot.core.errors import describe
from triglot.diff.compare import diff_networks
from triglot.diff.measures.effort import STANDARD
from triglot.diff.report import DIFFERENT, Report

from .pair import Bug, Pair, choose, find_pairs, is_marked

ASIDE = {"initializer", "precision", "unknown"}  # these accuse nothing


def compare(name: str, bug: str = "", level: str = STANDARD) -> dict[str, Any]:
    """Run `diff` on a pair and judge its report.

    Args:
      name: `PAIR` or `PAIR@SIZE`.
      bug: planted in the second network; "" none.
      level: of `diff_networks`.

    Returns:
      A row of the gallery; `error` if `diff` failed. `peak_bytes` is the process's memory.
    """
    pair, size = choose(find_pairs(), [name])[name]
    planted = next((each for each in pair.bugs if each.name == bug), None)
    began, start = time.process_time(), time.monotonic()  # of a busy machine, too
    try:
        other = pair.other(bug=bug, **size)
        one, names = pair.one(**size), ("one", "other")
        found = diff_networks(one, other, pair.spec(**size), names=names, level=level)
    except Exception as error:
        return {"error": describe(error), "seconds": time.process_time() - began}
    seconds = time.process_time() - began
    named = {cause.name for cause in found.causes}
    right = (*planted.causes, *planted.consequences) if planted else ()
    row = {
        "verdict": found.verdict,
        "num_params": found.num_params,
        "causes": [f"{each.name}: {each.evidence}; {each.where}" for each in found.causes],
        "false": sorted(named - {*right, *ASIDE}),
        "unknown": "unknown" in named,
        "notes": list(found.notes),
        "seconds": seconds,
        "wall_seconds": time.monotonic() - start,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    if planted:
        row["named"] = not named.isdisjoint(planted.causes)
        row["located"] = is_located(found, pair, planted)
        row["found"] = found.verdict == DIFFERENT
    return row


def is_located(report: Report, pair: Pair, bug: Bug) -> bool:
    """Check whether the first difference, or a right cause, names a marked line."""
    return any(is_marked(text, pair, bug.name) for text in _places(report, bug))


def _places(report: Report, bug: Bug) -> Iterator[str]:
    first = report.first_difference
    for operation in (first.one, first.other) if first else ():
        if operation is not None:
            yield operation.source
    for cause in report.causes:
        if cause.name in (*bug.causes, "unknown"):
            yield cause.where


if __name__ == "__main__":
    serve(lambda request: compare(*request))
