"""The options of an algorithm: the fields of one dataclass, or of several side by side.

The `Config` and the `Hyperparams` of an algorithm are dataclasses. An algorithm with an extension
has an `OptionTable` for each, which lists the fields of both, and `OptionValues` for what they
hold. The functions of this module take either.
"""

from dataclasses import Field, FrozenInstanceError, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from .records import AnyOptions, Values


class OptionTable:
    """The fields of several dataclasses, side by side; calling it with values by name fills them.

    Attributes:
      __name__: how messages call it, as they call a class.
      parts: the dataclasses, of which no two have a field of the same name.
    """

    def __init__(self, name: str, parts: tuple[type[Any], ...]) -> None:
        self.__name__, self.parts = name, parts

    def __call__(self, **values: Any) -> "OptionValues":
        """Build each dataclass of its own values; the others have their defaults."""
        if unknown := values.keys() - {field.name for field in option_fields(self)}:
            raise TypeError(f"{self.__name__} has no field {min(unknown)!r}.")
        return OptionValues(self, tuple(part(**_values_of(part, values)) for part in self.parts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OptionTable) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.__name__, self.parts))

    def __repr__(self) -> str:
        return self.__name__


class OptionValues:
    """Values of an `OptionTable`; each is an attribute, and none can be set.

    Attributes:
      table: what fields there are.
      parts: an instance of each dataclass of the table.
    """

    table: OptionTable
    parts: tuple[Any, ...]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, table: OptionTable, parts: tuple[Any, ...]) -> None:
        values = {name: value for part in parts for name, value in option_values(part).items()}
        vars(self).update(values, table=table, parts=parts)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OptionValues):
            return False
        return self.table == other.table and self.parts == other.parts

    def __hash__(self) -> int:
        return hash((self.table, self.parts))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in option_values(self).items())
        return f"{self.table.__name__}({values})"


OptionKind: TypeAlias = type[Any] | OptionTable  # a dataclass, or several side by side


def has_options(value: object) -> bool:
    """Return whether something has option fields: a dataclass, a table, or values of either."""
    return isinstance(value, OptionTable | OptionValues) or is_dataclass(value)


def option_fields(options: AnyOptions) -> tuple["Field[Any]", ...]:
    """List the fields of a dataclass, a table, or values of either."""
    if isinstance(options, OptionTable | OptionValues):
        return tuple(field for part in options.parts for field in fields(part))
    return fields(options)


def option_values(options: AnyOptions) -> dict[str, Any]:
    """List the values by name."""
    return {field.name: getattr(options, field.name) for field in option_fields(options)}


def option_parts(kind: OptionKind) -> tuple[type[Any], ...]:
    """List the dataclasses of a table; a dataclass is the only one of its own."""
    return kind.parts if isinstance(kind, OptionTable) else (kind,)


def option_type(options: AnyOptions) -> OptionKind:
    """Return the dataclass or the table of some values."""
    return options.table if isinstance(options, OptionValues) else type(options)


def are_options_of(kind: OptionKind, options: object) -> bool:
    """Return whether something holds values of a dataclass or a table."""
    if isinstance(kind, OptionTable):
        return isinstance(options, OptionValues) and options.table == kind
    return isinstance(options, kind)


def replace_options(options: AnyOptions, changes: Values) -> AnyOptions:
    """Copy values with some of them replaced, by name."""
    if not isinstance(options, OptionValues):
        return replace(options, **changes)
    return options.table(**{**option_values(options), **changes})


def select_options(options: OptionValues, kind: OptionKind) -> AnyOptions:
    """Select the values of some of a table's dataclasses.

    Args:
      options: the values of the table.
      kind: one of its dataclasses, or another table of some of them.
    """
    if isinstance(kind, OptionTable):
        return OptionValues(kind, tuple(select_options(options, part) for part in kind.parts))
    return next(part for part in options.parts if type(part) is kind)


def _values_of(part: type[Any], values: Values) -> dict[str, Any]:
    return {field.name: values[field.name] for field in fields(part) if field.name in values}
