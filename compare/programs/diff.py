"""Compare two optimized programs, and print what differs for a person to read."""

from dataclasses import asdict, dataclass
from typing import Any

from ...core.errors import TriglotError
from .fusions import FusionPair, first_fusion
from .show import lines_of
from .text import ELIDED, Program, parse, plain_text
from .walk import Comparison, Section

SAME = "The compiled programs are the same."


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


def _other_difference(one: Program, other: Program, sections: list[Section]) -> str:
    moved = sum(section.moved for section in sections)
    found = [f"{moved:,} of them in another order"] if moved else []
    if one.header != other.header:
        found.append("with other layouts, aliases or attributes of the whole program")
    return " and ".join(found) or "in other computations or in another order"
