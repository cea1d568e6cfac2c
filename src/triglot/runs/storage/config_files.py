"""Options from a file: `--config FILE` of every command, and the TOML that `--print-config` prints.

A file is turned into the words of a command line, so that both are checked in the same way and give
the same errors. A TOML file counts as typed by the user who names it. A run's `config.json` may be
of another user, so it may name code only if this user began the run.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tomli_w

from ...core.errors import TriglotError, unknown
from ...core.options import option_fields
from ..options import LEFT_OUT
from ..registry.arg import flag, marked
from ..registry.overrides import check_type, fields_as_text, type_hints

OPTION = "--config"
TABLES = ("config", "hyper")  # of an algorithm's numbers; the keys may also stand at the top
PRESET = "preset"
COMPLETE = {"no_preset": True}  # of a file that has all settings


@dataclass(frozen=True)
class ConfigFile:
    """What a file says.

    Attributes:
      path: of the file.
      values: by option name, tables flattened.
      preset: the name of the preset whose settings it holds; None without one.
      is_run: whether it is a run's `config.json`, of which a command takes what it knows.
    """

    path: Path
    values: Mapping[str, Any]
    is_run: bool
    preset: str | None = None


def split(words: Sequence[str]) -> tuple[ConfigFile | None, list[str]]:
    """Take `--config FILE` out of the words after a command, and read the file.

    Raises:
      TriglotError: if no file follows, there are several, or it cannot be read.
    """
    rest, paths, left = [], [], iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if name != OPTION:
            rest.append(word)
            continue
        path = value if equals else next(left, "")
        if not path or path.startswith("--"):
            raise TriglotError(f"{OPTION} needs a file: {OPTION} settings.toml")
        paths.append(path)
    if len(paths) > 1:
        raise TriglotError(f"{OPTION} is given twice, as {' and '.join(paths)}: give it once.")
    return (read(Path(paths[0])) if paths else None), rest


def read(path: Path) -> ConfigFile:
    """Read a TOML file, or the `config.json` of a run.

    Raises:
      TriglotError: if it cannot be read, or a run's names code and was not begun by this user.
    """
    is_run = path.suffix == ".json"
    try:
        content = _of_run(path) if is_run else tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TriglotError(f"{OPTION} {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TriglotError(f"{OPTION} {path} is not valid TOML: {error}.") from None
    preset = content.pop(PRESET, None)
    if not isinstance(preset, str | None):
        raise TriglotError(f"{PRESET} in {path} must be the name of a preset, got {preset!r}.")
    values = {name: value for name, value in content.items() if name not in TABLES}
    if preset is not None:  # its settings are there: a later version may have others
        values |= COMPLETE
    for table in TABLES:
        inside = content.get(table, {})
        if not isinstance(inside, Mapping):
            raise TriglotError(f"{table} in {path} must be a table, [{table}], got {inside!r}.")
        for name, value in inside.items():
            if name in values:
                raise TriglotError(f"{path} has {name} twice: at the top and in [{table}].")
            values[name] = value
    for name, value in values.items():
        if isinstance(value, Mapping):
            raise TriglotError(
                f"{path} has a table [{name}]; its tables are {' and '.join(TABLES)}."
            )
    return ConfigFile(path, values, is_run, preset)


def _of_run(path: Path) -> dict[str, Any]:
    """Read what a run was started with."""
    from .config import options_of_run, read_config, without_spans

    if path.name != "config.json":
        raise TriglotError(f"{OPTION} {path}: give a TOML file, or the config.json of a run.")
    options = options_of_run(path.parent, how="write its options in the command")
    content = fields_as_text(options)
    # The whole run may have another length now.
    content["hyper"] = without_spans(content["hyper"], read_config(path.parent)["num_updates"])
    return {name: value for name, value in content.items() if name not in LEFT_OUT} | COMPLETE


def merge(file: ConfigFile, words: Sequence[str], options: type, algorithm: Any) -> list[str]:
    """Put a file's options before the words of a command line, which win over them.

    Args:
      file: what was read.
      words: after the command and without `--config`.
      options: the command's class.
      algorithm: its class, whose options the command takes too; None if it takes none.

    Raises:
      TriglotError: if the file has a key that the command does not know.
    """
    left_out = (*TABLES, *marked(options, "derived"))
    own = {one.name: one.default for one in fields(options) if one.name not in left_out}
    more = {one.name: one.default for one in numbers_of(algorithm)}
    positional = marked(options, "positional")
    for name in file.values:
        if name not in own | more and not file.is_run:
            raise unknown(f"option in {file.path}", name, sorted(own | more))
    _check_types(file, options, algorithm)
    chosen = given_in(words, file.values)
    given = _leading(words)
    merged = list(given)
    for name in positional[len(given) :]:
        merged += _texts(file.values.get(name, ()))
    for name, value in file.values.items():
        if name in positional or name not in own | more or name in chosen:
            continue
        merged += _words(name, value, default=(own | more)[name], is_number=name in more)
    return [*merged, *words[len(given) :]]


def _check_types(file: ConfigFile, options: type, algorithm: Any) -> None:
    owners = [options] if algorithm is None else [options, algorithm.Config, algorithm.Hyperparams]
    for owner in reversed(owners):
        hints = type_hints(owner)
        for name in file.values.keys() & hints.keys():
            if file.values[name] is None:  # of a run: its default
                continue
            check_type(f"{name} in {file.path}", hints[name], file.values[name])


def given_in(words: Sequence[str], names: Iterable[str]) -> list[str]:
    """List the names of options that the words of a command give, as `--x` or `--no-x`."""
    flags = {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}
    return [name for name in names if flags & {flag(name), flag(f"no_{name}")}]


def first_of(file: ConfigFile, words: Sequence[str], name: str) -> str:
    """Give the first word of a command, which may stand in the file under a name.

    Raises:
      TriglotError: if it stands in neither, or is no text in the file.
    """
    found = [*_leading(words), file.values.get(name)][0]
    if found is None:
        raise TriglotError(f"{file.path} has no {name}: add it, or give it in the command.")
    if not isinstance(found, str):
        raise TriglotError(f"{name} in {file.path} must be a name, got {found!r}.")
    return found


def toml_of(options: Any, algorithm: Any) -> str:
    """Format options as a TOML file that `--config` reads.

    Args:
      options: of `triglot train`.
      algorithm: its class.
    """
    from ..registry.overrides import from_overrides, overrides_of

    left_out = (*TABLES, *LEFT_OUT, *marked(type(options), "derived"))
    given = {name: value for name, value in vars(options).items() if name not in left_out}
    complete = {
        "config": from_overrides(algorithm.Config, overrides_of(options.config)),
        "hyper": from_overrides(algorithm.Hyperparams, overrides_of(options.hyper)),
    }
    tables = {table: own for table, one in complete.items() if (own := _plain(fields_as_text(one)))}
    preset = COMPLETE if options.preset is None else {PRESET: options.preset}
    return tomli_w.dumps({**_plain(given), **preset, **tables})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out None and empty lists, which are defaults; TOML has no None."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in values.items()
        if value is not None and value != ()
    }


def numbers_of(algorithm: Any) -> Iterator[Any]:
    """List the fields of an algorithm's `Config` and `Hyperparams`; none without an algorithm."""
    for owner in () if algorithm is None else (algorithm.Config, algorithm.Hyperparams):
        yield from option_fields(owner)


def _leading(words: Sequence[str]) -> list[str]:
    """Give the words before the first option."""
    count = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    return list(words[:count])


def _words(name: str, value: Any, *, default: Any, is_number: bool) -> list[str]:
    """Write one option as words; nothing where a default cannot be written."""
    if value is None:
        return [flag(name), "None"] if is_number and default is not None else []
    if isinstance(value, bool):
        if value:
            return [flag(name)]
        return [flag(f"no_{name}")] if is_number else []
    texts = _texts(value)
    if len(texts) == 1:
        return [f"{flag(name)}={texts[0]}"]  # a text may begin with a hyphen
    return [] if not texts and default == () else [flag(name), *texts]


def _texts(value: Any) -> list[str]:
    return [str(each) for each in (value if isinstance(value, list | tuple) else [value])]
