"""Compiled programs: a hash of each, and the first instruction in which two of them differ."""

import hashlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, TypeAlias

from ..core.errors import TriglotError
from ..core.records import JSONDict
from ..diff.types import Operation, places
from .results import Record

QUOTED = r'"(?:\\.|[^"\\])*"'
NAME = r"%[\w.\-]+"
METADATA = re.compile(rf", metadata=\{{((?:{QUOTED}|\{{[^{{}}]*\}}|[^\"{{}}])*)\}}")
COMPUTATION = re.compile(rf"(ENTRY )?({NAME}) .*\{{$")
INSTRUCTION = re.compile(rf"\s+(?:ROOT )?({NAME}) = (.*? ([a-z][\w\-]*)\(.*)")
ELIDED = "{...}"  # how XLA prints a large constant, unless it is asked for
MAX_WIDTH = 200  # of an instruction in `comparison.json`

FLOATING = re.compile(r"\(?(?:bf|f|c)\d")  # how the shapes of rounded numbers begin
# Opcodes that only pass values on. Libraries pass on the same values in different orders.
PASSING = {"call", "conditional", "fusion", "get-tuple-element", "parameter", "tuple", "while"}
# Opcodes whose results are exact, so that no rounding depends on how they are compiled.
EXACT = PASSING | {
    "abs", "and", "bitcast", "broadcast", "clamp", "compare", "concatenate", "constant", "copy",
    "dynamic-slice", "dynamic-update-slice", "gather", "iota", "maximum", "minimum", "negate",
    "not", "or", "pad", "reshape", "reverse", "select", "sign", "slice", "transpose", "xor",
}  # fmt: skip
# What the names of libraries contain that XLA calls on GPUs and CPUs, by what they compute.
CALLED = {"dot": ("matmul", "gemm"), "convolution": ("conv",)}


def program_text(compiled: Any) -> str:
    """Print an optimized program with the values of all its constants.

    `compiled.as_text()` leaves out constants of more than 10 elements, in which two programs may
    differ; it is what remains where this version of jaxlib has no options for printing.
    """
    try:
        # JAX has no public name for the options.
        from jax._src.lib import hlo  # pyright: ignore[reportAttributeAccessIssue]

        options = hlo.HloPrintOptions()
        options.print_large_constants = True
        modules = compiled.runtime_executable().hlo_modules()
        return "\n\n".join(module.to_string(options) for module in modules)
    except (ImportError, AttributeError, TypeError):
        return compiled.as_text()


@dataclass(frozen=True)
class Instruction:
    """One instruction of an optimized program.

    Attributes:
      name: unique in the program, with `%`.
      opcode: such as `add`, `fusion` or `while`; of a call to a library, that of what it computes.
      text: shape, opcode, operands and attributes, with `%` for each name.
      metadata: where it comes from, as XLA prints it.
    """

    name: str
    opcode: str
    text: str
    metadata: str

    @property
    def may_round(self) -> bool:
        """Whether its result may be rounded in more than one way."""
        return self.opcode not in EXACT and FLOATING.match(self.text) is not None


class Program:
    """The text of an optimized program.

    Attributes:
      text: from `program_text`.
      lines: those of computations; the text lists files and stack frames before them.
    """

    def __init__(self, text: str) -> None:
        """Split a text into lines.

        Raises:
          TriglotError: if it is not a program.
        """
        self.text = text
        self.lines = list(_code_lines(text))
        if not self.lines:
            raise TriglotError(
                "no computation was found in the text of a compiled program; expected the text of "
                "optimized HLO, as program_text(compiled) prints it."
            )

    @cached_property
    def plain(self) -> list[str]:
        """The attributes of all modules, then each of `lines` without metadata.

        Names of modules are left out, and other names are numbered by first appearance. Operand
        order, layouts, aliases of inputs and outputs, and the schedule stay.

        >>> program = Program("HloModule m, is_scheduled=true\\n\\n%add.7 (x: f32[]) -> f32[] {\\n"
        ...                   "  %x.1 = f32[] parameter(0)\\n}")
        >>> print("\\n".join(program.plain))
        is_scheduled=true
        %0 {
          %1 = f32[] parameter(0)
        }
        """
        heads = re.findall(r"^HloModule [^,\n]*(?:, )?(.*)$", self.text, re.MULTILINE)
        names: dict[str, str] = {}

        def number(match: re.Match[str]) -> str:
            word = match[0]
            return names.setdefault(word, f"%{len(names)}") if word.startswith("%") else word

        return [
            re.sub(f"{QUOTED}|{NAME}", number, line)
            for line in ("\n".join(heads), *map(_without_metadata, self.lines))
        ]

    @cached_property
    def sha256(self) -> str:
        """The hash of the plain text."""
        return hashlib.sha256("\n".join(self.plain).encode()).hexdigest()

    @cached_property
    def instructions(self) -> list[Instruction]:
        """The instructions of all computations, those of a called one before its caller's."""
        return [instruction for line in self.lines if (instruction := _instruction(line))]

    @cached_property
    def opcodes(self) -> Counter[str]:
        """How often each opcode occurs."""
        return Counter(instruction.opcode for instruction in self.instructions)

    def beyond(self, other: "Program") -> list[Instruction]:
        """List the instructions that another program lacks, or has less often."""
        left = Counter(instruction.text for instruction in other.instructions)
        beyond = []
        for instruction in self.instructions:
            left[instruction.text] -= 1
            if left[instruction.text] < 0:
                beyond.append(instruction)
        return beyond

    def operation(self, instruction: Instruction) -> "CompiledOperation":
        """Describe an instruction of this program, with the file and line of its code."""
        text = instruction.text
        return CompiledOperation(
            name=instruction.opcode,
            source=self._source(instruction),
            scope=instruction.name[1:],
            text=text if len(text) <= MAX_WIDTH else f"{text[:MAX_WIDTH]} ...",
        )

    def _source(self, instruction: Instruction) -> str:
        """Look up file and line in the tables of the text; empty if unknown."""
        frame = re.search(r"stack_frame_id=(\d+)", instruction.metadata)
        location = frame and self._row(rf"{frame[1]} {{file_location_id=(\d+)")
        place = location and self._row(rf"{location[1]} {{file_name_id=(\d+).* line=(\d+)")
        file = place and self._row(rf'{place[1]} "(.*)"$')  # names of files are the first table
        return f"{short_path(file[1])}:{place[2]}" if place and file else ""

    def _row(self, pattern: str) -> re.Match[str] | None:
        return re.search(f"^{pattern}", self.text, re.MULTILINE)


def _code_lines(text: str) -> Iterator[str]:
    inside = False
    for line in text.splitlines():
        inside = inside or COMPUTATION.match(line) is not None
        if inside and line.strip():
            yield line
        inside = inside and line != "}"


def _without_metadata(line: str) -> str:
    # The head of a computation repeats its parameters' types, with other names.
    head = COMPUTATION.match(line)
    return f"{head[1] or ''}{head[2]} {{" if head else METADATA.sub("", line)


def _instruction(line: str) -> Instruction | None:
    metadata, match = METADATA.search(line), INSTRUCTION.match(METADATA.sub("", line))
    if match is None:
        return None
    name, text, opcode = match.groups()
    if opcode == "custom-call":
        target = text.partition('custom_call_target="')[2].partition('"')[0].lower()
        kinds = (kind for kind, words in CALLED.items() if any(word in target for word in words))
        opcode = next(kinds, opcode)
    text = re.sub(f"({QUOTED})|{NAME}", lambda match: match[1] or "%", text)
    return Instruction(name, opcode, text, metadata[1] if metadata else "")


def short_path(path: str) -> str:
    """Shorten the path of an installed package, of triglot, or below the current folder.

    >>> short_path("/usr/lib/python3.11/site-packages/optax/_src/transform.py")
    'optax/_src/transform.py'
    >>> short_path("/home/me/checkout/triglot/core/learner.py")
    'triglot/core/learner.py'
    """
    _, installed, inside = path.rpartition("site-packages/")
    if installed:
        return inside
    here = os.getcwd() + os.sep
    if path.startswith(here):
        return path.removeprefix(here)
    _, package, inside = path.rpartition("/triglot/")
    return f"triglot/{inside}" if package else path


def describe(compiled: Any) -> JSONDict:
    """Describe an optimized program (`jax.stages.Compiled`), as JSON values.

    XLA counts a loop of dynamic length once, so `flops` and `bytes_accessed` of a training program
    are about those of one update of all seeds. They are None where XLA has no count.

    Returns:
      `flops`, `bytes_accessed`; the numbers of `fusions`, `dots`, `convolutions` and
      `instructions`, those inside of fusions and loops included; and `sha256` of the plain text.
    """
    cost = compiled.cost_analysis() or {}
    cost = cost[0] if isinstance(cost, list) else cost
    program = Program(program_text(compiled))
    return {
        "flops": cost.get("flops"),
        "bytes_accessed": cost.get("bytes accessed"),
        "fusions": program.opcodes["fusion"],
        "dots": program.opcodes["dot"],
        "convolutions": program.opcodes["convolution"],
        "instructions": program.opcodes.total(),
        "sha256": program.sha256,
    }


@dataclass(frozen=True)
class CompiledOperation(Operation):
    """An operation of a compiled program, whose scope is its name in the program's text.

    Attributes:
      text: shape, opcode, operands and attributes, with `%` for each name.
    """

    text: str = ""


Firsts: TypeAlias = tuple[CompiledOperation | None, CompiledOperation | None]


def first_difference(one: Program, other: Program) -> Firsts:
    """Find the first operation of each of two programs in which they differ.

    It is one that the other program lacks: one that may be rounded if there is any, else one that
    computes. If both compute by the same operations, it is that of the first line that differs.

    Returns:
      An operation of each program; None where only the other has one.
    """
    first, second = _first_computing(one.beyond(other)), _first_computing(other.beyond(one))
    if not (first or second):
        plain = enumerate(zip(one.plain[1:], other.plain[1:], strict=False))
        index = next((i for i, (line, counterpart) in plain if line != counterpart), None)
        if index is not None:
            first, second = (_instruction(program.lines[index]) for program in (one, other))
    return first and one.operation(first), second and other.operation(second)


def _first_computing(instructions: Iterable[Instruction]) -> Instruction | None:
    computing = [instruction for instruction in instructions if instruction.opcode not in PASSING]
    return min(computing, key=lambda instruction: not instruction.may_round, default=None)


def difference(one: Program, other: Program) -> JSONDict:
    """Compare two programs, as JSON values.

    Returns:
      `identical`, whether they are equal but for names and source lines; `sentence`, which says
      it; `one` and `other`, the first operation of each program in which they differ, or None;
      `place`, both in words, or None; and `opcodes`, both counts of each whose counts differ.
    """
    is_same, is_whole = one.plain == other.plain, ELIDED not in one.text
    firsts = first_difference(one, other)
    place = places(*firsts) if any(firsts) else None
    counts = len(one.beyond(other)), len(other.beyond(one))
    if is_same:
        sentence = "are the same" if is_whole else "are the same but for constants not printed"
    elif place is None:
        sentence = "hold the same operations, with other layouts, aliases or attributes"
    elif not any(counts):
        sentence = (
            f"hold the same operations in another order or with other operands, first at {place}"
        )
    else:
        totals = one.opcodes.total(), other.opcodes.total()
        shares = (f"{count:,} of {total:,}" for count, total in zip(counts, totals, strict=True))
        sentence = f"differ in {' and '.join(shares)} operations, first at {place}"
    return {
        "identical": is_same and is_whole,
        "sentence": f"The compiled programs {sentence}.",
        "one": firsts[0] and asdict(firsts[0]),
        "other": firsts[1] and asdict(firsts[1]),
        "place": place,
        "opcodes": {
            opcode: [one.opcodes[opcode], other.opcodes[opcode]]
            for opcode in sorted(one.opcodes | other.opcodes)
            if one.opcodes[opcode] != other.opcodes[opcode]
        },
    }


def diff_all(records: Mapping[str, Record]) -> JSONDict:
    """Describe the training programs of all libraries, and compare them in pairs.

    Returns:
      The field `programs` of `comparison.json`.
    """
    programs = {name: Program(record.program) for name, record in records.items()}
    return {
        "backends": {name: record.facts["program"] for name, record in records.items()},
        "pairs": [
            {"backends": [one, other], **difference(programs[one], programs[other])}
            for one, other in itertools.combinations(programs, 2)
        ],
    }
