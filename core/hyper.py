"""Refusing an algorithm's numbers that are out of range, before anything compiles."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeAlias

from .errors import TriglotError

Range: TypeAlias = tuple[float, float]  # both ends are allowed

UNIT_INTERVAL: Range = (0.0, 1.0)
NON_NEGATIVE: Range = (0.0, float("inf"))


def check_counts(algorithm: str, config: Any) -> None:
    """Refuse numbers below 1 in the fields that a dataclass declares as `int`.

    Args:
      algorithm: its name, for the message.
      config: its `Config`.

    Raises:
      TriglotError: naming the field.
    """
    for name in (field.name for field in fields(config) if field.type in (int, "int")):
        number = getattr(config, name)
        if number < 1:
            raise TriglotError(f"{algorithm}'s {name} must be at least 1, got {number}.")


def check_ranges(algorithm: str, hyper: Any, ranges: Mapping[str, Range]) -> None:
    """Refuse numbers out of range; arrays, which may be traced, are taken as they are.

    Args:
      algorithm: its name, for the message.
      hyper: its `Hyperparams`.
      ranges: by field; `NON_NEGATIVE` where a field has none.

    Raises:
      TriglotError: naming the field and its range.
    """
    for name, number in vars(hyper).items():
        least, greatest = ranges.get(name, NON_NEGATIVE)
        if isinstance(number, float | int) and not least <= number <= greatest:
            raise TriglotError(
                f"{algorithm}'s {name} must be within [{least:g}, {greatest:g}], got {number}."
            )


def fill_schedule_horizon(hyper: Any, num_updates: int) -> Any:
    """Let a schedule span the whole run: fill in `decay_updates` where it was left None.

    Args:
      hyper: hyperparameters; those without a `decay_updates` are returned as they are.
      num_updates: updates of the whole run.
    """
    if getattr(hyper, "decay_updates", 0.0) is not None:
        return hyper
    return replace(hyper, decay_updates=float(num_updates))
