"""The page of the gallery: what `diff` said about each pair and each bug."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import harness

from .run import CLEAN

PAGE = """# Gallery of ports

{pairs} public architectures, each written in two libraries, and {bugs} mistakes of a port, planted
in the second network one at a time. `python -m tests.gallery` runs
[`triglot diff`](guide/port.md) on all and writes this page. The networks are in
`tests/gallery/families`, small by default.

| of | right |
|---|---:|
{totals}

A cause is right if its name is one of those planted. A place is right if the first difference, or
the cause, names a line at most {near} lines from a planted one or from its counterpart in the other
network. A false accusation is a cause that was not planted and does not follow from one;
`initializer`, `precision` and `unknown` accuse nothing. Seconds are CPU seconds of the comparison
alone, without imports, on {cpu}; medians: {clean_seconds} s clean, {bug_seconds} s with a bug.

## Pairs

{pair_table}
{sizes}
## Bugs

{bug_table}
{failures}"""


def page(rows: Mapping[str, Any], cpu: str, near: int) -> str:
    """Format the page in Markdown.

    Args:
      rows: of the JSON file, by pair.
      cpu: the processor's name.
      near: how far a line may be from a planted one.
    """
    sized, rows = rows, {name: row for name, row in rows.items() if "@" not in name}
    clean = [row["rows"][CLEAN] for row in rows.values() if CLEAN in row["rows"]]
    bugs = [found for _, _, found in _bugs(rows)]
    return PAGE.format(
        pairs=len({row["pair"] for row in rows.values()}),
        sizes=_sizes(sized),
        bugs=len(bugs),
        near=near,
        cpu=cpu,
        clean_seconds=_median(clean),
        bug_seconds=_median(bugs),
        totals="\n".join(f"| {what} | {number} of {all_} |" for what, number, all_ in totals(rows)),
        pair_table=harness.table(*_pair_table(rows)),
        bug_table=harness.table(*_bug_table(rows)),
        failures=_failures(rows),
    )


def totals(rows: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Count what is right: a description, how many, and of how many."""
    clean = [row["rows"][CLEAN] for row in rows.values() if CLEAN in row["rows"]]
    bugs = [found for _, _, found in _bugs(rows)]
    return [
        ("clean pairs, found equal and without a cause", sum(map(is_clean, clean)), len(clean)),
        ("bugs, found to be different", sum(bool(b.get("found")) for b in bugs), len(bugs)),
        ("bugs, right cause", sum(bool(b.get("named")) for b in bugs), len(bugs)),
        ("bugs, right place", sum(bool(b.get("located")) for b in bugs), len(bugs)),
        ("bugs, without a false accusation", sum(b.get("false") == [] for b in bugs), len(bugs)),
    ]


def is_clean(found: Mapping[str, Any]) -> bool:
    """Check whether a clean pair was found equal, and nothing was accused."""
    return found.get("verdict") in ("identical", "equivalent") and not found["false"]


def _bugs(rows: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for name, row in rows.items():
        for bug, found in row["rows"].items():
            if bug != CLEAN:
                yield name, bug, found


def _pair_table(rows: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    header = ["pair", "source", "libraries", "parameters", "clean", "CPU s", "bugs", "named"]
    header += ["located"]
    lines = []
    for name, row in rows.items():
        found = row["rows"].get(CLEAN, {})
        bugs = [each for bug, each in row["rows"].items() if bug != CLEAN]
        count = f"{max(found['num_params']):,}" if "num_params" in found else ""
        verdict = found.get("verdict", "failed" if "error" in found else "")
        if found.get("false"):
            verdict += f" ({', '.join(found['false'])})"
        libraries = " and ".join(harness.TITLES[each] for each in row["libraries"])
        counts = [sum(bool(each.get(what)) for each in bugs) for what in ("named", "located")]
        lines.append([f"`{name}`", row["source"], libraries, count, verdict, _seconds(found)])
        lines[-1] += [str(each) for each in (len(bugs), *counts)]
    return header, lines


def _bug_table(rows: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    header = ["pair", "the port", "cause", "named", "located", "false accusations", "CPU s"]
    lines = []
    for name, bug, found in _bugs(rows):
        about = rows[name]["bugs"][bug]
        marks = [_mark(found, what) for what in ("named", "located")]
        false = ", ".join(f"`{each}`" for each in found.get("false", ()))
        cause = f"`{about['causes'][0]}`"
        lines.append([f"`{name}`", about["planted"], cause, *marks, false, _seconds(found)])
    return header, lines


SIZES = """
## Time over size

The same networks at published sizes, and small. Seconds are of the wall clock in a process that has
imported the libraries, of bugs the median and the slowest; memory is the largest of that process.

{table}
"""


def _sizes(rows: Mapping[str, Any]) -> str:
    """Format the section of published sizes; empty if there are none."""
    published = {name.partition("@")[0] for name in rows if "@" in name}
    chosen = {name: row for name, row in rows.items() if name.partition("@")[0] in published}
    if not chosen:
        return ""
    header = ["network", "libraries", "parameters", "level", "clean, s", "a bug, s"]
    header += ["the slowest, s", "memory, GB", "named", "located"]
    lines = []
    for name, row in sorted(chosen.items(), key=lambda each: _num_params(each[1])):
        clean = row["rows"].get(CLEAN, {})
        bugs = [found for bug, found in row["rows"].items() if bug != CLEAN]
        libraries = " and ".join(harness.TITLES[each] for each in row["libraries"])
        memory = max(each.get("peak_bytes", 0) for each in (clean, *bugs)) / 1e9
        waited, *seconds = (_waited(each) for each in (clean, *bugs))
        lines.append([f"`{name}`", libraries, f"{_num_params(row):,}", row["level"]])
        seconds.sort()
        of_bugs = (seconds[len(seconds) // 2], seconds[-1]) if seconds else ()
        shown = [f"{each:.0f}" for each in of_bugs] or ["", ""]
        lines[-1] += [f"{waited:.0f}", *shown, f"{memory:.1f}" if memory else ""]
        lines[-1] += [f"{sum(bool(each.get(what)) for each in bugs)} of {len(bugs)}"
                      for what in ("named", "located")]  # fmt: skip
    return SIZES.format(table=harness.table(header, lines))


def _waited(found: Mapping[str, Any]) -> float:
    return found.get("wall_seconds", found.get("seconds", float("nan")))


def _num_params(row: Mapping[str, Any]) -> int:
    return max(row["rows"].get(CLEAN, {}).get("num_params", (0,)))


def _mark(found: Mapping[str, Any], what: str) -> str:
    if "error" in found:
        return "failed"
    if found.get(what):
        return "✓"
    return "`unknown`" if what == "named" and found["unknown"] else "no"


def _failures(rows: Mapping[str, Any]) -> str:
    found = [
        f"- `{name}`, {bug}: {each['error']}"
        for name, row in rows.items()
        for bug, each in row["rows"].items()
        if "error" in each
    ]
    return "\n".join(["", "## Failures", "", *found, ""]) if found else ""


def _seconds(found: Mapping[str, Any]) -> str:
    return f"{found['seconds']:.1f}" if "seconds" in found else ""


def _median(rows: list[Any]) -> str:
    seconds = sorted(row["seconds"] for row in rows)
    return f"{seconds[len(seconds) // 2]:.1f}" if seconds else "-"
