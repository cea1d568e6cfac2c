"""Hyperparameters and static configuration: their allowed values, checked before anything compiles.

A field of a `Config` or of a `Hyperparams` dataclass states what it allows by its default:
`discount: Number = unit_interval(0.99)`. `check_config` and
`check_hyperparams` refuse everything else in one sentence.
"""

import math
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp

from .errors import TriglotError, unknown
from .types import by_path

Number: TypeAlias = float | jax.Array  # a Python number, or float32 [] in an agent's state
HyperparamsT = TypeVar("HyperparamsT")


@dataclass(frozen=True)
class Range:
    """An interval `[low, high]`; where `above_low`, the finite numbers above `low`."""

    low: float
    high: float = math.inf
    above_low: bool = False

    def __contains__(self, number: float) -> bool:
        if self.above_low:
            return self.low < number < math.inf
        return self.low <= number <= self.high

    def __str__(self) -> str:
        if self.above_low:
            return f"finite and above {self.low:g}"
        return f"within [{self.low:g}, {self.high:g}]"


NON_NEGATIVE = Range(0.0)


def between(default: float | None, low: float, high: float = math.inf) -> Any:
    """Declare a field whose number lies within `[low, high]`."""
    return field(default=default, metadata={"allowed": Range(low, high)})


def unit_interval(default: float) -> Any:
    """Declare a field whose number lies within [0, 1]."""
    return between(default, 0.0, 1.0)


def positive(default: float) -> Any:
    """Declare a field whose number is greater than 0, and finite."""
    return field(default=default, metadata={"allowed": Range(0.0, above_low=True)})


def one_of(default: str, *others: str) -> Any:
    """Declare a field that holds one of several names."""
    return field(default=default, metadata={"allowed": (default, *others)})


def check_hyperparams(owner: str, hyper: Any) -> None:
    """Refuse hyperparameters out of range; numbers without a declared range must not be negative.

    Arrays, which may be traced, and None are accepted as they are.

    Args:
      owner: the algorithm's name, for the message.
      hyper: its `Hyperparams`.

    Raises:
      TriglotError: naming the hyperparameter and what it allows.
    """
    for one in fields(hyper):
        _check(owner, one, getattr(hyper, one.name), NON_NEGATIVE)


def check_config(owner: str, config: Any) -> None:
    """Refuse static configuration out of range; an `int` without a declared range is at least 1.

    Args:
      owner: the algorithm's name, for the message.
      config: its `Config`.

    Raises:
      TriglotError: naming the field and what it allows.
    """
    for one in fields(config):
        number = getattr(config, one.name)
        if one.type in (int, "int") and number < 1:
            raise TriglotError(f"{owner}'s {one.name} must be at least 1, got {number}.")
        _check(owner, one, number, None)


def check_divides(owner: str, name: str, divisor: int, number: int, of_what: str) -> None:
    """Refuse a count that does not divide another.

    Raises:
      TriglotError: naming both.
    """
    if number % divisor:
        raise TriglotError(f"{owner}'s {name} must divide {of_what} = {number}, got {divisor}.")


def _check(owner: str, one: "Field[Any]", value: Any, default: Range | None) -> None:
    allowed = one.metadata.get("allowed", default)
    if isinstance(allowed, tuple) and value not in allowed:
        raise unknown(f"{one.name} of {owner}", str(value), allowed)
    if isinstance(allowed, Range) and isinstance(value, float | int) and value not in allowed:
        raise TriglotError(f"{owner}'s {one.name} must be {allowed}, got {value}.")


def as_float32(hyper: HyperparamsT) -> HyperparamsT:
    """Convert every hyperparameter to a float32 array, as an agent's state holds it; None stays."""
    return jax.tree.map(lambda number: jnp.asarray(number, jnp.float32), hyper)


def per_seed(hyper: HyperparamsT, num_seeds: int) -> HyperparamsT:
    """Broadcast hyperparameters to `[S]` where one of them is an array; else return them unchanged.

    Args:
      hyper: numbers `[]`, or arrays `[S]` with a value for each seed.
      num_seeds: `S`.

    Raises:
      TriglotError: naming a hyperparameter of another shape.
    """
    shapes = {name: jnp.shape(leaf) for name, leaf in by_path(hyper).items()}
    for name, shape in shapes.items():
        if shape not in ((), (num_seeds,)):
            raise TriglotError(
                f"hyper.{name} has shape {list(shape)}, expected [] or [num_seeds] = "
                f"[{num_seeds}]: give one number for all seeds, or an array with one for each."
            )
    if not any(shapes.values()):
        return hyper
    return jax.tree.map(lambda number: jnp.broadcast_to(number, (num_seeds,)), as_float32(hyper))


@runtime_checkable
class Scheduled(Protocol):
    """Hyperparameters with a schedule over updates; this is optional."""

    @property
    def decay_updates(self) -> Number | None:
        """Updates over which the schedule runs; None for the whole run."""
        ...


def fill_schedule_horizon(hyper: HyperparamsT, num_updates: int) -> HyperparamsT:
    """Set `decay_updates` to the whole run where it is None, so that a schedule spans the run.

    Args:
      hyper: hyperparameters; those without a `decay_updates` are returned unchanged.
      num_updates: updates of the whole run.
    """
    if not isinstance(hyper, Scheduled) or hyper.decay_updates is not None:
        return hyper
    scheduled: Any = hyper
    return replace(scheduled, decay_updates=float(num_updates))
