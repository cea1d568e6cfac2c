"""Build an algorithm's `Config` and `Hyperparams` from the fields that differ from the defaults."""

import re
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, is_dataclass
from enum import Enum
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from ...core.errors import TriglotError, check_known, kind_of, shown, unknown, user_error_context
from ...core.options import OptionTable, OptionValues, option_fields, option_type, option_values
from ...core.records import AnyOptions, Values
from .arg import other_name

Options = TypeVar("Options")
NUMBERS = re.compile(r"\d+(?:[,x/]\d+)+")  # several, written as one word


@overload
def from_overrides(
    options: type[Options], overrides: Values | None, labels: Mapping[str, str] | None = None
) -> Options: ...


@overload
def from_overrides(
    options: type | OptionTable, overrides: Values | None, labels: Mapping[str, str] | None = None
) -> AnyOptions: ...


def from_overrides(
    options: type | OptionTable, overrides: Values | None, labels: Mapping[str, str] | None = None
) -> AnyOptions:
    """Build a dataclass from the fields that differ from its defaults; they may come from JSON.

    Args:
      options: an algorithm's `Config` or `Hyperparams`, or another dataclass.
      overrides: values by field name. Lists become tuples; "inf" and "-inf", which strict JSON
        needs in place of infinities, become floats.
      labels: how errors name a field, such as `--seed`, where not as one of the dataclass.

    Raises:
      TriglotError: if a field does not exist, or the class rejects the values.
    """
    if overrides is not None and not isinstance(overrides, Mapping):
        raise TriglotError(
            f"give a {options.__name__}, or values by name such as a dictionary; got "
            f"{kind_of(overrides)}."
        )
    names = [field.name for field in option_fields(options)]
    for name in overrides or {}:
        if name not in names:
            raise unknown(f"field of {options.__name__}", name, names, other_name(name))
    hints = type_hints(options)
    values = {}
    for name, value in (overrides or {}).items():
        label = (labels or {}).get(name, f"{name} of {options.__name__}")
        try:
            values[name] = _decode(hints.get(name), value)
        except TriglotError as error:
            raise TriglotError(f"{label}: {error}") from None
        if not _fits(hints.get(name), values[name]):
            raise TriglotError(f"{label} must be {_shown(hints[name])}, got {value!r}.")
    with user_error_context(f"{options.__name__} failed when it was created"):
        return options(**values)


def overrides_of(options: AnyOptions) -> dict[str, Any]:
    """List the fields of a dataclass that differ from their defaults; a mapping is copied.

    A schedule is written as its text, which `from_overrides` reads.
    """
    if isinstance(options, Mapping):
        return _as_text(options)
    default = option_values(option_type(options)())
    values = option_values(options)
    return _as_text({name: value for name, value in values.items() if value != default[name]})


def fields_as_text(options: AnyOptions) -> dict[str, Any]:
    """Convert options to nested dictionaries, as `asdict`, with schedules as their text."""
    return _as_text(options if isinstance(options, OptionValues) else asdict(options))


def _as_text(value: Any) -> Any:
    """Replace schedules by their text, also within dictionaries; functions have none."""
    if isinstance(value, OptionValues):
        value = option_values(value)
    if isinstance(value, Mapping):
        return {name: _as_text(child) for name, child in value.items()}
    if value is None or isinstance(value, str | int | float | tuple | list | Path | Enum):
        return value
    from ...core.rl.schedules import Schedule  # imports JAX

    return str(value) if isinstance(value, Schedule) and value.function is None else value


def type_hints(options: type | OptionTable) -> dict[str, Any]:
    """Look up the types of option fields; without those of a class that cannot be resolved."""
    if isinstance(options, OptionTable):
        return {name: hint for part in options.parts for name, hint in type_hints(part).items()}
    try:
        return get_type_hints(options, include_extras=True)
    except Exception:  # a custom class may name types that are imported for checkers only
        return {}


def _decode(hint: Any, value: Any) -> Any:
    """Convert a JSON value to the type of its field."""
    if isinstance(value, list | tuple):
        return tuple(_decode(item_type(type_members(hint)), child) for child in value)
    kinds = [kind for kind in type_members(hint) if isinstance(kind, type) and kind is not Any]
    if any(isinstance(value, kind) for kind in kinds):
        return value
    for kind in kinds:
        if is_dataclass(kind) and isinstance(value, Mapping):
            return from_overrides(kind, value)
        if not isinstance(value, str):
            continue
        if issubclass(kind, Path):
            return Path(value)
        if issubclass(kind, Enum):
            check_known(kind.__name__, value, kind.__members__)
            return kind[value]
        if issubclass(kind, float) and value in ("inf", "-inf"):
            return float(value)
        if issubclass(kind, float) and "(" in value:  # a schedule, such as linear(3e-4, 0)
            from ...core.rl.schedules import schedule  # imports JAX

            return schedule(value)
    return value


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value that JSON can hold has the type of its field; other values pass."""
    members = type_members(hint)
    kinds = {get_origin(member) or member for member in members}
    if kinds & {None, Any} or not all(isinstance(kind, type) for kind in kinds):
        return True  # no type that could be checked
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, tuple):
        parts = [get_args(member)[:1] for member in members if get_origin(member) is tuple]
        return tuple in kinds and all(_fits(part, item) for (part,) in parts for item in value)
    if isinstance(value, int):
        return bool(kinds & {int, float})
    known = value is None or isinstance(value, float | str | Mapping)
    return not known or isinstance(value, tuple(kinds))


def _shown(hint: Any) -> str:
    shown = {
        "NoneType": "None", "Array": "a JAX array", "float": "a number", "int": "an integer",
        "bool": "true or false", "str": "text", "Path": "a path",
    }  # fmt: skip
    names = (
        f"a list, each {_shown(get_args(member)[0])}"
        if get_origin(member) is tuple
        else getattr(member, "__name__", str(member))
        for member in type_members(hint)
    )
    return " or ".join(shown.get(name.rpartition(".")[2], name) for name in names)


def type_members(hint: Any) -> tuple[Any, ...]:
    """List the members of a union, or the type itself."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(member for part in get_args(hint) for member in type_members(part))
    return (hint,)


def field_types(options: type | OptionTable) -> dict["Field[Any]", tuple[Any, ...]]:
    """List the types that each field of a dataclass may have; that of its default if unknown."""
    hints = type_hints(options)
    return {
        field: (type(field.default),)
        if hints.get(field.name, Any) is Any and field.default is not MISSING
        else type_members(hints.get(field.name))
        for field in option_fields(options)
    }


def parse_words(members: Collection[Any], words: Sequence[str]) -> Any:
    """Parse words of a command line, or the text of a file, as one of several types.

    >>> parse_words([tuple[int, ...], type(None)], ["64", "5e2"])
    (64, 500)

    Args:
      members: types, as from `type_members`.
      words: one, or any number for a list.

    Returns:
      A number, True, False, None or a list as tuple; else the text, in which `from_overrides` reads
      paths and schedules, and which it refuses where no type fits.

    Raises:
      TriglotError: if the words are no number, no switch or not one of the possible values.
    """
    is_text = not {str, Path}.isdisjoint(members)
    word = words[0] if len(words) == 1 else None
    is_none = word == "None" or (word is not None and word.lower() == "none" and not is_text)
    if is_none and type(None) in members:
        return None
    item = item_type(members)
    if item is not None and not (word is not None and {int, float} & {*members}):
        if not words and not {int, float}.isdisjoint(members):
            raise TriglotError("expected at least one number.")
        together = next((word for word in words if NUMBERS.fullmatch(word)), None)
        if together is not None and not {int, float}.isdisjoint(type_members(item)):
            separate = re.sub("[,x/]", " ", together)
            raise TriglotError(f"separate numbers by spaces, {separate}; got {shown(together)}.")
        return tuple(parse_words(type_members(item), [word]) for word in words)
    if word is None or is_text:
        return list(words) if word is None else word
    for member in members:
        if get_origin(member) is Literal:
            check_known("choice", word, get_args(member))
            return word
    if bool in members:
        if word.lower() not in ("true", "false"):
            raise TriglotError(f"expected true or false, got {shown(word)}.")
        return word.lower() == "true"
    if float in members:
        return word if "(" in word else _number(word)
    return _integer(word) if int in members else word


def _number(text: str, kind: str = "a number") -> float:
    try:
        return float(text)
    except ValueError:
        raise TriglotError(f"expected {kind}, got {shown(text)}.") from None


def _integer(text: str) -> int:
    """Parse an integer, which may be written as 500_000 or 5e5."""
    number = _number(text, "an integer")
    if not number.is_integer():
        raise TriglotError(f"expected an integer, got {shown(text)}.")
    return int(number) if "e" in text.lower() or "." in text else int(text)


def item_type(members: Collection[Any]) -> Any:
    """Look up the type of the items of a list, if one of the types is a list; else None."""
    lists = (get_args(member) for member in members if get_origin(member) is tuple)
    return next((kinds[0] for kinds in lists if kinds), None)
