"""Print what differs between two programs."""

from collections.abc import Iterator

from .text import Instruction
from .walk import Section

MAX_LINES = 60
MAX_LINES_OF_ONE = 12  # computation
MAX_WIDTH = 100
MAX_NAMES = 4


def lines_of(sections: list[Section]) -> Iterator[str]:
    """Print the sections with changes, at most about `MAX_LINES` lines; equal ones once."""
    alike: dict[tuple[str, ...], list[Section]] = {}
    for section in sections:
        if section.changes or section.moved:
            alike.setdefault(tuple(_section_lines(section)), []).append(section)
    # What only passes values on is of interest if nothing else differs.
    groups = sorted(
        alike.items(), key=lambda item: all(change.is_wiring for change in item[1][0].changes)
    )
    left = MAX_LINES
    while groups and left > 0:
        lines, (first, *others) = groups.pop(0)
        left -= len(lines) + 1
        yield " > ".join(["entry", *(_title(each) for each in first.path)])
        yield from lines
        if others:
            names = ", ".join(section.path[-1].name[1:] for section in others[:MAX_NAMES])
            more = ", ..." if len(others) > MAX_NAMES else ""
            yield f"  ... the same in {len(others):,} more: {names}{more}"
    if groups:
        rest = [section for _, group in groups for section in group]
        count = sum(len(section.changes) for section in rest)
        yield f"... {len(rest):,} more computations with {count:,} differing instructions"


def _section_lines(section: Section) -> Iterator[str]:
    changes = [change for change in section.changes if not change.is_wiring]
    wiring = len(section.changes) - len(changes)
    if not changes:
        changes, wiring = section.changes, 0
    shown = 0
    for index, change in enumerate(changes):
        if shown >= MAX_LINES_OF_ONE:
            yield f"  ... {len(changes) - index:,} more differing instructions"
            break
        place = f"   # {change.instruction.source}" if change.instruction.source else ""
        for sign, line, partner in (
            ("-", change.one, change.other),
            ("+", change.other, change.one),
        ):
            if line:
                shown += 1
                yield f"  {sign} {_shortened(line, partner)}{place}"
    equal = section.size - len(section.changes) - section.moved
    for count, what in (
        (wiring, "only passing values on, differing"),
        (section.moved, "in another order"),
        (equal, "equal"),
    ):
        if count > 0:
            yield f"  ... {count:,} {'instruction' if count == 1 else 'instructions'}: {what}"


def _title(instruction: Instruction) -> str:
    source = f" ({instruction.source})" if instruction.source else ""
    return f"{instruction.opcode} {instruction.name[1:]}{source}"


def _shortened(line: str, partner: str) -> str:
    """Cut a long line, but show its first character that differs from its partner's."""
    if len(line) <= MAX_WIDTH:
        return line
    pairs = enumerate(zip(line, partner, strict=False))
    first = next((i for i, (a, b) in pairs if a != b), 0) if partner else 0
    if first < MAX_WIDTH - 24:
        return f"{line[: MAX_WIDTH - 4]} ..."
    start, length = first - 24, MAX_WIDTH - 50
    end = " ..." if start + length < len(line) else ""
    return f"{line[:40]} ... {line[start : start + length]}{end}"
