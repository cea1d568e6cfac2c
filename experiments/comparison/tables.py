"""The tables of a comparison, as text and as HTML."""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ...backends import libraries
from ..statistics import format_return

# A column is a header and a function from one backend's entry in `comparison.json`, with `name` and
# `identity` added, to the cell's text.
Row: TypeAlias = Mapping[str, Any]
Column: TypeAlias = tuple[str, Callable[[Row], str]]


def _number(name: str, form: str = ",.0f", scale: float = 1.0) -> Callable[[Row], str]:
    return lambda row: "–" if row.get(name) is None else format(row[name] * scale, form)


def _return(name: str) -> Callable[[Row], str]:
    return lambda row: "–" if row[name] is None else format_return(row[name])


def _seconds(name: str) -> Callable[[Row], str]:
    return _number(name, ".2f")


def _interval(row: Row) -> str:
    bounds = row["final_return_interval"]
    return "–" if bounds is None else f"{format_return(bounds[0])} to {format_return(bounds[1])}"


def _parameters(row: Row) -> str:
    place = row["identity"]["first_difference"]
    return "equal" if place is None else f"differ from update {place['update']:,}"


def _place(difference: str, kind: str, things: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        place = row["identity"][difference]
        if place is None:
            return "equal"
        return f"differ from update {place['update']:,}, {where(place, kind, things)}"

    return cell


def where(place: Mapping[str, Any], kind: str, things: str) -> str:
    """Name the first parameter array or metric that differs.

    >>> where({"leaf": "actor/head/logits/bias", "num_differing": 12}, "leaf", "arrays")
    'in actor/head/logits/bias and 11 more arrays'
    """
    more = place["num_differing"] - 1
    return f"in {place[kind]}" + (f" and {more:,} more {things}" if more else "")


BACKEND: Column = ("backend", lambda row: libraries.title(row["name"]))
RETURN: Column = ("return", _return("final_return_mean"))
INTERVAL: Column = ("95% interval", _interval)
STEPS: Column = ("steps/s", _number("steps_per_second"))
LIBRARY: Column = ("import s", _seconds("import_library_seconds"))
TRACE: Column = ("trace s", _seconds("trace_seconds"))
COMPILE: Column = ("compile s", _seconds("compile_seconds"))
CALL: Column = ("call µs", _number("dispatch_microseconds"))
MEMORY: Column = ("peak MB", _number("peak_memory_bytes", scale=1e-6))

MAIN: tuple[Column, ...] = (
    BACKEND, ("parameters", _parameters), RETURN, INTERVAL, LIBRARY, TRACE, COMPILE, STEPS, CALL,
    MEMORY,
)  # fmt: skip
RETURNS: tuple[Column, ...] = (
    BACKEND, RETURN, INTERVAL, ("last training return", _return("training_return_mean")),
)  # fmt: skip
IDENTITY: tuple[Column, ...] = (
    BACKEND,
    ("parameters", _place("first_difference", "leaf", "arrays")),
    ("metrics", _place("first_metric_difference", "metric", "metrics")),
    ("largest difference at the end", lambda row: f"{row['identity']['largest_difference']:.3g}"),
    ("SHA-256 of the final parameters", lambda row: row["params_sha256"][:16]),
)
COSTS: tuple[Column, ...] = (
    BACKEND,
    LIBRARY,
    ("import all s", _seconds("import_seconds")),
    ("construct s", _seconds("construct_seconds")),
    ("init s", _seconds("init_seconds")),
    TRACE,
    ("lower s", _seconds("lower_seconds")),
    COMPILE,
    ("compile CPU s", _seconds("compile_cpu_seconds")),
    ("first chunk s", _seconds("first_chunk_seconds")),
    STEPS,
    CALL,
    MEMORY,
)
PROGRAM: tuple[Column, ...] = (
    BACKEND,
    ("parameters", _number("num_params")),
    ("MFLOP", lambda row: _number("flops", ",.1f", 1e-6)(row["program"])),
    ("instructions", lambda row: _number("instructions")(row["program"])),
    ("SHA-256 of the program", lambda row: row["program"]["sha256"][:16]),
)


def rows(columns: Sequence[Column], result: Mapping[str, Any]) -> list[list[str]]:
    """Build the header and one row per backend."""
    data = [
        {**facts, "name": name, "identity": result["identity"]["backends"][name]}
        for name, facts in result["backends"].items()
    ]
    return [[name for name, _ in columns], *([cell(row) for _, cell in columns] for row in data)]


def as_text(columns: Sequence[Column], result: Mapping[str, Any], left_aligned: int = 2) -> str:
    """Align a table for a terminal, the first columns to the left and the others to the right."""
    cells = rows(columns, result)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = [
            cell.ljust(width) if index < left_aligned else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def as_html(columns: Sequence[Column], result: Mapping[str, Any]) -> str:
    """Format a table as HTML."""
    header, *body = rows(columns, result)
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in header)
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in body
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<div class="wide">{table}</div>'
