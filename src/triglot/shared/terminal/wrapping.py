"""Wrap text to the width of the terminal."""

import re
import shutil
import textwrap

from ...core.errors import printable

KEPT = "\N{NO-BREAK SPACE}"
COLOR = re.compile(r"(\x1b\[[0-9;]*m)")
WIDTHS = (40, 200)  # in columns, between which help is readable


def terminal_width() -> int:
    """Return the columns of the terminal, or `COLUMNS`; 80 if neither is known."""
    low, high = WIDTHS
    return min(max(shutil.get_terminal_size().columns, low), high)


def wrapped(text: str, width: int | None = None) -> str:
    r"""Wrap the lines that are longer than the terminal is wide; words stay whole.

    A line of two columns, separated by two spaces or more, continues in its second column. A
    command continues after a backslash, so that it can be copied.

    Args:
      text: lines, of which those that fit are kept; colors take no width, and other control
        characters are escaped.
      width: columns; None for the terminal's.

    >>> print(wrapped("  run   trains and reports", 20))
      run   trains and
            reports
    >>> print(wrapped("triglot list gymnax", 15))
    triglot list \
        gymnax
    """
    width = width or terminal_width()
    parts = COLOR.split(text)  # every second one is a color
    parts[::2] = [printable(part, keep="\n\t") for part in parts[::2]]
    text = "".join(parts)
    return "\n".join(
        line if len(COLOR.sub("", line)) <= width else _wrapped_line(line, width)
        for line in text.split("\n")
    )


def _wrapped_line(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()))
    if line.lstrip().startswith("triglot "):
        joined = re.sub(r"(--\S+) (?!-)", rf"\1{KEPT}", line)  # an option and its value
        return " \\\n".join(_lines(joined, width - 2, f"{indent}    ")).replace(KEPT, " ")
    columns = re.match(r"\s*\S+( \S+)*\s{2,}(?=\S)", line)
    hanging = " " * columns.end() if columns else indent
    return "\n".join(_lines(line, width, hanging))


def _lines(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
