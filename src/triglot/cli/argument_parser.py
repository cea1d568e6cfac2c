"""The parser of a command: argparse, with fields of dataclasses as options."""

import argparse
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from ..core.errors import TriglotError
from ..core.options import OptionTable
from ..runs.registry.arg import Arg, flag, is_required, marked, split_hint
from ..runs.registry.overrides import field_types, item_type
from ..shared.terminal.wrapping import terminal_width, wrapped
from .examples import examples_of
from .options import GROUPS, NESTED, groups_of

if TYPE_CHECKING:
    from ..core.agent import Algorithm

FILE = "config_file"  # the name of `--config` among the values
FILE_HELP = (
    "read options from a TOML file, or from the config.json of a run; options of the command line "
    "override it. (default: none)"
)
HELP_COLUMN = 20  # where the texts of options begin
BOLD, CYAN, RESET = "\x1b[1m", "\x1b[36m", "\x1b[0m"


class ArgumentParser(argparse.ArgumentParser):
    """Parses the options that are written into texts, lists of texts, True and False.

    Args:
      command: its name.
      options: its class.
      description: the help text.
    """

    def __init__(self, command: str, options: type, description: str = "") -> None:
        self._command, self._options = command, options
        self._positional = marked(options, "positional")
        hints = get_type_hints(options, include_extras=True)
        self._marks = {name: split_hint(hint)[1] for name, hint in hints.items()}
        self._fields = {field.name: field for field in fields(options)}
        usage = ["%(prog)s [-h] [OPTIONS]"]
        for name in self._positional:
            metavar = self._marks[name].metavar
            usage.append(metavar if is_required(self._fields[name]) else f"[{metavar}]")
        super().__init__(
            f"triglot {command}",
            " ".join(usage),
            description,
            formatter_class=_HelpFormatter,
            argument_default=argparse.SUPPRESS,
            add_help=False,
            allow_abbrev=False,
        )
        # argparse takes -1e-3 and -inf for options.
        self._negative_number_matcher = re.compile(r"-(\d|\.\d|inf|nan)")
        self._lists: set[str] = set()
        shown = "show this help message and exit"
        self.add_argument("-h", "--help", action="store_true", help=shown)
        titles = groups_of(options)
        groups = {title: self._group(title, GROUPS[title].description) for title in titles}
        title_of = {name: title for title, names in titles.items() for name in names}
        for field, types in field_types(options).items():
            mark = self._marks[field.name]
            if field.name not in NESTED and not (mark.positional or mark.derived):
                target = groups[title_of[field.name]] if field.name in title_of else self
                self._add(target, field, types, options, mark)
        self.add_argument("--config", dest=FILE, metavar="FILE", action=_Store, help=FILE_HELP)

    def add_algorithm(self, algorithm: "Algorithm") -> None:
        """Add the fields of an algorithm's `Config` and `Hyperparams`.

        Raises:
          TriglotError: if one of them has the name of another option.
        """
        for kind, owner in zip(NESTED, (algorithm.Config, algorithm.Hyperparams), strict=True):
            group = self._group(kind, attribute_docs(self._options)[kind])
            for field, types in field_types(owner).items():
                try:
                    self._add(group, field, types, owner)
                except argparse.ArgumentError:
                    raise TriglotError(
                        f"{owner.__name__} has a field {field.name}, which is the name of another "
                        f"option of {self.prog}: rename the field."
                    ) from None

    def _group(self, title: str, description: str) -> argparse._ArgumentGroup:
        return self.add_argument_group(f"{title} options", description)

    def _add(
        self,
        target: argparse._ActionsContainer,
        field: "Field[Any]",
        types: tuple[Any, ...],
        owner: type | OptionTable,
        mark: Arg | None = None,
    ) -> None:
        """Add a field as an option.

        Args:
          target: the parser or a group of it.
          field: of `owner`.
          types: those of its values.
          owner: a dataclass.
          mark: that of a command's option; None for an algorithm's, whose switches have a `--no-x`.
        """
        names = [flag(field.name)]
        if mark is None and bool in types:
            names.append(flag(f"no_{field.name}"))
        nargs = _nargs(types)
        if nargs in ("+", "*"):
            self._lists.add(names[0])
        action: Any = "extend" if mark and mark.repeated else _Store
        metavar = mark.metavar if mark and mark.metavar else _metavar(types)
        help_text = _help(field, owner, mark)
        target.add_argument(
            *names, dest=field.name, action=action, nargs=nargs, metavar=metavar, help=help_text
        )

    def parse_values(self, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Parse the options that were added so far.

        Returns:
          Values by name, and the words that are left.

        Raises:
          TriglotError: if an option has no value, or two different ones.
        """
        spelled = [part for word in words for part in self._spelled(word)]
        values, rest = self.parse_known_args(spelled)
        for name in vars(values):
            if f"no_{name}" in values:
                raise _contradiction(flag(name), flag(f"no_{name}"))
        return vars(values), rest

    def _spelled(self, word: str) -> Iterator[str]:
        """Write an option with hyphens, and apart from the first value of a list."""
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        if equals and name in self._lists and not value.startswith("-"):
            yield from (name, value)
        else:
            yield f"{name}{equals}{value}"

    def error(self, message: str) -> NoReturn:
        """Report a mistake in one sentence."""
        raise TriglotError(f"{message.removeprefix('argument ')}.")

    def help(self, note: str = "") -> str:
        """Write the help, with a note below the description."""
        self.description = f"{self.description}\n\n{note}"
        for name in self._positional:
            mark = self._marks[name]
            text = _help(self._fields[name], self._options, mark)
            self.add_argument(name, metavar=mark.metavar, help=text)
        examples = "\n".join(f"  {example}" for example in examples_of(self._command))
        text = wrapped(f"{self.format_help()}\nexamples:\n{examples}\n", terminal_width())
        return _colored(text) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


class _Store(argparse.Action):
    """Keeps the words of an option, or whether it is `--x` or `--no-x`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        name, is_switch = str(option_string), self.nargs in (0, "?")
        if is_switch and name != self.option_strings[0]:
            if values:
                raise argparse.ArgumentError(self, f"{name} takes no value, got {values!r}")
            values = False
        elif is_switch and not values:
            values = True
        before = vars(namespace).setdefault(self.dest, values)
        if {type(before), type(values)} == {bool} and before != values:
            raise _contradiction(*self.option_strings)
        if before != values:
            both = " and ".join(map(_words, (before, values)))
            raise TriglotError(f"{name} is given twice, as {both}: give it once.")


def _words(value: object) -> str:
    return (" ".join(value) if isinstance(value, list) else str(value)) or "nothing"


def _contradiction(positive: str, negative: str) -> TriglotError:
    return TriglotError(f"{positive} and {negative} contradict each other: give one of them.")


def _nargs(types: tuple[Any, ...]) -> int | str | None:
    """Say how many words follow an option: none, at most one, exactly one or several."""
    if bool in types:
        return "?" if type(None) in types else 0
    if item_type(types) is None:
        return None
    return "+" if types == (tuple[str, ...],) else "*"


def _metavar(types: tuple[Any, ...]) -> str:
    """Describe the value of an algorithm's option."""
    if get_origin(types[0]) is Literal:
        return f"{{{','.join(map(str, get_args(types[0])))}}}"
    if bool in types:
        return "{None,True,False}"
    item = item_type(types)
    kind = types[0] if item is None else item
    name = "FLOAT" if float in types else getattr(kind, "__name__", str(kind)).upper()
    if item is None:
        return name
    return f"{'None|' if type(None) in types else ''}{name} [{name} ...]"


def _help(field: "Field[Any]", owner: type | OptionTable, mark: Arg | None) -> str:
    """Describe an option and its default."""
    default = "(required)"
    if mark is not None and mark.default is not None:
        default = f"(default: {mark.default})"
    elif field.default == ():
        default = ""
    elif not is_required(field):
        value: Any = field.default if field.default is not MISSING else field.default_factory()  # pyright: ignore
        text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        default = f"(default: {text})"
    return f"{attribute_docs(owner).get(field.name, '')} {default}".strip().replace("%", "%%")


@cache
def attribute_docs(owner: type | OptionTable) -> dict[str, str]:
    """Read what the docstring of a class, or of one that it inherits from, says of each attribute.

    They stand below `Attributes:`, each after its name and a colon.
    """
    if isinstance(owner, OptionTable):
        return {name: text for part in owner.parts for name, text in attribute_docs(part).items()}
    docs: dict[str, str] = {}
    for cls in reversed(owner.__mro__):
        section = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2]
        section = textwrap.dedent(re.split(r"\n(?=\S)", section)[0])
        for entry in re.split(r"\n(?=\S)", section):
            names, _, text = entry.partition(":")
            docs |= {name.strip(): " ".join(text.split()) for name in names.split(",")}
    return docs


class _HelpFormatter(argparse.HelpFormatter):
    """Fills the width of the terminal, keeps paragraphs, and shows each metavar as it is."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=HELP_COLUMN, width=terminal_width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = (self._split_lines(part, width) for part in text.split("\n\n"))
        return "\n\n".join("\n".join(f"{indent}{line}" for line in lines) for lines in paragraphs)

    def _split_lines(self, text: str, width: int) -> list[str]:
        words = " ".join(text.split())
        return textwrap.wrap(words, width, break_on_hyphens=False)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        first, *others = action.option_strings or [str(action.metavar)]
        value = f" {action.metavar}" if action.option_strings and action.nargs != 0 else ""
        return ", ".join([f"{first}{value}", *others])


def _colored(text: str) -> str:
    """Color the titles of groups, what stands for the values of options, and their defaults."""
    text = re.sub(r"\((default:\s[^)]*|required)\)", rf"{CYAN}\g<0>{RESET}", text)
    text = re.sub(r"(?m)^(usage:|[a-z ]+:$)", rf"{BOLD}\1{RESET}", text)
    return re.sub(r"(?m)^(  --[^ \n]+) (\S+(?: \S+)*)", rf"\1 {BOLD}\2{RESET}", text)
