"""What is measured of finished trainings: costs, programs, speed and memory."""

import itertools
import json
import shutil
from collections.abc import Mapping
from typing import Any

from ..machine.files import write_json
from ..terminal.progress import Bar
from .assemble import Finished
from .cost.measure import measure
from .programs.diff import diff_programs
from .verdict.causes import find_growth

COSTS = "costs"
COST_BAR = "{desc:<36.36}{bar} {n_fmt}/{total_fmt} [{elapsed}]"  # counts processes
MAX_PROGRAM_LINES = 200  # of each pair in `comparison.json`


def measure_costs(finished: Finished) -> dict[str, Any] | None:
    """Measure the costs of the libraries that were trained, unless that was done before."""
    options, ledger = finished.options, finished.ledger
    backends = [job.backend for job in finished.jobs_of(options.env, finished.main)]
    if options.repetitions == 0 or not backends:
        return None
    path = ledger.folder(COSTS) / f"{COSTS}.json"
    if path.exists():
        found = json.loads(path.read_text())
        if found["repetitions"] == options.repetitions:
            return found["cost"]
    with Bar(bar_format=COST_BAR, leave=False) as bar:
        bar.total = options.repetitions * len(backends)

        def announce(text: str) -> None:
            bar.set_description_str(text)
            bar.update()

        cost = measure(options, backends, options.repetitions, announce=announce)
    shutil.rmtree(path.parent, ignore_errors=True)
    with ledger.writing(COSTS) as folder:
        write_json(folder / path.name, {"repetitions": options.repetitions, "cost": cost})
    return cost


def programs(finished: Finished) -> dict[str, Any]:
    """Describe the training programs, and compare them in pairs."""
    records = finished.main_records
    pairs = []
    for one, other in itertools.combinations(records, 2):
        found = diff_programs(records[one].program, records[other].program).as_json()
        lines = found["lines"]
        rest = len(lines) - MAX_PROGRAM_LINES
        if rest > 0:
            lines = [*lines[:MAX_PROGRAM_LINES], f"... {rest:,} more lines"]
        pairs.append({"backends": [one, other], **found, "lines": lines})
    facts = {name: record.facts["program"] for name, record in records.items()}
    return {"backends": facts, "pairs": pairs}


def add_causes(result: dict[str, Any], finished: Finished) -> None:
    """Report memory that grows without an end, and libraries that are slower than another."""
    cost = result["cost"] or {"backends": {}, "slower": []}
    for name, record in finished.main_records.items():
        growth = find_growth(record.of_one_process())
        causes = [] if growth is None else [growth]
        causes += [
            {"name": "slower", "where": one["stage"], "evidence": one["sentence"]}
            for one in cost["slower"]
            if one["backend"] == name
        ]
        result["backends"][name]["causes"] = causes
        result["backends"][name] |= _costs_in_table(cost["backends"].get(name, {}))


def _costs_in_table(stages: Mapping[str, Any]) -> dict[str, Any]:
    """Give the measured costs under the names of a backend's facts."""
    names = {
        "import_library_seconds": "import",
        "trace_seconds": "trace",
        "compile_seconds": "compile",
        "steps_per_second": "steps_per_second",
        "dispatch_microseconds": "dispatch",
    }
    return {name: stages[stage]["median"] for name, stage in names.items() if stage in stages}
