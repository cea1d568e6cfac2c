"""Find which instructions of two programs correspond."""

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TypeAlias

from .text import Instruction, Program

Body: TypeAlias = Sequence[Instruction]
Pairs: TypeAlias = list[tuple[int, int]]


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
