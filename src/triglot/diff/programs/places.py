"""Name an operation: its source line, the modules that hold it, and its parameters."""

import itertools
import re
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from jax.extend import core as jex

from ...backends.libraries import LIBRARIES as BACKENDS
from ..types import Operation
from .tape import PARAMS, Step, Tape

PACKAGE = Path(__file__).parents[2]
# In a checkout some rooms are links, and a user's files may lie beside what they lead to.
ROOMS = {f"{room.resolve()}/": f"{room.name}/" for room in PACKAGE.iterdir() if room.is_dir()}
OURS = (f"{PACKAGE.resolve()}/", *ROOMS)
LIBRARIES = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
STANDARD = sysconfig.get_path("stdlib")
# The parts of triglot whose lines say what an agent computes.
ALGORITHMS = (
    "algorithms/",
    "backends/zoo/",
    *(f"backends/{name}/zoo.py" for name in BACKENDS),
    "core/learner.py",
    "core/networks/",
    "core/numerics.py",
    "core/rl/",
)
CALLS = re.compile(r"(?:jit|pjit)\([^)]*\)")  # of functions, in a stack of names
LOOPS = {"cond", "scan", "while"}
TRANSFORMATIONS = {
    "vmap",
    "jvp",
    "transpose",
    "jit",
    "pjit",
    "remat",
    "checkpoint",
    "while",
    "body",
}


class Frame(Protocol):
    """A frame of the traceback with which JAX traced an equation."""

    file_name: str
    function_name: str
    line_num: int


def operation(tape: Tape, value: int) -> Operation:
    """Describe the operation that computes a value; a leaf is described by its name."""
    if value not in tape.producers:
        return Operation(
            "input" if not tape.depends[value] & PARAMS else "parameter",
            "",
            tape.display_name(tape.leaves.get(value, "constant")),
        )
    step = tape.producers[value]
    if tape.is_update:
        # A library's layer has no line of an algorithm where an adapter of triglot calls it.
        return Operation(step.name, source(_in_loops(step), ALGORITHMS), section(step))
    line = _of_network(step)
    if not line and tape.of_batches:  # the loss of a built-in algorithm
        line = source(_in_loops(step), ALGORITHMS)
    return Operation(step.name, line, scope(tape, step))


def describe_equation(
    equation: jex.JaxprEqn, callers: tuple[jex.JaxprEqn, ...], *, name: str
) -> Operation:
    """Describe an equation of a traced program that is on no tape, with the calls that hold it."""
    step = Step(0, equation, (), (), callers)
    return Operation(name, source((*callers, equation)), scope(Tape(is_wide=False), step))


def source(equations: tuple[jex.JaxprEqn, ...], own_parts: tuple[str, ...] = ()) -> str:
    """Return `file:line` of the user's innermost module, else of the library's layer.

    Frames outside the network's adapter belong to the caller of the comparison and are left out.

    Args:
      equations: the first with a line decides. A called function may have been traced for another
        network, so its callers come first.
      own_parts: parts of triglot whose lines count as a user's.
    """
    layer = ""
    for equation in equations:
        for frame in _frames(equation):
            if _is_ours(frame.file_name):
                if own_parts and (inside := _inside(frame.file_name)).startswith(own_parts):
                    return layer or f"triglot/{inside}:{frame.line_num}"
                break
            line = f"{_relative_path(frame.file_name)}:{frame.line_num}"
            if not _in_library(frame.file_name):
                return line
            if not layer and "/jax/" not in frame.file_name:
                layer = line
    return layer


def _of_network(step: Step) -> str:
    """Return `file:line` in a network; in a loop, of its body if that is the user's."""
    body = _in_loops(step)
    users = (
        frame
        for equation in body
        for frame in itertools.takewhile(
            lambda each: not _is_ours(each.file_name), _frames(equation)
        )
        if not _in_library(frame.file_name)
    )
    if len(body) <= len(step.callers) and (frame := next(users, None)) is not None:
        return f"{_relative_path(frame.file_name)}:{frame.line_num}"
    return source((*step.callers, step.equation))


# The parts of an update by the function of a learner that computes them.
SECTIONS = {"objective": "loss", "_transform": "optimizer"}


def section(step: Step) -> str:
    """Return the part of an update: `loss`, `gradient of the loss`, `optimizer`, or empty."""
    for equation in _in_loops(step):
        for frame in _frames(equation):
            title = SECTIONS.get(frame.function_name.rpartition(".")[2])
            if title and _is_ours(frame.file_name):
                is_backward = "transpose(" in str(equation.source_info.name_stack)
                return f"gradient of the {title}" if is_backward and title == "loss" else title
    return ""


def _inside(file: str) -> str:
    """Return the path of a file below the package."""
    path = str(Path(file).resolve())
    for room, name in ROOMS.items():
        if path.startswith(room):
            return name + path.removeprefix(room)
    return path.removeprefix(f"{PACKAGE.resolve()}/")


def _in_loops(step: Step) -> tuple[jex.JaxprEqn, ...]:
    """Return an equation and its calls inside of the innermost loop, outermost first."""
    chain = (*step.callers, step.equation)
    loops = [i for i, equation in enumerate(chain[:-1]) if equation.primitive.name in LOOPS]
    return chain[loops[-1] + 1 :] if loops else chain


def _frames(equation: jex.JaxprEqn) -> Sequence[Frame]:
    traceback = equation.source_info.traceback
    return traceback.frames if traceback is not None else ()


def scopes(step: Step, *, functions: bool = True) -> list[str]:
    """Return the names of the enclosing modules, outermost first, and of called `functions`."""
    words: list[str] = []
    for equation in (*step.callers, step.equation):
        stack = str(equation.source_info.name_stack)
        for word in re.findall(r"[\w.\-]+", stack if functions else CALLS.sub("", stack)):
            if word not in TRANSFORMATIONS and word not in words[-1:]:
                words.append(word)
        name = equation.params.get("name") if functions and equation is not step.equation else None
        if isinstance(name, str) and name.strip("_") and not name.startswith("<"):
            words.append(name.strip("_"))
    return words


def scope(tape: Tape, step: Step) -> str:
    """Return the names of the enclosing modules and functions, or the parameter's layer."""
    words = scopes(step)
    if not words and (layer := _layer(step)):
        words.append(layer)
    owner = tape.display_name(parameter_of(tape, step))
    path = "/".join(words)
    if owner and owner not in path:
        return f"{path} ({owner})" if path else owner
    return path


def parameter_of(tape: Tape, step: Step) -> str:
    """Return the canonical name of a parameter that a step reads; empty if it reads none."""
    pending, visited = list(step.operands), set()
    while pending:
        value = pending.pop()
        if value in visited or tape.depends[value] != PARAMS:
            continue
        visited.add(value)
        if value in tape.leaves:
            return tape.leaves[value]
        if value in tape.producers:
            pending.extend(tape.producers[value].operands)
    return ""


def describe(operation: Operation | None) -> str:
    """Write an operation in one line."""
    if operation is None:
        return "no counterpart"
    place = " of ".join(part for part in (operation.name, operation.scope) if part)
    return f"{place} ({operation.source})" if operation.source else place


def describe_both(operations: Iterable[Operation | None], labels: tuple[str, str]) -> str:
    """Write an operation of each of two networks."""
    pairs = zip(labels, operations, strict=True)
    return "; ".join(f"{label}: {describe(operation)}" for label, operation in pairs)


def _layer(step: Step) -> str:
    """Return the class of the innermost layer in a traceback, for libraries without scopes."""
    for equation in (*step.callers, step.equation):
        for frame in _frames(equation):
            if _is_ours(frame.file_name):
                break
            name, _, method = frame.function_name.rpartition(".")
            if method == "__call__" and "/jax/" not in frame.file_name:
                return name.rsplit(".", 1)[-1]
    return ""


def _is_ours(filename: str) -> bool:
    return str(Path(filename).resolve()).startswith(OURS)


def _in_library(filename: str) -> bool:
    installed = filename.startswith(LIBRARIES) or "/site-packages/" in filename
    return installed or filename.startswith((STANDARD, "<"))


def _relative_path(filename: str) -> str:
    path = Path(filename)
    for library in LIBRARIES:
        if path.is_relative_to(library):
            return str(path.relative_to(library))
    working_directory = Path.cwd()
    return (
        str(path.relative_to(working_directory))
        if path.is_relative_to(working_directory)
        else str(path)
    )
