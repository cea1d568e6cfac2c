"""Pair the instructions of two programs, walk through both, and collect what differs."""

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TypeAlias

from .text import Instruction, Program

Body: TypeAlias = Sequence[Instruction]
Pairs: TypeAlias = list[tuple[int, int]]

# Opcodes that compute nothing. Two libraries pass the same values in another order.
WIRING = ("parameter", "get-tuple-element", "tuple", "while", "call", "conditional")


@dataclass
class Alignment:
    """Corresponding instructions of two computations.

    Attributes:
      pairs: indices that correspond, in the first computation's order; the operations of a pair may
        differ.
      moved: those of them that run in another order.
      removed: indices of the first computation's instructions without a counterpart.
      added: indices of the second computation's instructions without a counterpart.
    """

    pairs: Pairs
    moved: set[tuple[int, int]] = field(default_factory=set)
    removed: list[int] = field(default_factory=list)
    added: list[int] = field(default_factory=list)


def digests(program: Program) -> dict[str, str]:
    """Hash every instruction with all that it is computed from inside its computation.

    Equal digests are equal computations, names, order and source locations aside. A called
    computation is hashed in its textual order, as are the operands.
    """
    found: dict[str, str] = {}
    bodies: dict[str, str] = {}
    for name, body in program.computations.items():  # the called ones come first
        for each in body:
            operands = [found.get(operand, operand) for operand in each.operands]
            calls = [bodies.get(call, call) for call in each.calls]
            found[each.name] = _digest(each.kind, operands, calls)
        bodies[name] = _digest([found[each.name] for each in body])
    return found


def align(
    one: Body, other: Body, one_digests: dict[str, str], other_digests: dict[str, str]
) -> Alignment:
    """Pair the instructions of two computations.

    Exactly equal ones are paired first. Between these, those whose operations and operands'
    operations agree, then those of the same operation, opcode or shape.
    """
    keys = _keys(one, one_digests), _keys(other, other_digests)
    pairs = _refine(keys, 0, (0, len(one)), (0, len(other)))
    matched = {first for first, _ in pairs}, {second for _, second in pairs}
    removed = [index for index in range(len(one)) if index not in matched[0]]
    added = [index for index in range(len(other)) if index not in matched[1]]
    moved: Pairs = []
    for level in range(2):  # an instruction that runs elsewhere; a mere opcode would not show that
        waiting: dict[Hashable, list[int]] = {}
        for index in added:
            waiting.setdefault(keys[1][level][index], []).append(index)
        for index in removed:
            candidates = waiting.get(keys[0][level][index])
            if candidates:
                moved.append((index, candidates.pop(0)))
        removed = [index for index in removed if index not in {first for first, _ in moved}]
        added = [index for index in added if index not in {second for _, second in moved}]
    return Alignment(sorted([*pairs, *moved]), set(moved), removed, added)


def _keys(body: Body, found: dict[str, str]) -> list[list[Hashable]]:
    """List the keys by which instructions are paired, from the strictest to the loosest."""
    kinds = {each.name: each.kind for each in body}
    near = [(each.kind, tuple(kinds.get(name) for name in each.operands)) for each in body]
    makers: list[Callable[[int], Hashable]] = [
        lambda index: found[body[index].name],
        lambda index: near[index],
        lambda index: body[index].kind,
        lambda index: (body[index].opcode, body[index].shape),
        lambda index: body[index].opcode,
        lambda index: body[index].shape,
    ]
    return [[make(index) for index in range(len(body))] for make in makers]


def _refine(
    keys: tuple[list[list[Hashable]], list[list[Hashable]]],
    level: int,
    ours: tuple[int, int],
    theirs: tuple[int, int],
) -> Pairs:
    """Pair by the key of a level, and what is left between these pairs by the next one."""
    if level == len(keys[0]) or ours[0] == ours[1] or theirs[0] == theirs[1]:
        return []
    matcher = SequenceMatcher(
        None, keys[0][level][slice(*ours)], keys[1][level][slice(*theirs)], autojunk=False
    )
    pairs: Pairs = []
    done = ours[0], theirs[0]
    for start, other_start, size in matcher.get_matching_blocks():
        start, other_start = start + ours[0], other_start + theirs[0]
        pairs += _refine(keys, level + 1, (done[0], start), (done[1], other_start))
        pairs += [(start + step, other_start + step) for step in range(size)]
        done = start + size, other_start + size
    return pairs


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


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
