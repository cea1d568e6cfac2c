"""Every algorithm on every library: equal bit for bit, seconds to compile, steps/s.

    python -m benchmarks.matrix
    python -m benchmarks.matrix --only dqn sac --resume
    python -m benchmarks.matrix --backends linen keras    # PyTorch's column needs triglot[torch]

Each algorithm trains its small case (`benchmarks.cases`) on each library that fits, in canonical
arithmetic and from the first library's weights. Times are CPU seconds of these small trainings, one
after the other in one process. Identity needs XLA's default flags.
"""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from safetensors.numpy import save_file
from tqdm import tqdm

from triglot.compare.options import CompareOptions
from triglot.compare.training.session import MIN_CHUNKS, Session
from triglot.core.errors import TriglotError
from triglot.runs.identity import Trace, compare_traces
from triglot.runs.registry.algorithms import by_family, find_algorithm

from . import harness
from .cases import CASES, LIBRARIES, Case

CHUNK, ROUNDS = 64, 7
MORE = ("keras", "torch", "jax")  # which the tests of all libraries leave out
COLUMNS = (*LIBRARIES, *MORE, "table")
EQUAL, DIFFERENT, NONE = "#d7efe3", "#fbe3d0", "#f4f6f8"
INK, QUIET, GREEN, ORANGE = "#1d2733", "#5a6675", "#00734f", "#b34a00"

PAGE = """# Algorithms and libraries

Every algorithm is written once and runs on every network library. {equal} of {trained} small
trainings are equal bit for bit to those of the other libraries from the same weights: parameters
after each update, and all metrics ([canonical arithmetic](guide/libraries.md)).
`python -m benchmarks.matrix` writes this page; it trains the cases of `benchmarks/cases.py`.

![Algorithms and libraries](images/matrix.svg)

{table}

✓: equal. Otherwise: the first update after which a parameter or a metric differs from those of the
libraries that are equal.

{differences}

## Seconds to compile, and steps/s

CPU seconds, which other programs on the machine disturb least: to compile, and environment steps of
a warm training in one of them, in rounds of {chunk} updates, on {cpu}. Medians over rounds,
{rounds}; columns with other numbers of rounds are of another run of the command. The networks have
8 units, so these numbers compare libraries with each other. Trainings of a realistic size:
[measurements](measurements.md) and [peers](peers.md).

{times}
"""


def libraries_of(case: Case) -> tuple[str, ...]:
    """List the libraries on which a case trains, in the order of the columns."""
    return tuple(b for b in COLUMNS if b in (*case.backends(), *MORE))


def measure(
    name: str, case: Case, backends: Sequence[str], num_updates: int, rounds: int
) -> dict[str, Any]:
    """Train one algorithm on several libraries.

    Args:
      name: of the algorithm.
      case: its small case.
      backends: the libraries.
      num_updates: of the trainings that are compared.
      rounds: how often `CHUNK` further updates are timed.

    Returns:
      A row of the matrix: of each library, whether it is `equal` to the largest group of libraries
      that are equal among themselves, where it `first` differs, and its times.
    """
    found = find_algorithm(name)
    steps_per_update = found.Config(**case.config).steps_per_update
    traces: dict[str, Trace] = {}
    libraries: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.safetensors"
        for backend in backends:
            try:
                traces[backend], libraries[backend] = train(
                    name, case, backend, weights, num_updates, rounds
                )
            except TriglotError as error:
                libraries[backend] = {"error": str(error)}
    return {
        "env": case.envs[0],
        "settings": settings(case, num_updates),
        "libraries": with_identity(libraries, traces, steps_per_update),
    }


def settings(case: Case, num_updates: int) -> Any:
    """Describe what a row depends on, as JSON has it."""
    how = {"config": case.config, "hyper": case.hyper, "num_updates": num_updates}
    return json.loads(json.dumps(how))


def train(
    name: str, case: Case, backend: str, weights: Path, num_updates: int, rounds: int
) -> tuple[Trace, dict[str, Any]]:
    """Train on one library; the first one writes the weights from which the others start."""
    steps_per_update = find_algorithm(name).Config(**case.config).steps_per_update
    options = CompareOptions(
        algorithm=name,
        env=case.envs[0],
        config=dict(case.config),
        hyper=dict(case.hyper),
        total_steps=CHUNK * MIN_CHUNKS * steps_per_update,  # so that a call has CHUNK updates
        num_seeds=1,
        seed=0,
    )
    session = Session(options, backend)
    jax.config.update("jax_disable_most_optimizations", True)  # the training alone is optimized
    try:
        own = session.init()
        if not weights.exists():
            save_file(own, weights)
        session.load(weights)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
    session.compile()
    history = [
        session.train(min(CHUNK, num_updates - done))[1] for done in range(0, num_updates, CHUNK)
    ]
    metrics = {name: np.concatenate([one[name] for one in history], axis=1) for name in history[0]}
    trace = Trace(metrics=metrics, params=session.named_params())
    seconds, cpu_seconds = [], []
    for _ in range(rounds):
        before = time.process_time()
        seconds.append(session.train(CHUNK)[0]["seconds"])
        cpu_seconds.append(time.process_time() - before)
    steps = CHUNK * steps_per_update
    return trace, {
        "rounds": rounds,
        "compile_seconds": round(session.facts["compile_seconds"], 2),
        "compile_cpu_seconds": round(session.facts["compile_cpu_seconds"], 2),
        "steps_per_second": round(steps / float(np.median(seconds))),
        "steps_per_cpu_second": round(steps / float(np.median(cpu_seconds))),
    }


def with_identity(
    libraries: Mapping[str, Mapping[str, Any]], traces: Mapping[str, Trace], steps_per_update: int
) -> dict[str, dict[str, Any]]:
    """Add to each library's times whether it is equal, and where it first differs."""
    if not traces:
        return {name: dict(row) for name, row in libraries.items()}
    groups = compare_traces(traces, steps_per_update)["groups"]
    largest = max(groups, key=len)
    leader = {largest[0]: traces[largest[0]]}
    rows = compare_traces({**leader, **traces}, steps_per_update)["backends"]
    result = {}
    for name, row in libraries.items():
        result[name] = dict(row)
        if name in traces:
            places = rows[name]["first_difference"], rows[name]["first_metric_difference"]
            found = [place for place in places if place is not None]
            first = min(found, key=lambda place: place["update"], default=None)
            result[name] |= {"equal": first is None, "first": first}
    return result


def where(first: Mapping[str, Any]) -> str:
    """Say where a training differs."""
    kind = "metric" if "metric" in first else "leaf"
    return f"`{first[kind]}` at update {first['update']}"


def page(rows: Mapping[str, Any], machine: Mapping[str, Any]) -> str:
    """Write the matrix as a page of the docs."""
    cells, times = [], []
    for name, row in rows.items():
        marks, seconds, speeds = [], [], []
        for library in COLUMNS:
            one = row["libraries"].get(library, {})
            marks.append(mark(one))
            timed = "error" not in one and bool(one)
            seconds.append(f"{one['compile_cpu_seconds']:.1f}" if timed else "")
            speeds.append(harness.rounded(one["steps_per_cpu_second"]) if timed else "")
        cells.append([f"`{name}`", *marks])
        times.append([f"`{name}`", *seconds, *speeds])
    titles = [harness.TITLES[library] for library in COLUMNS]
    equal, trained = counts(rows)
    differences = [
        f"- `{name}`, {harness.TITLES[library]}: "
        + (one["error"] if "error" in one else f"differs first in {where(one['first'])}")
        + "."
        for name, row in rows.items()
        for library, one in row["libraries"].items()
        if not one.get("equal")
    ]
    table = harness.table(["algorithm", *titles], cells)
    units = [f"{title}, {unit}" for unit in ("s", "steps/s") for title in titles]
    return PAGE.format(
        equal=equal,
        trained=trained,
        table=table,
        differences="\n".join(differences) or "- None differs.",
        cpu=machine.get("cpu", "one machine"),
        chunk=CHUNK,
        rounds=rounds_of(rows),
        times=harness.table(["algorithm", *units], times),
    )


def rounds_of(rows: Mapping[str, Any]) -> str:
    """Say how many rounds the times of which libraries are from."""
    found: dict[int, list[str]] = {}
    for library in COLUMNS:
        ones = (row["libraries"].get(library, {}) for row in rows.values())
        for number in {one.get("rounds", ROUNDS) for one in ones if one}:
            found.setdefault(number, []).append(harness.TITLES[library])
    if len(found) < 2:
        return f"{next(iter(found), ROUNDS)} of them"
    return " and ".join(f"{number} for {', '.join(names)}" for number, names in found.items())


def mark(one: Mapping[str, Any]) -> str:
    """Show one library's identity."""
    if "error" in one:
        return "failed"
    if not one:
        return ""
    return "✓" if one["equal"] else f"update {one['first']['update']}"


def counts(rows: Mapping[str, Any]) -> tuple[int, int]:
    """Count the equal trainings, and all."""
    ones = [one for row in rows.values() for one in row["libraries"].values()]
    return sum(bool(one.get("equal")) for one in ones), len(ones)


def draw(rows: Mapping[str, Any], path: Path) -> None:
    """Draw the matrix: a row for each algorithm, by family, and a column for each library."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import FancyBboxPatch

    families = [(title.partition(":")[0], names) for title, names in by_family(rows).items()]
    height = sum(len(members) + 1.0 for _, members in families) + 1.4
    style: Any = {"svg.hashsalt": "triglot", "font.family": "DejaVu Sans", "font.size": 9}
    with pyplot.rc_context(style):
        figure = pyplot.figure(figsize=(7.6, 0.27 * height), facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, 7.6), ylim=(height, 0))
        axes.axis("off")

        def write(x: float, y: float, text: str, **how: Any) -> None:
            how = {"ha": "center", "va": "center", "color": INK, **how}
            axes.text(x, y, text, **how)

        centers = {library: 1.75 + 0.74 * index for index, library in enumerate(COLUMNS)}
        for library, x in centers.items():
            write(x, 0.75, harness.TITLES[library], weight="bold")
        y = 1.2
        for title, members in families:
            write(0.12, y + 0.65, title, ha="left", color=QUIET, size=8, style="italic")
            y += 1.0
            for name in members:
                row = rows[name]
                write(0.12, y + 0.5, name, ha="left", family="DejaVu Sans Mono")
                for library, x in centers.items():
                    one = row["libraries"].get(library)
                    fill = NONE if not one else EQUAL if one.get("equal") else DIFFERENT
                    box = FancyBboxPatch(
                        (x - 0.34, y + 0.08), 0.68, 0.84, boxstyle="round,pad=0,rounding_size=0.06",
                        facecolor=fill, edgecolor="none", mutation_aspect=3.0,
                    )  # fmt: skip
                    axes.add_patch(box)
                    if one:
                        equal, text = one.get("equal"), mark(one)
                        color, size = (GREEN, 10) if equal else (ORANGE, 7.5)
                        write(x, y + 0.5, text, color=color, size=size)
                y += 1.0
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = path.suffix.removeprefix(".")
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(path, format=kind, dpi=150, metadata=metadata)
        pyplot.close(figure)


def unmeasured(rows: Mapping[str, Any]) -> str:
    """List the algorithms that have no row, and the libraries that rows lack; empty if none."""
    lacking = [name for name in CASES if name not in rows]
    for name, row in rows.items():
        libraries = [b for b in libraries_of(CASES[name]) if b not in row["libraries"]]
        lacking += [f"{name} on {' and '.join(libraries)}"] if libraries else []
    return ", ".join(lacking)


def main(
    out: Path = Path("benchmarks/results/matrix.json"),
    page_path: Path = Path("docs/matrix.md"),
    picture: Path = Path("docs/images/matrix.svg"),
    only: tuple[str, ...] = (),
    num_updates: int | None = None,
    backends: tuple[str, ...] = (),
    rounds: int = ROUNDS,
    resume: bool = False,
) -> None:
    """Measure the matrix, and write it as JSON, as a page and as a picture.

    The page and the picture are left as they are if they would lose rows or columns: after `only`
    or `backends`, where `out` has not measured the others.

    Args:
      out: the JSON file; written after each algorithm.
      page_path: the page, in Markdown.
      picture: the picture, .svg or .png.
      only: names of algorithms; all by default. Rows of others that `out` has are kept.
      num_updates: of each training; by default that of its case.
      backends: the libraries; all by default. Columns of others that `out` has are kept, where
        these are equal to Linen, which is trained first.
      rounds: how often each training's speed is measured.
      resume: keep the rows of `out` that were measured with the same settings.
    """
    if unknown := sorted(set(only) - CASES.keys()):
        raise SystemExit(f"no algorithm {unknown[0]}; choose from {', '.join(CASES)}.")
    partly = resume or only or backends
    kept = json.loads(out.read_text())["algorithms"] if out.exists() and partly else {}
    rows: dict[str, Any] = {}
    with tqdm(CASES.items(), unit="algorithm") as bar:
        for name, case in bar:
            bar.set_postfix_str(name)
            updates = num_updates or case.num_updates
            same = name in kept and kept[name]["settings"] == settings(case, updates)
            if (only and name not in only) or (resume and same):
                if name in kept:
                    rows[name] = kept[name]
                continue
            wanted = ("linen", *backends) if backends else libraries_of(case)
            chosen = [one for one in libraries_of(case) if one in wanted]
            rows[name] = measure(name, case, chosen, updates, rounds)
            if backends and name in kept:
                before = kept[name]["libraries"]
                measured = {**before, **rows[name]["libraries"]}
                rows[name]["libraries"] = {b: measured[b] for b in COLUMNS if b in measured}
            jax.clear_caches()
            later = {name: row for name, row in kept.items() if name not in rows}
            harness.write_json(
                out, {"environment": harness.environment(), "algorithms": {**rows, **later}}
            )
    if lacking := unmeasured(rows):
        raise SystemExit(
            f"measured: {out}. {page_path} and {picture} are not written, because they would lose "
            f"what {out} lacks: {lacking}. To measure this too: python -m benchmarks.matrix "
            "--resume"
        )
    machine = json.loads(out.read_text())["environment"] if out.exists() else {}
    page_path.parent.mkdir(parents=True, exist_ok=True)
    page_path.write_text(page(rows, machine))
    draw(rows, picture)
    equal, trained = counts(rows)
    print(f"{equal} of {trained} trainings are equal bit for bit: {page_path}, {picture}")


if __name__ == "__main__":
    tyro.cli(main)
