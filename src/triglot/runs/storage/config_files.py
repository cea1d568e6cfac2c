"""Options from a file: `--config FILE` of every command, and the TOML that `--print-config` prints.

A TOML file counts as typed by the user who names it. A run's `config.json` may be of another user,
so it may name code only if this user began the run.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from ...core.errors import TriglotError
from ...core.options import option_fields
from ...core.records import AnyOptions, JSONDict, Values
from ..options import LEFT_OUT
from ..registry.arg import marked
from ..registry.overrides import fields_as_text, from_overrides, overrides_of

if TYPE_CHECKING:
    from dataclasses import Field

    from ...core.agent import Algorithm

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
    values: Values
    is_run: bool
    preset: str | None = None


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


def _of_run(path: Path) -> JSONDict:
    """Read what a run was started with."""
    from .config import options_of_run, read_config, without_spans

    if path.name != "config.json":
        raise TriglotError(f"{OPTION} {path}: give a TOML file, or the config.json of a run.")
    options = options_of_run(path.parent, advice="write its options in the command")
    content = fields_as_text(options)
    # The whole run may have another length now.
    content["hyper"] = without_spans(content["hyper"], read_config(path.parent)["num_updates"])
    return {name: value for name, value in content.items() if name not in LEFT_OUT} | COMPLETE


def toml_of(options: AnyOptions, algorithm: "Algorithm") -> str:
    """Format options as a TOML file that `--config` reads.

    Args:
      options: of `triglot train`.
      algorithm: its class.
    """
    left_out = (*TABLES, *LEFT_OUT, *marked(type(options), "derived"))
    values = {name: value for name, value in vars(options).items() if name not in left_out}
    complete = {
        "config": from_overrides(algorithm.Config, overrides_of(options.config)),
        "hyper": from_overrides(algorithm.Hyperparams, overrides_of(options.hyper)),
    }
    tables = {
        table: values_of
        for table, part in complete.items()
        if (values_of := _plain(fields_as_text(part)))
    }
    preset = COMPLETE if options.preset is None else {PRESET: options.preset}
    return tomli_w.dumps({**_plain(values), **preset, **tables})


def _plain(values: Values) -> dict[str, object]:
    """Leave out None and empty lists, which are defaults; TOML has no None."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in values.items()
        if value is not None and value != ()
    }


def numbers_of(algorithm: "Algorithm | None") -> Iterator["Field[Any]"]:
    """List the fields of an algorithm's `Config` and `Hyperparams`; none without an algorithm."""
    for owner in () if algorithm is None else (algorithm.Config, algorithm.Hyperparams):
        yield from option_fields(owner)
