"""Read the text of an optimized HLO program, and count what it holds."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

QUOTED = r'"(?:\\.|[^"\\])*"'
NAME = r"%[\w.\-]+"
METADATA = re.compile(rf", metadata=\{{((?:{QUOTED}|\{{[^{{}}]*\}}|[^\"{{}}])*)\}}")
INSTRUCTION = re.compile(rf"\s+(ROOT )?({NAME}) = ")
COMPUTATION = re.compile(rf"(ENTRY )?({NAME}) .*\{{$")
CALLS = re.compile(rf"(?:calls|to_apply|body|condition|called_computations)=\{{?({NAME})")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
# Libraries that XLA calls on GPUs and CPUs for products and convolutions.
PRODUCT_CALLS = ("matmul", "gemm")
CONVOLUTION_CALLS = ("conv",)
ELIDED = "{...}"  # how XLA prints a large constant, unless it is asked for


@dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Attributes:
      name: unique in the program, with `%`.
      shape: dtype, dimensions and layout.
      opcode: such as `add`, `fusion` or `while`.
      operands: names of the instructions that it reads, in order.
      literal: the value of a constant, or the number of a parameter; empty for other instructions.
      attributes: everything after the operands but metadata, with names of computations as `%`.
      calls: names of the computations that it calls, in order.
      is_root: whether it is its computation's result.
      source: file and line of the Python code; of a constant, its broadcast, and of an instruction
        without one, that of the first instruction that reads it. Empty if there is none.
    """

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    literal: str
    attributes: str
    calls: tuple[str, ...]
    is_root: bool
    source: str = field(compare=False)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Everything that describes the operation by itself: no names, operands or calls."""
        return self.opcode, self.shape, self.literal, self.attributes, self.is_root


@dataclass(frozen=True)
class Program:
    """A parsed program.

    Attributes:
      header: attributes of the module, such as which inputs and outputs share memory.
      computations: instructions in the order of the text, which is the schedule, by name.
      entry: the name of the computation that is called from outside.
    """

    header: str
    computations: dict[str, tuple[Instruction, ...]]
    entry: str

    @property
    def instructions(self) -> Iterator[Instruction]:
        """Iterate over the instructions of all computations."""
        for computation in self.computations.values():
            yield from computation


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


def plain_text(text: str) -> str:
    """Remove source locations and the module's name, and number names by first appearance.

    Operand order, layouts, attributes, aliases of inputs and outputs, and the schedule stay: equal
    plain texts without elided constants are equal programs.

    >>> print(plain_text("HloModule m, is_scheduled=true\\n\\n%add.7 (x: f32[]) -> f32[] {\\n"
    ...                  "  %x.1 = f32[] parameter(0)\\n}"))
    is_scheduled=true
    %0 {
      %1 = f32[] parameter(0)
    }
    """
    lines = [header_of(text)]
    for line in _code_lines(text):
        # The head of a computation repeats its parameters' types, with other names.
        head = COMPUTATION.match(line)
        lines.append(f"{head[1] or ''}{head[2]} {{" if head else METADATA.sub("", line))
    names: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        word = match[0]
        return names.setdefault(word, f"%{len(names)}") if word.startswith("%") else word

    return re.sub(f"{QUOTED}|{NAME}", number, "\n".join(lines))


def header_of(text: str) -> str:
    """Extract the modules' attributes, without their names."""
    heads = re.findall(r"^HloModule [^,\n]*(?:, )?(.*)$", text, re.MULTILINE)
    return "\n".join(heads)


def parse(text: str) -> Program:
    """Parse the text of an optimized program."""
    frames = _frames(text)
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", []
    for line in _code_lines(text):
        if head := COMPUTATION.match(line):
            current = computations[head[2]] = []
            entry = head[2] if head[1] or not entry else entry
        elif found := _instruction(line, frames):
            current.append(found)
    located = {name: _located(body) for name, body in computations.items()}
    return Program(header_of(text), located, entry)


def _located(body: list[Instruction]) -> tuple[Instruction, ...]:
    """Fill in the missing source locations. Those of constants are the loop's around them."""
    readers: dict[str, str] = {}
    located = []
    constants = {each.name for each in body if each.opcode == "constant"}
    for each in reversed(body):
        is_constant = each.name in constants or constants.issuperset(each.operands or ("",))
        if is_constant or not each.source:
            each = replace(each, source=readers.get(each.name, each.source))
        located.append(each)
        if each.source:
            readers.update(dict.fromkeys(each.operands, each.source))
    return tuple(reversed(located))


def _code_lines(text: str) -> Iterator[str]:
    """Iterate over the lines of computations; those before them list files and stack frames."""
    inside = False
    for line in text.splitlines():
        inside = inside or COMPUTATION.match(line) is not None
        if inside and line.strip():
            yield line
        inside = inside and line != "}"


def _instruction(line: str, frames: dict[str, str]) -> Instruction | None:
    head = INSTRUCTION.match(line)
    if head is None:
        return None
    metadata = METADATA.search(line)
    rest = METADATA.sub("", line)[head.end() :]
    shape, rest = _split_shape(rest)
    opcode, _, rest = rest.partition("(")
    end = _closing(rest)
    operands, attributes = rest[:end], rest[end + 1 :].lstrip(", ")
    names = tuple(re.findall(NAME, operands))
    calls = tuple(CALLS.findall(attributes))
    for branches in BRANCHES.findall(attributes):
        calls += tuple(re.findall(NAME, branches))
    return Instruction(
        name=head[2],
        shape=shape,
        opcode=opcode,
        operands=names,
        literal="" if names else operands,
        attributes=re.sub(f"({QUOTED})|{NAME}", lambda m: m[1] or "%", attributes),
        calls=calls,
        is_root=head[1] is not None,
        source=_source(metadata[1], frames) if metadata else "",
    )


def _split_shape(text: str) -> tuple[str, str]:
    if text.startswith("("):
        end = _closing(text[1:]) + 2
        return re.sub(r"/\*index=\d+\*/", "", text[:end]), text[end + 1 :]
    shape, _, rest = text.partition(" ")
    return shape, rest


def _closing(text: str) -> int:
    """Find the parenthesis that closes one opened before `text`."""
    depth = 1
    for match in re.finditer(rf"{QUOTED}|[()]", text):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return match.start()
    return len(text)


def _source(metadata: str, frames: dict[str, str]) -> str:
    """Find file and line, written in the metadata or in the table of stack frames."""
    frame = re.search(r"stack_frame_id=(\d+)", metadata)
    if frame:
        return frames.get(frame[1], "")
    file, line = (re.search(rf"source_{kind}=(\S+)", metadata) for kind in ("file", "line"))
    return f"{short_path(file[1].strip(chr(34)))}:{line[1]}" if file and line else ""


def _frames(text: str) -> dict[str, str]:
    """Read the tables before the first computation: file and line of each stack frame."""
    files = dict(re.findall(r'^(\d+) "(.*)"$', _table(text, "FileNames"), re.MULTILINE))
    locations = {
        number: f"{short_path(files.get(file, '?'))}:{line}"
        for number, file, line in re.findall(
            r"^(\d+) \{file_name_id=(\d+).* line=(\d+)", _table(text, "FileLocations"), re.MULTILINE
        )
    }
    frames = re.findall(
        r"^(\d+) \{file_location_id=(\d+)", _table(text, "StackFrames"), re.MULTILINE
    )
    return {number: locations.get(location, "") for number, location in frames}


def _table(text: str, title: str) -> str:
    _, found, rest = text.partition(f"\n{title}\n")
    return rest.partition("\n\n")[0] if found else ""


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
    _, own, inside = path.rpartition("/triglot/")
    return f"triglot/{inside}" if own else path


def describe(compiled: Any) -> dict[str, Any]:
    """Describe an optimized program (`jax.stages.Compiled`), as JSON values.

    XLA counts a loop of dynamic length once, so `flops` and `bytes_accessed` of a training program
    are about those of one update of all seeds. They are None where XLA has no count.

    Returns:
      `flops`, `bytes_accessed`; the numbers of `fusions`, `dots`, `convolutions` and
      `instructions`, those inside of fusions and loops included; and `sha256` of the plain text.
    """
    cost = compiled.cost_analysis() or {}
    cost = cost[0] if isinstance(cost, list) else cost
    text = program_text(compiled)
    instructions = list(parse(text).instructions)
    opcodes = Counter(each.opcode for each in instructions)
    calls = [each.attributes.lower() for each in instructions if each.opcode == "custom-call"]

    def called(words: tuple[str, ...]) -> int:
        return sum(any(word in _target(call) for word in words) for call in calls)

    return {
        "flops": cost.get("flops"),
        "bytes_accessed": cost.get("bytes accessed"),
        "fusions": opcodes["fusion"],
        "dots": opcodes["dot"] + called(PRODUCT_CALLS),
        "convolutions": opcodes["convolution"] + called(CONVOLUTION_CALLS),
        "instructions": len(instructions),
        "sha256": hashlib.sha256(plain_text(text).encode()).hexdigest(),
    }


def _target(attributes: str) -> str:
    return attributes.partition('custom_call_target="')[2].partition('"')[0]
