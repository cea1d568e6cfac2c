"""Read a command line into the options of its command."""

import difflib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from ..core.errors import REPLACED, TriglotError, shown, unknown
from ..core.options import has_options, option_fields, option_values
from ..core.records import AnyOptions, Values
from ..runs.registry.algorithms import ALGORITHMS, find_algorithm
from ..runs.registry.arg import OTHER_NAMES, flag, is_required, marked, split_hint
from ..runs.registry.overrides import item_type, type_members
from ..runs.storage.config_files import ConfigFile, numbers_of, read
from .argument_parser import FILE, ArgumentParser, attribute_docs
from .arguments import check_path
from .chain import Setting, Settings, build
from .options import NESTED, OPTIONS

if TYPE_CHECKING:
    from ..core.agent import Algorithm


class HelpAsked(Exception):
    """The help of a command is to be printed, once no progress is shown, and nothing else done."""


class CommandLine:
    """The words after a command, each of which is parsed once.

    The command's own options come first. They and the leading words decide which algorithm adds
    options, which are parsed from what is left.

    Args:
      command: a key of `cli.options.OPTIONS`.
      words: the words after the command.
      description: the help text.

    Attributes:
      leading: the words before the first option.
      asks_for_help: whether there is a `--help`.
      file: what the file of `--config` says; None without one.
      settings: those of the file and of the command line, which wins.

    Raises:
      TriglotError: if an option has no value, or two different ones, or a file cannot be read.
    """

    def __init__(self, command: str, words: Sequence[str], description: str = "") -> None:
        self._options, self._algorithm = OPTIONS[command], None
        self._fields = {field.name: field for field in fields(self._options)}
        self._positional = marked(self._options, "positional")
        self._parser = ArgumentParser(command, self._options, description)
        self.leading = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
        values, self._rest = self._parser.parse_values(words[len(self.leading) :])
        self.asks_for_help: bool = values.pop("help", False)
        path = values.pop(FILE, None)
        self.file: ConfigFile | None = None if path is None else read(Path(path))
        self.settings = self._in_file()
        self._add_settings({**self._by_position(), **values})

    def add_algorithm(self, algorithm: "Algorithm | None") -> None:
        """Parse the options of an algorithm's class too; of None, there are none."""
        self._algorithm = algorithm
        if algorithm is not None:
            self._parser.add_algorithm(algorithm)
            values, self._rest = self._parser.parse_values(self._rest)
            self._add_settings(values)

    def text(self, name: str) -> str:
        """Look up an option that is a text, before all are parsed; "" if it is not written.

        Raises:
          TriglotError: if the file has another value.
        """
        value, label = self.settings.get(name, Setting("", name))
        if not isinstance(value, str):
            raise TriglotError(f"{label} must be a name, got {value!r}.")
        return value

    def options(self, preset: Settings | None = None) -> AnyOptions:
        """Build the options.

        Args:
          preset: settings over which those of the file and of the command line win.

        Returns:
          An instance of the command's class.

        Raises:
          HelpAsked: if there is a `--help`.
          TriglotError: in one sentence that names the option, with the nearest existing one.
        """
        if self.asks_for_help:
            raise HelpAsked(self.help())
        self._check_names()
        chain = {**(preset or {}), **self.settings}
        self._check_complete(chain)
        parts: Any = self._algorithm and (self._algorithm.Config, self._algorithm.Hyperparams)
        nested = {name: build(part, chain) for name, part in zip(NESTED, parts or (), strict=False)}
        options = build(self._options, chain, **nested)
        _check_values(options)
        return options

    def help(self, note: str = "") -> str:
        """Write the help of the command, with a note below its description."""
        return self._parser.help(note)

    def _in_file(self) -> dict[str, Setting]:
        if self.file is None:
            return {}
        return {
            name: Setting(value, f"{name} in {self.file.path}")
            for name, value in self.file.values.items()
            # None is the default of the command that wrote a run; this one may have another.
            if value is not None or name not in self._fields
        }

    def _add_settings(self, values: Values) -> None:
        self.settings |= {name: Setting(value, flag(name)) for name, value in values.items()}

    def _by_position(self) -> dict[str, object]:
        """Name the words that belong to no option."""
        if self._takes_all_words:
            words = self._plain_words
            return {self._positional[0]: words} if words else {}
        return dict(zip(self._positional, self._plain_words, strict=False))

    @property
    def _takes_algorithm(self) -> bool:
        return NESTED[0] in self._fields

    @property
    def _takes_all_words(self) -> bool:
        """Whether one positional argument is a list."""
        hints = get_type_hints(self._options)
        return any(item_type(type_members(hints[name])) for name in self._positional)

    @property
    def _plain_words(self) -> list[str]:
        """Words that belong to no option; an algorithm and its environment come first."""
        return self.leading if self._takes_algorithm else [*self.leading, *self._rest]

    def _check_names(self) -> None:
        """Reject options that do not exist, in words and in the file, and words of no option."""
        left_out = (*NESTED, *marked(self._options, "derived"))
        names = [name for name in self._fields if name not in left_out]
        names += [field.name for field in numbers_of(self._algorithm)]
        for word in self._rest:
            if word.startswith("-"):
                raise self._unknown_option(word.partition("=")[0], ["--config", *map(flag, names)])
        if self.file is not None and not self.file.is_run:
            for name in self.file.values:
                if name not in names:
                    raise unknown(f"option in {self.file.path}", name, names)
        extra = self._rest if self._takes_algorithm else []
        if not self._takes_all_words:
            extra = [*self._plain_words[len(self._positional) :], *extra]
        if extra:
            prog = self._parser.prog
            raise TriglotError(f"unexpected argument {shown(extra[0])}; see `{prog} --help`.")

    def _unknown_option(self, name: str, names: Sequence[str]) -> TriglotError:
        """Build the error for an unknown option, with the nearest existing one."""
        if name.lstrip("-").replace("-", "_") in REPLACED:
            return unknown("option", name, names)
        other = OTHER_NAMES.get(name)
        near = [other] if other in names else difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ";"
        command = " ".join([self._parser.prog, *self.leading[: self._algorithm is not None]])
        owners = [] if self._algorithm is None or other in names else algorithms_with(name)
        if owners:
            return TriglotError(
                f"{self.leading[0]} has no option {name}, which is one of {', '.join(owners)}. "
                f"`{command} --help` lists its options."
            )
        return TriglotError(f"unknown option {name}{hint} `{command} --help` lists the options.")

    def _check_complete(self, chain: Settings) -> None:
        """Reject a command that lacks an option without a default."""
        hints = get_type_hints(self._options, include_extras=True)
        missing = []
        for name, field in self._fields.items():
            if name not in chain and is_required(field):
                _, mark = split_hint(hints[name])
                text = mark.metavar if mark.positional else f"{flag(name)} {mark.metavar}"
                missing.append(f"{text} ({attribute_docs(self._options)[name].rstrip('.')})")
        if missing:
            raise TriglotError(f"{self._parser.prog} needs {', '.join(missing)}.")


def _check_values(options: AnyOptions) -> None:
    """Refuse schedules in options that are no hyperparameters, and paths with too long names."""
    config = getattr(options, "config", None)
    static = option_values(config) if has_options(config) else {}
    for name, value in {**vars(options), **static}.items():
        if name not in (*NESTED, "learning_rate") and _is_schedule(value):
            raise TriglotError(
                f"{flag(name)} must be a number, got the schedule {value}: only hyperparameters "
                "change over a training."
            )
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, Path):
                check_path(name.replace("_", " "), str(path))


def _is_schedule(value: object) -> bool:
    if value is None or isinstance(value, int | float | str | tuple | Path | Mapping):
        return False
    from ..core.rl.schedules import Schedule  # imports JAX

    return isinstance(value, Schedule)


def algorithms_with(option: str) -> list[str]:
    """List the built-in algorithms that have an option, such as `--cell`."""
    return [
        name
        for name in ALGORITHMS
        for part in (find_algorithm(name).Config, find_algorithm(name).Hyperparams)
        if option in (flag(field.name) for field in option_fields(part))
    ]
