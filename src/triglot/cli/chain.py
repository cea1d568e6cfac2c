"""The chain of values behind the options: defaults, a preset, a file, the command line.

Each link is a mapping of names to settings, so that `{**preset, **file, **command_line}` is what
holds. It is checked once, when the options are built; the defaults are those of their class.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ..core.errors import TriglotError
from ..runs.registry.overrides import field_types, from_overrides, parse_words

Options = TypeVar("Options")


class Setting(NamedTuple):
    """The value of an option as it is written, and where it is written.

    Attributes:
      value: text or texts of a command line or a file, or another value of a file.
      label: names the option and the place in errors, such as `seed in settings.toml`.
    """

    value: Any
    label: str


Settings: TypeAlias = Mapping[str, Setting]


def build(options: type[Options], settings: Settings, **others: Any) -> Options:
    """Build options from the settings of its fields; the others keep their defaults.

    Args:
      options: a dataclass, a command's options or an algorithm's `Config`.
      settings: may have settings of other dataclasses, which are ignored.
      others: values of fields that have no setting.

    Raises:
      TriglotError: naming where a value is written that does not fit its field.
    """
    types = field_types(options)
    written = {field: settings[field.name] for field in types if field.name in settings}
    values = {field.name: _value(types[field], setting) for field, setting in written.items()}
    labels = {field.name: setting.label for field, setting in written.items()}
    return from_overrides(options, {**values, **others}, labels)


def _value(members: tuple[Any, ...], setting: Setting) -> Any:
    """Read the value of a setting as one of several types; `from_overrides` checks the result."""
    value, label = setting
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
        try:
            return parse_words(members, texts)
        except TriglotError as error:
            raise TriglotError(f"{label}: {error}") from None
    is_float = float in members and int not in members
    return float(value) if is_float and type(value) is int else value
