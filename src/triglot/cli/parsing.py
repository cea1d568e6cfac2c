"""Read a command line into the options of its command."""

import difflib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from ..core.errors import REPLACED, TriglotError, shown, unknown
from ..runs.registry.arg import OTHER_NAMES, flag, is_required, marked, split_hint
from ..runs.registry.overrides import item_type, type_members
from ..runs.storage.config_files import ConfigFile, numbers_of, read
from .argument_parser import FILE, ArgumentParser, attribute_docs
from .arguments import check_path
from .chain import Setting, build
from .options import NESTED, OPTIONS


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

    Raises:
      TriglotError: if an option has no value, or two different ones, or a file cannot be read.
    """

    def __init__(self, command: str, words: Sequence[str], description: str = "") -> None:
        self._options = OPTIONS[command]
        self._parser = ArgumentParser(command, self._options, description)
        self._algorithm: Any = None
        self._values: dict[str, Any] = {}
        self.leading = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
        self._parse(words[len(self.leading) :])
        self.asks_for_help: bool = self._values.pop("help", False)
        path = self._values.pop(FILE, None)
        self.file: ConfigFile | None = None if path is None else read(Path(path))

    def _parse(self, words: Sequence[str]) -> None:
        values, self._rest = self._parser.parse_values(words)
        self._values |= values

    def add_algorithm(self, algorithm: Any) -> None:
        """Parse the options of an algorithm's class too; of None, there are none."""
        self._algorithm = algorithm
        if algorithm is not None:
            self._parser.add_algorithm(algorithm)
            self._parse(self._rest)

    def settings(self) -> dict[str, Setting]:
        """Collect the settings of the file and those of the command line, which win."""
        settings = {}
        if self.file is not None:
            own = [one.name for one in fields(self._options)]
            for name, value in self.file.values.items():
                # None is the default of a run's command, and this one may have another.
                if value is not None or name not in own:
                    settings[name] = Setting(value, f"{name} in {self.file.path}")
        words = {**self._positional(), **self._values}
        return {**settings, **{name: Setting(words[name], flag(name)) for name in words}}

    def text(self, name: str) -> str:
        """Look up an option that is a text, before all are parsed; "" if it is not written.

        Raises:
          TriglotError: if the file has another value.
        """
        value, label = self.settings().get(name, Setting("", name))
        if not isinstance(value, str):
            raise TriglotError(f"{label} must be a name, got {value!r}.")
        return value

    def options(self, **preset: Setting) -> Any:
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
        chain = {**preset, **self.settings()}
        self._check_complete(chain)
        nested = {}
        if self._algorithm is not None:
            parts = (self._algorithm.Config, self._algorithm.Hyperparams)
            nested = {name: build(part, chain) for name, part in zip(NESTED, parts, strict=True)}
        options = build(self._options, chain, **nested)
        _check_values(options)
        return options

    def help(self, note: str = "") -> str:
        """Write the help of the command, with a note below its description."""
        return self._parser.help(note)

    @property
    def _takes_algorithm(self) -> bool:
        return NESTED[0] in (one.name for one in fields(self._options))

    def _positional(self) -> dict[str, Any]:
        """Name the words that belong to no option."""
        names, words = marked(self._options, "positional"), self._plain_words()
        if _is_list(self._options, names):
            return {names[0]: words} if words else {}
        return dict(zip(names, words, strict=False))

    def _plain_words(self) -> list[str]:
        return self.leading if self._takes_algorithm else [*self.leading, *self._rest]

    def _check_names(self) -> None:
        """Reject options that do not exist, in words and in the file, and words of no option."""
        prog = self._parser.prog
        left_out = (*NESTED, *marked(self._options, "derived"))
        names = [one.name for one in fields(self._options) if one.name not in left_out]
        names += [one.name for one in numbers_of(self._algorithm)]
        flags = ["--config", *map(flag, names)]
        for word in self._rest:
            if not word.startswith("-"):
                continue
            name = word.partition("=")[0]
            if name.lstrip("-").replace("-", "_") in REPLACED:
                raise unknown("option", name, flags)
            other = OTHER_NAMES.get(name)
            near = [other] if other in flags else difflib.get_close_matches(name, flags, n=1)
            hint = f"; did you mean {near[0]}?" if near else ";"
            command = " ".join([prog, *self.leading[:1]]) if self._algorithm else prog
            raise TriglotError(f"unknown option {name}{hint} `{command} --help` lists the options.")
        if self.file is not None and not self.file.is_run:
            for name in self.file.values:
                if name not in names:
                    raise unknown(f"option in {self.file.path}", name, names)
        extra = self._rest if self._takes_algorithm else []
        positional = marked(self._options, "positional")
        if not _is_list(self._options, positional):
            extra = [*self._plain_words()[len(positional) :], *extra]
        if extra:
            raise TriglotError(f"unexpected argument {shown(extra[0])}; see `{prog} --help`.")

    def _check_complete(self, names: Any) -> None:
        """Reject a command that lacks an option without a default."""
        hints = get_type_hints(self._options, include_extras=True)
        missing = []
        for one in fields(self._options):
            if one.name not in names and is_required(one):
                _, mark = split_hint(hints[one.name])
                name = mark.metavar if mark.positional else f"{flag(one.name)} {mark.metavar}"
                what = attribute_docs(self._options)[one.name].rstrip(".")
                missing.append(f"{name} ({what})")
        if missing:
            raise TriglotError(f"{self._parser.prog} needs {', '.join(missing)}.")


def _check_values(options: Any) -> None:
    """Refuse schedules in options that are no hyperparameters, and paths with too long names."""
    config = getattr(options, "config", None)
    static = vars(config) if is_dataclass(config) else {}
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


def _is_list(options: type, names: Sequence[str]) -> bool:
    """Whether one positional argument takes all words."""
    hints = get_type_hints(options)
    return len(names) == 1 and item_type(type_members(hints[names[0]])) is not None
