"""Names of types that are known only when a program runs: JSON, and options by name."""

from collections.abc import Mapping
from typing import Any, TypeAlias

JSON: TypeAlias = Mapping[str, Any]
"""An object of a JSON file, or what is written as one: values by name."""

JSONDict: TypeAlias = dict[str, Any]
"""The same while it is built, or where it is changed."""

AnyOptions: TypeAlias = Any
"""Options of a command, or a `Config` or `Hyperparams`: a dataclass, or an `OptionValues`."""

Values: TypeAlias = Mapping[str, Any]
"""Values of options by the names of their fields."""
