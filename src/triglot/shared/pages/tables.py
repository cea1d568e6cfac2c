"""Tables, as text for a terminal, Markdown and CSV."""

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...backends import libraries
from ...core.errors import printable
from ...core.records import JSON, JSONDict
from ..statistics.returns import MIN_SEEDS
from . import numbers

Record: TypeAlias = JSON
Result: TypeAlias = JSON  # as `comparison.json` holds it

TERMINAL = 80  # columns


@dataclass(frozen=True)
class Column:
    """A column: its header, the text of a record's cell, and whether it is aligned left."""

    header: str
    text: Callable[[Record], str]
    left: bool = False


LIBRARY = Column("library", lambda row: libraries.title(row["library"]), left=True)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table for people and its records for programs.

    Attributes:
      name: of the CSV file and of the place in the page.
      title: a heading.
      columns: for people, the most important ones first.
      records: for programs, one dictionary of numbers and texts per row; it may be nested.
      note: what the columns mean.
    """

    name: str
    title: str
    columns: Sequence[Column]
    records: Sequence[Record]
    note: str = ""

    @property
    def header(self) -> list[str]:
        """The columns' headers."""
        return [column.header for column in self.columns]

    @property
    def rows(self) -> list[list[str]]:
        """The cells' texts."""
        return [
            [printable(column.text(record)) for column in self.columns] for record in self.records
        ]


def as_text(table: Table, width: int = TERMINAL, longest: int | None = None) -> str:
    """Align a table for a terminal; the last columns are left out if it would be too wide.

    The names in the first column are cut in the middle if they are too long.

    Args:
      table: the table.
      width: the number of characters in a line, at most.
      longest: characters of a name in the first column, at most; None for a third of the width.
    """
    cells = [table.header, *table.rows]
    longest = longest or max(width // 3, 8)
    cells = [[_cut(first, longest), *rest] for first, *rest in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    shown = len(widths)
    while shown > 1 and sum(widths[:shown]) + 2 * (shown - 1) > width:
        shown -= 1
    lines = []
    for row in cells:
        padded = [
            cell.ljust(size) if column.left else cell.rjust(size)
            for cell, size, column in zip(row[:shown], widths, table.columns, strict=False)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _cut(text: str, length: int) -> str:
    """Leave out the middle of a long text.

    >>> _cut("ppo-linen-20261123-174501", 18)
    'ppo-l…61123-174501'
    """
    kept = length - 1
    return text if len(text) <= length else f"{text[: kept // 3]}…{text[kept // 3 - kept :]}"


def as_markdown(table: Table) -> str:
    """Format a table as Markdown, which GitHub and pandoc read."""
    marks = [":--" if column.left else "--:" for column in table.columns]
    rows = [table.header, marks, *table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in r) + " |" for r in rows)


def as_csv(table: Table) -> str:
    """Format a table's records as CSV; a missing number is an empty cell."""
    records = [dict(_flat(record)) for record in table.records]
    text = io.StringIO()
    names = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _flat(record: Record, *outer: str) -> Iterator[tuple[str, Any]]:
    """Name the fields of nested records by their path, joined by underscores."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, *outer, name)
        else:
            yield "_".join(filter(None, (*outer, name))), value


def picked(record: Record | None, *names: str) -> JSONDict:
    """Take fields of a record that may be missing; a missing field is None."""
    return {name: (record or {}).get(name) for name in names}


def estimated(record: Record | None) -> JSONDict:
    """Take the fields of an estimate; the estimate itself has the name of what holds it."""
    return {"": (record or {}).get("value"), **picked(record, "low", "high", "count")}


def spread(returns: Sequence[float | None]) -> JSONDict:
    """Find the lowest and the highest seed."""
    known = [value for value in returns if value is not None and math.isfinite(value)]
    return {"lowest": min(known, default=None), "highest": max(known, default=None)}


def spread_column(name: str, num_seeds: int) -> list[Column]:
    """Make the column beside a mean over seeds: its interval; below 5 seeds the range of seeds.

    Args:
      name: of the field with `low` and `high`, and what `spread` finds.
      num_seeds: seeds trained; one has neither an interval nor a range.
    """
    if num_seeds >= MIN_SEEDS:
        return [Column("95% interval", lambda row: numbers.interval(row[name]))]
    return [Column("range of seeds", lambda row: numbers.span(row[name]))][: num_seeds > 1]


# The field of a result in an environment with levels.
GAP = "generalization_gap"
GAP_NOTE = "Gap: the mean return on the levels of the training, less that on levels held out."


def picked_gap(facts: Record) -> dict[str, float | None]:
    """Take the generalization gap out of a result; empty without levels."""
    return {GAP: facts[GAP]} if GAP in facts else {}


def gap_column(records: Sequence[Record]) -> list[Column]:
    """Make the column of the generalization gap, if one of the records has it."""
    if not any(GAP in row for row in records):
        return []
    return [Column("gap", lambda row: numbers.returns(row.get(GAP)))]
