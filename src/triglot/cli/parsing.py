"""Parse command lines into the dataclasses of `cli.options`, by tyro."""

import contextlib
import difflib
import inspect
import io
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO, get_args, get_type_hints

import tyro
from tyro.conf import Fixed, FlagCreatePairsOff, OmitArgPrefixes, Positional, Suppress, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from ..core.errors import REPLACED, TriglotError, shown, unknown
from ..core.options import (
    has_options,
    joined_options,
    option_fields,
    option_parts,
    option_values,
)
from ..runs.registry.arg import OTHER_NAMES, flag, marked, split_hint
from ..runs.registry.overrides import type_hints, type_members
from ..shared.terminal.wrapping import COLOR, terminal_width, wrapped
from .arguments import check_contradictions, check_path, check_values, join_repeated, spell_out
from .examples import examples_of
from .options import GROUPS, OPTIONS, NoOptions, groups_of

ERROR_WIDTH = 10_000  # nothing is wrapped
GROUP = "_group"  # ends the names of groups, which are no options
PART = "_extension"  # begins the number of an extension in the names of its groups


def parse(
    command: str, arguments: Sequence[str], *, description: str = "", algorithm: Any = None
) -> Any:
    """Parse a command line.

    Args:
      command: a key of `cli.options.OPTIONS`.
      arguments: the words after the command.
      description: the help text.
      algorithm: a class whose `Config` and `Hyperparams` fields become options, where the command's
        have the fields `config` and `hyper`.

    Returns:
      The options; the help text if there is a `--help`.

    Raises:
      TriglotError: in one sentence, with the nearest existing option.
    """
    options, prog = OPTIONS[command], f"triglot {command}"
    asks_for_help = not {"-h", "--help"}.isdisjoint(arguments)
    arguments = join_repeated(arguments, [flag(name) for name in marked(options, "repeated")])
    if not asks_for_help:
        check_contradictions(arguments)
        check_values(arguments, _lists(options))
    for word in arguments:
        if re.match("--tyro[-_]", word):  # tyro's own options, which print or write completions
            raise TriglotError(f"unknown option {shown(word)}; `{prog} --help` lists the options.")
    width = terminal_width()
    nested = {"config": NoOptions, "hyper": NoOptions}
    if algorithm:
        nested = {"config": algorithm.Config, "hyper": algorithm.Hyperparams}
    arguments = spell_out(arguments, [*map(flag, _three_valued(nested.values()))])
    stdout, stderr = _Captured(sys.stdout), io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
            _columns(width if asks_for_help else ERROR_WIDTH),
            # Tyro warns of a default that is a schedule, whose type no field declares.
            warnings.catch_warnings(action="ignore", category=UserWarning),
        ):
            parsed, rest = tyro.cli(
                as_tyro_class(options, nested),
                prog=prog,
                description=description,
                args=arguments,
                return_unknown_args=True,
                registry=registry(),
            )
    except SystemExit as stop:
        if not stop.code:
            listed = "".join(f"  {example}\n" for example in examples_of(command))
            return wrapped(f"{stdout.text()}\nexamples:\n{listed}", width)
        raise TriglotError(_one_sentence(stderr.getvalue())) from None
    for word in rest:
        if word.startswith("-"):
            name = word.partition("=")[0]
            names = _option_names(options, nested)
            other = OTHER_NAMES.get(name.replace("_", "-"))
            if name.lstrip("-").replace("-", "_") in REPLACED:
                raise unknown("option", name, names)
            near = [other] if other in names else difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ";"
            named = f"{prog} {arguments[0]}" if algorithm and arguments[0][0] != "-" else prog
            raise TriglotError(f"unknown option {name}{hint} `{named} --help` lists the options.")
    if rest:
        raise TriglotError(f"unexpected argument {shown(rest[0])}; see `{prog} --help`.")
    values = _values(options, parsed, nested)
    _check_no_schedules(values)
    for name, value in values.items():
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, Path):
                check_path(name.replace("_", " "), str(path))
    return options(**values)


def _check_no_schedules(values: Mapping[str, Any]) -> None:
    """Refuse a schedule as the value of an option that is no hyperparameter."""
    config = values.get("config")
    static = option_values(config) if has_options(config) else {}
    for name, value in {**values, **static}.items():
        if name not in ("config", "hyper", "learning_rate") and _is_schedule(value):
            raise TriglotError(
                f"{flag(name)} must be a number, got the schedule {value}: only hyperparameters "
                "change over a training."
            )


FILE_OPTION = Annotated[
    Path | None,
    arg(
        name="config",
        metavar="FILE",
        help="read options from a TOML file, or from the config.json of a run; options of the "
        "command line win over it.",
        help_behavior_hint="(default: none)",
    ),
]


class _Captured(io.TextIOWrapper):
    """Collects what tyro prints, which does not wrap the description, and looks like `stream`."""

    def __init__(self, stream: TextIO) -> None:
        self._bytes, self._stream = io.BytesIO(), stream
        super().__init__(self._bytes, stream.encoding, errors="backslashreplace", newline="")

    def isatty(self) -> bool:  # where tyro uses colors
        return self._stream.isatty() and not os.environ.get("NO_COLOR")

    def text(self) -> str:
        self.flush()
        return self._bytes.getvalue().decode(self.encoding)


@contextlib.contextmanager
def _columns(width: int) -> Iterator[None]:
    """Let tyro format for a terminal of this width."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width)
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


def as_tyro_class(options: type, nested: Mapping[str, Any]) -> type:
    """Build a class whose annotations tell tyro how to parse each field."""
    hints = get_type_hints(options, include_extras=True)
    groups = groups_of(options)
    specs: list[Any] = []
    inside: dict[str, list[Any]] = {title: [] for title in groups}
    for one in fields(options):
        if one.name in nested:
            for number, part in enumerate(option_parts(nested[one.name])):
                specs.append((_place(one.name, number), OmitArgPrefixes[part], field()))
            continue
        default = field() if one.default is MISSING else field(default=one.default)
        spec = (one.name, _tyro_annotation(one.name, hints[one.name]), default)
        title = next((title for title, names in groups.items() if one.name in names), None)
        (specs if title is None else inside[title]).append(spec)
    specs.append(("config_file", FILE_OPTION, field(default=None)))  # read before; for the help
    for title, members in inside.items():
        group = _documented(title, members, GROUPS[title].description, options)
        kind = Annotated[OmitArgPrefixes[group], arg(name=title)]
        specs.append((f"{title}{GROUP}", kind, field()))
    return _documented(options.__name__, specs, "", options)


def _place(name: str, number: int) -> str:
    """Name the field for one of an algorithm's dataclasses: those of extensions have a number."""
    return f"{name}{PART}{number}" if number else name


def _documented(name: str, specs: Sequence[Any], description: str, options: type) -> Any:
    """Build a dataclass whose fields are described as they are in `options`."""
    documented = (inspect.cleandoc(owner.__doc__ or "") for owner in options.__mro__)
    attributes = "\n".join(text.partition("Attributes:\n")[2] for text in documented)
    namespace = {"__doc__": f"{description}\n\nAttributes:\n{attributes}"}
    return make_dataclass(name, specs, namespace=namespace, frozen=True, kw_only=True)


def _values(options: type, parsed: Any, nested: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the values of all options, also of those in groups, and of the algorithm's."""
    values = {name: getattr(parsed, name) for name in _names(options) if hasattr(parsed, name)}
    for name in nested.keys() & set(_names(options)):
        numbers = range(len(option_parts(nested[name])))
        parts = tuple(getattr(parsed, _place(name, number)) for number in numbers)
        values[name] = joined_options(nested[name], parts)
    for title, names in groups_of(options).items():
        values |= {name: getattr(getattr(parsed, f"{title}{GROUP}"), name) for name in names}
    return values


def _tyro_annotation(name: str, hint: Any) -> Any:
    """Translate `Arg` into tyro's own markers."""
    if hint is bool:
        return FlagCreatePairsOff[bool]
    kind, given = split_hint(hint)
    if given.metavar:
        default = None if given.default is None else f"(default: {given.default})"
        kind = Annotated[kind, arg(metavar=given.metavar, help_behavior_hint=default)]
    if name.endswith("_"):
        kind = Annotated[kind, arg(name=name.rstrip("_"))]
    if given.positional:
        kind = Positional[kind]
    return Suppress[Fixed[kind]] if given.derived else kind


def _names(options: type) -> list[str]:
    return [one.name for one in fields(options)]


def _lists(options: type) -> list[str]:
    """List the options that take one or more words."""
    hints = get_type_hints(options)
    return [flag(name) for name in _names(options) if hints[name] == tuple[str, ...]]


def _three_valued(owners: Iterable[Any]) -> list[str]:
    """Name the fields that may be True, False or None."""
    return [
        name
        for owner in owners
        for name, hint in type_hints(owner).items()
        if set(type_members(hint)) == {bool, type(None)}
    ]


def _option_names(options: type, nested: Mapping[str, Any]) -> list[str]:
    """List all option names, including those of the algorithm."""
    left_out = {*nested, *marked(options, "derived")}
    names = [name for name in _names(options) if name not in left_out]
    for name in nested.keys() & set(_names(options)):
        names += [one.name for one in option_fields(nested[name])]
    return ["--config", *map(flag, names)]


def _one_sentence(box: str) -> str:
    """Extract tyro's message from its frame, below the title; what follows the next rule is help.

    The frame has colors where standard output is a terminal, and is of ASCII characters where its
    encoding lacks others.
    """
    lines = [line.strip("│| ") for line in COLOR.sub("", box).splitlines()[1:]]
    rules = [number for number, line in enumerate(lines) if line and not line.strip("─-╭╮╰╯+")]
    first = rules.pop(0) + 1 if rules[:1] == [0] else 0
    text = "\n".join(lines[first : rules[0] if rules else None])
    # The help of each missing argument stands below its name.
    text = re.sub(r"^(.+?)\.? \(required\)$", r"(\1),", text, flags=re.MULTILINE)
    message = " ".join(text.split()).rstrip(",")
    titles = "|".join(["config", "hyper", *GROUPS])
    message = re.sub(f"^Error parsing (({titles})({GROUP}|{PART}[0-9])?: )?", "", message)
    return message.rstrip(".") + "."


def registry() -> ConstructorRegistry:
    """Give tyro the rules by which numbers are read."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def numbers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
        """Read int, float, int | None, float | jax.Array, ints | None, int | ints ..."""
        members = get_args(info.type) or (info.type,)
        kind = float if float in members else int
        is_list = tuple[int, ...] in members
        if ... in members or not (kind in members or is_list):
            return None
        is_optional, takes_one = type(None) in members, kind in members
        read = _number if kind is float else _int

        def from_words(words: list[str]) -> Any:
            if is_optional and [word.lower() for word in words] == ["none"]:
                return None
            if not words and takes_one:
                raise ValueError("expected at least one integer")
            values = tuple(map(read, words))
            return values[0] if takes_one and len(values) == 1 else values

        def to_words(value: Any) -> list[str]:
            return [*map(str, value if isinstance(value, tuple) else (value,))]

        name = kind.__name__.upper()
        if is_list:
            name = f"{'None|' if is_optional else ''}{name} [{name} ...]"
        return PrimitiveConstructorSpec(
            nargs="*" if is_list else 1,
            metavar=name,
            instance_from_str=from_words,
            is_instance=lambda value: (
                value is None or isinstance(value, int | float | tuple) or _is_schedule(value)
            ),
            str_from_instance=to_words,
        )

    return registry


def _int(text: str) -> int:
    """Parse an integer, which may be written as 500_000 or 5e5."""
    number = _float(text)
    if not number.is_integer():
        raise ValueError(f"expected an integer, got {shown(text)}")
    return int(number) if "e" in text.lower() or "." in text else int(text)


def _number(text: str) -> Any:
    """Parse a number, or a schedule such as linear(3e-4, 0)."""
    if "(" not in text:
        return _float(text)
    from ..core.rl.schedules import schedule  # imports JAX

    try:
        return schedule(text)
    except TriglotError as error:
        raise ValueError(str(error).removesuffix(".")) from None


def _is_schedule(value: object) -> bool:
    if value is None or isinstance(value, int | float | str | tuple | Path | Mapping):
        return False
    from ..core.rl.schedules import Schedule  # imports JAX

    return isinstance(value, Schedule)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number, got {shown(text)}") from None
