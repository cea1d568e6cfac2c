"""Walk through two programs from their entries, and collect what differs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .align import Alignment, Body, align, digests
from .text import Instruction, Program

# Opcodes that compute nothing. Two libraries pass the same values in another order.
WIRING = ("parameter", "get-tuple-element", "tuple", "while", "call", "conditional")


@dataclass(frozen=True)
class Change:
    """A differing instruction.

    Attributes:
      instruction: of the first program, or of the second if the first lacks it.
      one: its line in the first program, or empty.
      other: its line in the second program, or empty.
      path: the instructions that call its computation, outermost first.
      path_of_other: the same in the second program.
      counterpart: the second program's instruction; None if it has none, or is `instruction`.
      is_wiring: whether it only passes values on, or differs only in that it reads passed values
        that have no certain counterparts.
    """

    instruction: Instruction
    one: str
    other: str
    path: tuple[Instruction, ...]
    path_of_other: tuple[Instruction, ...]
    counterpart: Instruction | None
    is_wiring: bool

    @property
    def fusion(self) -> Instruction | None:
        """The outermost fusion that holds or is the instruction."""
        return _fusion((*self.path, self.instruction))

    @property
    def fusions(self) -> tuple[Instruction | None, Instruction | None]:
        """The outermost fusion of each program that holds the instruction; else itself."""
        own = self.instruction if self.one else None
        other = self.counterpart if self.one else self.instruction
        return _fusion((*self.path, own)) or own, _fusion((*self.path_of_other, other)) or other


def _fusion(instructions: Sequence[Instruction | None]) -> Instruction | None:
    return next((each for each in instructions if each and each.opcode == "fusion"), None)


@dataclass
class Section:
    """Two corresponding computations.

    Attributes:
      path: the instructions that call the first one, outermost first.
      size: the larger number of instructions.
      changes: in the order of the schedule.
      moved: the number of instructions that only run in another order.
    """

    path: tuple[Instruction, ...]
    size: int
    changes: list[Change] = field(default_factory=list)
    moved: int = 0


class Comparison:
    """Walks through two programs from their entries, in the order of the schedule.

    Attributes:
      sections: one per pair of computations.
      changes: those of all sections, in the order in which the instructions run.
    """

    def __init__(self, one: Program, other: Program) -> None:
        self.programs = one, other
        self.digests = digests(one), digests(other)
        self.seen: set[tuple[str, str]] = set()
        self.sections: list[Section] = []
        self.changes: list[Change] = []
        self._walk(one.entry, other.entry, (), ())

    def _walk(
        self,
        name: str,
        other_name: str,
        path: tuple[Instruction, ...],
        path_of_other: tuple[Instruction, ...],
    ) -> None:
        if (name, other_name) in self.seen:
            return
        self.seen.add((name, other_name))
        one, other = self.programs[0].computations[name], self.programs[1].computations[other_name]
        found = align(one, other, *self.digests)
        section = Section(path, max(len(one), len(other)), moved=len(found.moved))
        self.sections.append(section)
        names = _Names(one, other, found)

        def add(
            instruction: Instruction,
            one: str = "",
            other: str = "",
            counterpart: Instruction | None = None,
            wired: bool = False,
        ) -> None:
            wired = wired or instruction.opcode in WIRING
            change = Change(instruction, one, other, path, path_of_other, counterpart, wired)
            section.changes.append(change)
            self.changes.append(change)

        partners, waiting = dict(found.pairs), list(found.added)
        for index, ours in enumerate(one):
            if index not in partners:
                add(ours, one=names.line(ours, 0))
                continue
            while waiting and waiting[0] < partners[index]:
                extra = other[waiting.pop(0)]
                add(extra, other=names.line(extra, 1))
            theirs = other[partners[index]]
            lines = names.line(ours, 0), names.line(theirs, 1)
            if lines[0] != lines[1]:
                add(ours, *lines, theirs, names.read_alike(ours, theirs))
                names.equal[0].discard(ours.name)
                names.equal[1].discard(theirs.name)
            if self.digests[0][ours.name] != self.digests[1][theirs.name]:
                for call, other_call in zip(ours.calls, theirs.calls, strict=False):
                    self._walk(call, other_call, (*path, ours), (*path_of_other, theirs))
        for index in waiting:
            add(other[index], other=names.line(other[index], 1))


class _Names:
    """Numbers the instructions of two computations, corresponding ones alike."""

    def __init__(self, one: Body, other: Body, found: Alignment) -> None:
        self.bodies = {each.name: each for each in one}, {each.name: each for each in other}
        self.numbers: tuple[dict[str, str], dict[str, str]] = ({}, {})
        # The walk removes pairs that turn out to differ.
        self.equal = {one[i].name for i, _ in found.pairs}, {other[i].name for _, i in found.pairs}
        for number, (ours, theirs) in enumerate(found.pairs):
            self.numbers[0][one[ours].name] = self.numbers[1][other[theirs].name] = f"%{number}"
        for side, body, unpaired in ((0, one, found.removed), (1, other, found.added)):
            for number, index in enumerate(unpaired):
                self.numbers[side][body[index].name] = f"%{'ab'[side]}{number}"

    def line(self, each: Instruction, side: int) -> str:
        """Print an instruction with numbers for names."""
        numbers = self.numbers[side]
        operands = ", ".join(numbers.get(name, name) for name in each.operands) or each.literal
        attributes = f", {each.attributes}" if each.attributes else ""
        root = "ROOT " if each.is_root else ""
        return f"{root}{numbers[each.name]} = {each.shape} {each.opcode}({operands}){attributes}"

    def read_alike(self, ours: Instruction, theirs: Instruction) -> bool:
        """Check whether two instructions may read the same passed values.

        They differ in which they read, but these have no certain counterparts: a loop that carries
        its values in another order.
        """
        if ours.kind != theirs.kind or len(ours.operands) != len(theirs.operands):
            return False
        for name, other_name in zip(ours.operands, theirs.operands, strict=True):
            if self.numbers[0].get(name) != self.numbers[1].get(other_name):
                one, other = self.bodies[0].get(name), self.bodies[1].get(other_name)
                if one is None or other is None or one.shape != other.shape:
                    return False
                if one.opcode not in WIRING or other.opcode not in WIRING:
                    return False
                if name in self.equal[0] or other_name in self.equal[1]:
                    return False
        return True
