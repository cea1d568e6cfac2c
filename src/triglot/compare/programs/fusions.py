"""Find the first fusion in which two compiled programs compute differently, and what it computes.

Values that are only passed on or rearranged keep their bits, and libraries pass them on in
different orders, so such differences come last.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .text import Instruction, Program
from .walk import Change

# Opcodes that only rearrange values.
REARRANGING = {
    "bitcast", "broadcast", "concatenate", "constant", "copy", "dynamic-slice",
    "dynamic-update-slice", "gather", "get-tuple-element", "iota", "pad", "parameter", "reshape",
    "reverse", "slice", "transpose", "tuple",
}  # fmt: skip
# Opcodes whose results are exact, so that no rounding depends on how they are compiled.
EXACT = REARRANGING | {
    "abs", "and", "clamp", "compare", "maximum", "minimum", "negate", "not", "or", "select", "sign",
    "xor",
}  # fmt: skip
FLOATING = re.compile(r"\(?(?:bf|f|c)\d")  # how shapes of rounded numbers begin
# What an opcode that combines many values does, the most telling first.
COMBINING = {
    "convolution": "convolves {operands[0]} with {operands[1]}",
    "dot": "multiplies {operands[0]} by {operands[1]}",
    "reduce": "{how} {operands[0]}{dimensions}",
    "reduce-window": "{how} windows of {operands[0]}",
    "scatter": "scatters into {operands[0]}",
    "sort": "sorts {operands[0]}",
}
REDUCTIONS = {"add": "sums", "multiply": "multiplies", "maximum": "takes the maximum of",
              "minimum": "takes the minimum of"}  # fmt: skip
MAX_OPCODES = 4


@dataclass(frozen=True)
class Fusion:
    """A fusion of one program, or an instruction that is in no fusion.

    Attributes:
      name: unique in the program, without `%`.
      opcode: of its most telling instruction, such as `reduce`.
      source: file and line of that instruction; empty if there is none.
      computes: what it does, a phrase such as `sums f32[5,4,1] over dimension 1`.
    """

    name: str
    opcode: str
    source: str
    computes: str


@dataclass(frozen=True)
class FusionPair:
    """The first fusion in which two programs compute differently.

    Attributes:
      one, other: of each program; None if it has no counterpart there.
    """

    one: Fusion | None
    other: Fusion | None


def first_fusion(changes: Sequence[Change], programs: tuple[Program, Program]) -> FusionPair | None:
    """Find the first differing fusion whose result may be rounded differently.

    Args:
      changes: the differing instructions, in the order in which they run.
      programs: both programs.

    Returns:
      The first fusion with another body, or without a counterpart, that rounds; else the first
      that computes at all. None if all differing instructions only rearrange values.
    """
    computing = [change for change in changes if not change.is_wiring]
    own = [change for change in computing if not _only_reads_others(change)]
    for candidates, check in ((own, _rounds), (own, _computes), (computing, _computes)):
        for change in candidates:
            sides = list(zip(change.fusions, programs, strict=True))
            if any(
                check(each, program)
                for one, program in sides
                for each in (_body(one, program) if one else ())
            ):
                described = [one and _described(one, program) for one, program in sides]
                return FusionPair(*described)
    return None


def _only_reads_others(change: Change) -> bool:
    """Return whether both programs have the instruction, at most with other operands.

    If the operands are computed differently, they are a change themselves; if they are passed on,
    which of them correspond is not certain.
    """
    other = change.counterpart
    return other is not None and change.instruction.kind == other.kind


def _computes(each: Instruction, program: Program) -> bool:
    del program
    return each.opcode not in REARRANGING


def _rounds(each: Instruction, program: Program) -> bool:
    opcode = each.opcode
    if opcode.startswith("reduce") and (called := _called(each, program)):
        opcode = called[-1].opcode
    return opcode not in EXACT and FLOATING.match(each.shape) is not None


def _called(each: Instruction, program: Program) -> list[Instruction]:
    return [one for call in each.calls for one in program.computations.get(call, ())]


def _described(one: Instruction, program: Program) -> Fusion:
    body = _body(one, program)
    telling = _most_telling(body)
    return Fusion(
        name=one.name[1:],
        opcode=telling.opcode,
        source=telling.source or one.source,
        computes=_phrase(telling, body, program),
    )


def _body(one: Instruction, program: Program) -> list[Instruction]:
    """List the instructions of a fusion; of another instruction, itself."""
    if one.opcode != "fusion":
        return [one]
    return [each for call in one.calls for each in _inside(program, call)] or [one]


def _inside(program: Program, name: str) -> list[Instruction]:
    """List the instructions of a computation and of the fusions in it."""
    found = []
    for each in program.computations.get(name, ()):
        found.append(each)
        if each.opcode in ("fusion", "call"):
            found += [one for call in each.calls for one in _inside(program, call)]
    return found


def _most_telling(body: Sequence[Instruction]) -> Instruction:
    """Choose the instruction that combines most, else the last that computes, else the result."""
    for opcode in COMBINING:
        for each in body:
            if each.opcode == opcode:
                return each
    computing = [each for each in body if each.opcode not in REARRANGING]
    return (computing or body)[-1]


def _phrase(telling: Instruction, body: Sequence[Instruction], program: Program) -> str:
    opcodes = list(
        dict.fromkeys(
            each.opcode
            for each in body
            if each.opcode not in REARRANGING | {telling.opcode, "fusion"}
        )
    )
    others = ", ".join(opcodes[:MAX_OPCODES]) + (", ..." if opcodes[MAX_OPCODES:] else "")
    if telling.opcode not in COMBINING:
        return f"computes {_plain(telling.shape)} by {telling.opcode}{others and f', {others}'}"
    shapes = {each.name: each.shape for each in program.instructions}
    called = _called(telling, program)
    found = re.search(r"dimensions=\{([\d,]+)\}", telling.attributes)
    axes = found[1].split(",") if found else []
    plural = "s" if len(axes) > 1 else ""
    phrase = COMBINING[telling.opcode].format(
        operands=[_plain(shapes[name]) for name in telling.operands],
        how=REDUCTIONS.get(called[-1].opcode if called else "", "reduces"),
        dimensions=f" over dimension{plural} {' and '.join(axes)}" if axes else "",
    )
    return f"{phrase}{others and f' (with {others})'}"


def _plain(shape: str) -> str:
    """Remove the layout: `f32[5,4]{1,0}` is `f32[5,4]`."""
    return re.sub(r"\{[^{}]*\}", "", shape)
