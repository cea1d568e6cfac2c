"""Tables, as text for a terminal, Markdown and CSV."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..backends import libraries
from . import numbers
from .statistics.returns import MIN_SEEDS

Record: TypeAlias = Mapping[str, Any]
Result: TypeAlias = Mapping[str, Any]  # as `comparison.json` holds it

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
      records: for programs, one dictionary of numbers and texts per row.
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
        return [[column.text(record) for column in self.columns] for record in self.records]


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
    names = list(dict.fromkeys(name for record in table.records for name in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.records)
    return text.getvalue()


def bounds(record: Record, prefix: str) -> dict[str, Any]:
    """Return the fields of an interval, `low` and `high`, whose names begin with a prefix."""
    return {key: record.get(f"{prefix}{key}") for key in ("low", "high")}


def spread(prefix: str, returns: Sequence[float | None]) -> dict[str, Any]:
    """Make the fields of the lowest and highest seed, `prefix` before `lowest` and `highest`."""
    known = [value for value in returns if value is not None and math.isfinite(value)]
    return {
        f"{prefix}lowest": min(known, default=None),
        f"{prefix}highest": max(known, default=None),
    }


def spread_columns(prefix: str, num_seeds: int) -> tuple[Column, ...]:
    """Make the column beside a mean over seeds: its interval; below 5 seeds the range of seeds.

    Args:
      prefix: of the fields that `bounds` and `spread` have.
      num_seeds: seeds trained; one has neither an interval nor a range.
    """
    if num_seeds >= MIN_SEEDS:
        return (Column("95% interval", lambda row: numbers.interval(bounds(row, prefix))),)
    if num_seeds == 1:
        return ()

    def text(row: Record) -> str:
        ends = (row[f"{prefix}lowest"], row[f"{prefix}highest"])
        return "" if None in ends else " to ".join(map(numbers.returns, ends))

    return (Column("range of seeds", text),)
