"""Hyperparameters and static configuration: their allowed values, checked before anything compiles.

A field of a `Config` or of a `Hyperparams` dataclass states what it allows by its default:
`discount: Number = unit_interval(0.99)`. `check_config` and
`check_hyperparams` refuse everything else in one sentence.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import Field, dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .errors import TriglotError, check_known, kind_of, shown, unknown
from .options import (
    OptionTable,
    OptionValues,
    are_options_of,
    has_options,
    option_fields,
    option_type,
    option_values,
    replace_options,
)
from .rl.schedules import FUNCTION, Schedule, is_schedule_text, schedule
from .types import AnyConfig, AnyHyperparams, PyTree, by_path

Number: TypeAlias = float | jax.Array
"""A hyperparameter: a Python number or a `Schedule`; float32 `[]` in an agent's state."""
PerLayer: TypeAlias = int | tuple[int, ...]  # one count for all layers, or one for each
# Fields declared by `by_environment` are None in options, and never in an agent.
if TYPE_CHECKING:
    CountByEnvironment: TypeAlias = int
    NumberByEnvironment: TypeAlias = Number
else:
    CountByEnvironment = int | None
    NumberByEnvironment = Number | None
HyperparamsT = TypeVar("HyperparamsT")
OptionsT = TypeVar("OptionsT")

COUNTS = (
    int, "int", int | None, "int | None", CountByEnvironment,
    PerLayer, "PerLayer", PerLayer | None, "PerLayer | None",
)  # fmt: skip
MAX_FLOAT = float(np.finfo(np.float32).max)  # agents compute in float32
MAX_COUNT = 2**31 - 1  # counters are int32


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`; without `low` where `above_low`."""

    low: float
    high: float = math.inf
    above_low: bool = False

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high and not (self.above_low and number == self.low)

    def __str__(self) -> str:
        least = f"{'above' if self.above_low else 'at least'} {self.low:g}"
        if self.high == math.inf:
            return least
        if self.high < MAX_FLOAT and self.low == -MAX_FLOAT:
            return f"finite and at most {self.high:g}"
        if self.high < MAX_FLOAT and self.above_low:
            return f"{least} and at most {self.high:g}"
        if self.high < MAX_FLOAT:
            return f"within [{self.low:g}, {self.high:g}]"
        return "finite" if self.low == -MAX_FLOAT else f"finite and {least}"


NON_NEGATIVE = Range(0.0, MAX_FLOAT)


def _numbers_by_name(values: OptionValues) -> tuple[list[tuple[Any, PyTree]], OptionTable]:
    """Take `OptionValues` apart for JAX: a child for each field, as those of a dataclass."""
    named = option_values(values).items()
    return [(jax.tree_util.GetAttrKey(name), value) for name, value in named], values.table


def _from_numbers(table: OptionTable, numbers: Iterable[PyTree]) -> OptionValues:
    names = [field.name for field in option_fields(table)]
    return table(**dict(zip(names, numbers, strict=True)))


jax.tree_util.register_pytree_with_keys(OptionValues, _numbers_by_name, _from_numbers)


def between(
    default: float | Schedule | None, low: float, high: float = math.inf, *, above_low: bool = False
) -> Any:
    """Declare a field whose number lies within `[low, high]`; without `low` where `above_low`."""
    return field(default=default, metadata={"allowed": Range(low, high, above_low)})


def unit_interval(default: float | Schedule) -> Any:
    """Declare a field whose number lies within [0, 1]."""
    return between(default, 0.0, 1.0)


def non_negative(default: float | Schedule) -> Any:
    """Declare a field whose number is at least 0 and finite, as one without a declaration is."""
    return field(default=default, metadata={"allowed": NON_NEGATIVE})


def positive(default: float) -> Any:
    """Declare a field whose number is greater than 0, and finite."""
    return between(default, 0.0, MAX_FLOAT, above_low=True)


def finite(default: float | None, high: float = MAX_FLOAT) -> Any:
    """Declare a field that holds any finite number, at most `high`."""
    return between(default, -MAX_FLOAT, high)


def below(other: str, default: float) -> Any:
    """Declare a field that holds a finite number below that of the field `other`."""
    return field(default=default, metadata={**finite(default).metadata, "below": other})


def anneals(other: str, declared: "Field[Any]") -> Any:
    """Declare a field towards which the agent changes the number in the field `other`.

    `other` is then no schedule; None, where the field allows it, leaves `other` as it is.

    Args:
      other: a field of the same dataclass.
      declared: the field, declared by another function of this module.
    """
    return field(default=declared.default, metadata={**declared.metadata, "anneals": other})


def part_of(count: str) -> Any:
    """Declare a field that holds a number above 0 and at most the field `count` of the `Config`.

    None, the default, means all of them.
    """
    return field(default=None, metadata={**positive(0.0).metadata, "part_of": count})


def by_environment(default: Any, **others: object) -> Any:
    """Declare a field whose default depends on the environment; it holds None, which stands for it.

    An agent replaces None when it is made, see `for_environment`, so `config.json` has the number.
    Until then None shows that no preset, sweep or person has chosen a value.

    Args:
      default: where none of the others holds; or a field declared by another function of this
        module, whose range holds.
      others: the default where the environment is of a kind, such as `images=100_000`.
    """
    declared = default if isinstance(default, Field) else field(default=default)
    defaults = declared.default, others
    return field(default=None, metadata={**declared.metadata, "by_environment": defaults})


def for_environment(options: OptionsT, kinds: Collection[str]) -> OptionsT:
    """Replace None by the default in the fields declared by `by_environment`.

    Args:
      options: a `Config` or `Hyperparams`; what has no fields is returned as it is.
      kinds: what the environment is, such as `images`.
    """
    if not has_options(options):
        return options
    chosen: dict[str, Any] = {}
    for option in option_fields(options):
        if "by_environment" in option.metadata and getattr(options, option.name) is None:
            default, others = option.metadata["by_environment"]
            chosen[option.name] = next((others[kind] for kind in others if kind in kinds), default)
    return replace_options(options, chosen) if chosen else options


def one_of(default: str, *others: str) -> Any:
    """Declare a field that holds one of several names."""
    return field(default=default, metadata={"allowed": (default, *others)})


def only_for(reader: str, default: Any) -> Any:
    """Declare a field that acts in one place only, so that it can be refused where it is ignored.

    Args:
      reader: `networks`, the function that describes the default networks; `optimizer`;
        `continuous`, where actions are a Box of floats; or the name of a field of the `Config` that
        is true or false, such as `prioritized`.
      default: the default, or a field declared by another function of this module.
    """
    declared = default if isinstance(default, Field) else field(default=default)
    return field(default=declared.default, metadata={**declared.metadata, "only_for": reader})


def as_hyperparams(owner: str, values: Any, default: HyperparamsT) -> HyperparamsT:
    """Return hyperparameters that were given whole, or by name in place of some of the defaults.

    Arrays of one number become that number, so that they can be hashed.

    Args:
      owner: the algorithm's name, for the message.
      values: of the class of `default`; a mapping from names to values; or None.
      default: hyperparameters. With anything else, `values` is returned as it is.

    Raises:
      TriglotError: if it is neither, or a name is unknown.
    """
    if values is None or not has_options(default):
        return default if values is None else values  # pyright: ignore[reportReturnType]
    kind = option_type(default)
    names = [field.name for field in option_fields(default)]
    if isinstance(values, Mapping):
        for name in values:
            check_known(f"hyperparameter of {owner}", name, names)
        values = replace_options(default, values)
    if not are_options_of(kind, values):
        raise TriglotError(
            f"{owner}'s hyperparameters must be {kind.__name__} or values by name, such as "
            f"{{{names[0]!r}: {getattr(default, names[0])!r}}}; got {kind_of(values)}."
        )
    numbers = {
        name: value.item()
        for name in names
        if _is_concrete(value := getattr(values, name)) and value.ndim == 0
    }
    return replace_options(values, numbers) if numbers else values


def _is_concrete(value: object) -> TypeGuard[jax.Array | np.ndarray]:
    """Return whether a value is an array that is not traced."""
    return isinstance(value, jax.Array | np.ndarray) and not isinstance(value, Tracer)


def check_hyperparams(owner: str, hyper: AnyHyperparams, config: AnyConfig) -> None:
    """Refuse hyperparameters out of range, as float32 numbers.

    One without a declared range must be finite and not negative. Arrays that are traced, and None
    are accepted as they are. All values of an array and of a `Schedule` must be in range.

    Args:
      owner: the algorithm's name, for the message.
      hyper: its `Hyperparams`.
      config: its `Config`, which limits what is `part_of` a count.

    Raises:
      TriglotError: naming the hyperparameter and what it allows.
    """
    for option in option_fields(hyper):
        value = getattr(hyper, option.name)
        allowed = allowed_by(option, config)
        if value is None or isinstance(value, Tracer):
            continue
        if _is_concrete(value):
            _check_numeric(f"{owner}'s {option.name}", value)
        elif not isinstance(value, Schedule) and not is_number(value):
            raise TriglotError(f"{owner}'s {option.name} must be a number, got {shown(value)}.")
        for number in _extremes(value):
            rounded = to_float32(number)
            lost = _is_lost(number, rounded)
            if isinstance(allowed, Range) and (rounded not in allowed or lost):
                where = f" in {value}" if isinstance(value, Schedule) else ""
                raise TriglotError(
                    f"{owner}'s {option.name} must be {allowed}, got {shown(number)}{where}"
                    + (f", which is {rounded:g} in float32." if lost else ".")
                )
        annealed = option.metadata.get("anneals")
        if annealed and isinstance(getattr(hyper, annealed), Schedule):
            raise TriglotError(
                f"{owner}'s {option.name} anneals {annealed}, which is a schedule, "
                f"{getattr(hyper, annealed)}: set {option.name} to None."
            )
        other = option.metadata.get("below")
        most = _extremes(getattr(hyper, other)) if other else ()
        if other and most and not to_float32(max(_extremes(value))) < to_float32(min(most)):
            raise TriglotError(
                f"{owner}'s {option.name} must be below {other}, got {shown(value)} and "
                f"{shown(getattr(hyper, other))}."
            )


def allowed_by(field: "Field[Any]", config: AnyConfig) -> Range:
    """Return what a field of `Hyperparams` allows under an algorithm's `config`.

    A count that depends on the actions, and is not known yet, limits nothing.
    """
    allowed = field.metadata.get("allowed", NON_NEGATIVE)
    whole = field.metadata.get("part_of")
    most = getattr(config, whole) if whole else None
    return allowed if most is None else replace(allowed, high=float(most))


def _check_numeric(name: str, array: jax.Array | np.ndarray) -> None:
    if array.dtype.kind not in "iuf" and array.dtype.name != "bfloat16":
        raise TriglotError(f"{name} must be numbers, got an array of {array.dtype}.")


def _extremes(value: object) -> tuple[float, ...]:
    """List the numbers between which a hyperparameter's values lie; none of None."""
    if _is_concrete(value):
        array = np.asarray(value, np.float64)
        return (float(array.min()), float(array.max())) if array.size else ()
    if isinstance(value, Schedule):
        return tuple(number for number in value.ends() if is_number(number))
    return (value,) if is_number(value) else ()


def _is_lost(number: float, rounded: float) -> bool:
    """Return whether a finite number became infinite, or another than 0 became 0."""
    return number - number == 0 and (math.isinf(rounded) or (rounded == 0) != (number == 0))


def to_float32(number: float) -> float:
    """Round to the nearest float32 number; too large ones become infinite."""
    try:
        with np.errstate(over="ignore", under="ignore"):
            return float(np.float32(float(number)))
    except OverflowError:  # an int beyond float64
        return math.inf if number > 0 else -math.inf


def check_config(owner: str, config: AnyConfig) -> None:
    """Refuse static configuration out of range; an `int` is a count, from 1 to 2^31 - 1.

    So is each number of a `PerLayer`. A declared range may begin at 0. None is allowed where it is
    the default.

    Args:
      owner: the algorithm's name, for the message.
      config: its `Config`.

    Raises:
      TriglotError: naming the field and what it allows.
    """
    for option in option_fields(config):
        value, allowed = getattr(config, option.name), option.metadata.get("allowed")
        if value is None and "by_environment" in option.metadata:
            continue
        if isinstance(value, Schedule) or is_schedule_text(value):
            raise TriglotError(
                f"{owner}'s {option.name} is fixed when the training compiles, so it cannot be a "
                f"schedule, got {value}: the hyperparameters can."
            )
        if value is None and option.default is None:
            continue
        _check_kind(f"{owner}'s {option.name}", option.type, value)
        if option.type in COUNTS:
            least = int(allowed.low) if isinstance(allowed, Range) else 1
            for number in value if isinstance(value, tuple) else (value,):
                check_count(f"{owner}'s {option.name}", number, least)
        if isinstance(allowed, tuple) and value not in allowed:
            raise unknown(f"{option.name} of {owner}", str(value), allowed)
        if isinstance(allowed, Range) and not (is_number(value) and value in allowed):
            raise TriglotError(f"{owner}'s {option.name} must be {allowed}, got {shown(value)}.")


def _check_kind(name: str, declared: object, value: object) -> None:
    """Refuse another kind of value than a switch or a tuple that a field declares."""
    kinds = declared if isinstance(declared, str) else getattr(declared, "__name__", str(declared))
    members = {part.partition("[")[0].strip() for part in str(kinds).split("|")}
    if members == {"bool"} and not isinstance(value, bool | np.bool_):
        raise TriglotError(f"{name} must be True or False, got {shown(value)}.")
    fits = isinstance(value, tuple) or (value is None and "None" in members)
    if "tuple" in members and members <= {"tuple", "None"} and not fits:
        raise TriglotError(f"{name} must be a tuple, such as (64, 64), got {shown(value)}.")


def check_count(name: str, number: object, minimum: int = 1, maximum: int = MAX_COUNT) -> None:
    """Refuse what is not an integer within `[minimum, maximum]`.

    Args:
      name: how messages call the number.
      number: a Python or NumPy integer.
      minimum: the smallest allowed number.
      maximum: the largest allowed number; int32 counters hold up to 2^31 - 1.

    Raises:
      TriglotError: saying what was given.
    """
    if not is_integer(number):
        hint = "."
        if isinstance(number, float) and number.is_integer() and minimum <= number <= maximum:
            hint = f": give {int(number):_}."
        raise TriglotError(f"{name} must be an integer, got {shown(number)}{hint}")
    if number < minimum:
        raise TriglotError(f"{name} must be at least {minimum}, got {shown(number)}.")
    if number > maximum:
        raise TriglotError(f"{name} must be at most {maximum:,}, got {shown(number)}.")


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a Python or NumPy number."""
    return isinstance(value, Real)


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is a Python or NumPy integer, and not a truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_divides(owner: str, name: str, divisor: int, number: int, of_what: str) -> None:
    """Refuse a count that does not divide another.

    Raises:
      TriglotError: naming both.
    """
    if number % divisor:
        raise TriglotError(f"{owner}'s {name} must divide {of_what} = {number}, got {divisor}.")


def as_float32(hyper: HyperparamsT) -> HyperparamsT:
    """Convert every hyperparameter to a float32 array, as an agent's state holds it; None stays.

    A `Schedule` becomes its first value.
    """

    numbers = first_numbers(hyper)
    return jax.tree.map(lambda number: jnp.asarray(number, jnp.float32), numbers)


def first_numbers(hyper: HyperparamsT) -> HyperparamsT:
    """Replace each `Schedule` by its value at the start; numbers stay as they are."""
    numbers = {name: schedule.first() for name, schedule in schedules_of(hyper).items()}
    return replace_options(hyper, numbers) if numbers else hyper


def with_schedules(hyper: HyperparamsT) -> HyperparamsT:
    """Convert text such as "linear(3e-4, 0)", and functions of the updates, to a `Schedule` each.

    Raises:
      TriglotError: if the text is no schedule, naming the hyperparameter.
    """
    if not has_options(hyper):
        return hyper
    schedules: dict[str, Schedule] = {}
    for name, value in option_values(hyper).items():
        if is_schedule_text(value) or (callable(value) and not isinstance(value, jax.Array)):
            try:
                schedules[name] = schedule(value)
            except TriglotError as error:
                raise TriglotError(f"{name}: {error}") from None
    return replace_options(hyper, schedules) if schedules else hyper


def schedules_of(hyper: AnyHyperparams) -> dict[str, Schedule]:
    """List the hyperparameters that are schedules, by name, with float32 arrays as numbers."""
    if not has_options(hyper):
        return {}
    return {
        name: jax.tree.map(lambda number: jnp.asarray(number, jnp.float32), value)
        for name, value in option_values(hyper).items()
        if isinstance(value, Schedule)
    }


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

    def broadcast(number: Number) -> jax.Array:
        return jnp.broadcast_to(jnp.asarray(number, jnp.float32), (num_seeds,))

    return jax.tree.map(broadcast, hyper)


def learning_ends(rate: Number | Schedule | None, steps_per_update: int) -> float:
    """Return the updates after which a learning rate is 0; infinity if it never is.

    Args:
      rate: a number or a `Schedule`.
      steps_per_update: environment steps of one update.
    """
    if not isinstance(rate, Schedule) or rate.kind == FUNCTION:
        return math.inf
    if not rate.counts or rate.values[-1] != 0:
        return math.inf
    return rate.counts[-1] / (1 if rate.unit == "updates" else steps_per_update)


def fill_schedule_horizon(hyper: HyperparamsT, num_updates: int) -> HyperparamsT:
    """Let schedules without a span last the whole run.

    Args:
      hyper: hyperparameters; without schedules they are returned unchanged.
      num_updates: updates of the whole run.
    """
    if not has_options(hyper):
        return hyper
    values = option_values(hyper)
    filled = {
        name: value.over(num_updates)
        for name, value in values.items()
        if isinstance(value, Schedule)
    }
    return replace_options(hyper, filled) if filled else hyper
