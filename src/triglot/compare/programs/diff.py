"""Compare two optimized programs, and print what differs for a person to read."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...core.errors import TriglotError
from ..results import Record
from .fusions import FusionPair, first_fusion
from .text import ELIDED, Instruction, Program, parse, plain_text
from .walk import Comparison, Section

SAME = "The compiled programs are the same."
MAX_STORED_LINES = 200  # of each pair in `comparison.json`
MAX_LINES = 60
MAX_LINES_OF_ONE = 12  # computation
MAX_WIDTH = 100
MAX_NAMES = 4


@dataclass(frozen=True)
class ProgramDifference:
    """The difference between two optimized programs.

    Attributes:
      identical: whether they are equal but for names and source locations. Operand order, layouts,
        constants, the schedule, and which inputs and outputs share memory count.
      sentence: the same, with the number and the place of the differences.
      lines: the differing instructions with their source lines, the others folded.
      first_difference: the name of the first fusion of the first program, in the order of the
        schedule, that holds or is a differing instruction; if none does, of the first differing
        instruction outside of fusions. None if there is no such instruction.
      source: file and line of the first difference, or None.
      fusion: the first differing fusion that computes and does not only rearrange values; None if
        there is none.
    """

    identical: bool
    sentence: str
    lines: tuple[str, ...] = ()
    first_difference: str | None = None
    source: str | None = None
    fusion: FusionPair | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def diff_programs(one_text: str, other_text: str) -> ProgramDifference:
    """Compare the texts of two optimized programs.

    Args:
      one_text: from `text.program_text`; from `compiled.as_text()` large constants are missing, and
        the programs are then not called the same.
      other_text: from the same function.

    Raises:
      TriglotError: if a text is not a program.
    """
    one, other = parse(one_text), parse(other_text)
    if not (one.entry and other.entry):
        raise TriglotError(
            "no computation was found in the text of a compiled program; expected the text of "
            "optimized HLO, as program_text(compiled) prints it."
        )
    if plain_text(one_text) == plain_text(other_text):
        elided = one_text.count(ELIDED)
        if not elided:
            return ProgramDifference(True, SAME)
        return ProgramDifference(
            False,
            f"The texts of the compiled programs are the same, but {elided} large constants are "
            "not printed in them, so the programs may differ: use program_text.",
        )
    comparison = Comparison(one, other)
    lines = tuple(lines_of(comparison.sections))
    changes = comparison.changes
    total = sum(1 for _ in one.instructions) + sum(not change.one for change in changes)
    computing = [change for change in changes if not change.is_wiring]
    if not changes:
        what = _other_difference(one, other, comparison.sections)
        return ProgramDifference(
            False, f"The compiled programs hold the same instructions, {what}."
        )
    first = next((change for change in computing if change.fusion), [*computing, *changes][0])
    culprit = first.fusion or first.instruction
    name, source = culprit.name[1:], first.instruction.source or culprit.source
    amount = f"{len(computing):,} of {total:,} instructions"
    if not computing:
        amount = f"the order or layout of {len(changes):,} values that are passed on"
    elif len(changes) > len(computing):
        amount += f", and in {len(changes) - len(computing):,} that only pass values on"
    kind = "fusion " if first.fusion else ""
    sentence = f"The compiled programs differ in {amount}; first in {kind}{name}"
    sentence += f" ({source})." if source else "."
    fusion = first_fusion(changes, (one, other))
    return ProgramDifference(False, sentence, lines, name, source or None, fusion)


def diff_all(records: Mapping[str, Record]) -> dict[str, Any]:
    """Describe the training programs, and compare them in pairs."""
    pairs = []
    for one, other in itertools.combinations(records, 2):
        found = diff_programs(records[one].program, records[other].program).as_json()
        lines = found["lines"]
        rest = len(lines) - MAX_STORED_LINES
        if rest > 0:
            lines = [*lines[:MAX_STORED_LINES], f"... {rest:,} more lines"]
        pairs.append({"backends": [one, other], **found, "lines": lines})
    facts = {name: record.facts["program"] for name, record in records.items()}
    return {"backends": facts, "pairs": pairs}


def _other_difference(one: Program, other: Program, sections: list[Section]) -> str:
    moved = sum(section.moved for section in sections)
    found = [f"{moved:,} of them in another order"] if moved else []
    if one.header != other.header:
        found.append("with other layouts, aliases or attributes of the whole program")
    return " and ".join(found) or "in other computations or in another order"


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
