"""Schedules: hyperparameters that change with the environment steps or updates of a training.

A hyperparameter is a number or a `Schedule`. The training loop keeps the schedules in
`RunnerState.schedules` and writes their values into the agent's state before it acts and learns, so
an agent reads numbers only.
"""

import itertools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ..errors import TriglotError, shown, unknown, user_error_context

UNITS = ("steps", "updates")
RAMPS = ("linear", "cosine", "exponential")  # from a start to an end
TABLES = ("piecewise", "interpolate")  # of values by the count at which each begins
KINDS = (*RAMPS, *TABLES)
FUNCTION = "function"  # of the number of updates, as optax builds; in Python only
FunctionOfUpdates: TypeAlias = Callable[[ArrayLike], Any]
FORMS = {
    **{name: f"{name}(START, END) or {name}(START, END, SPAN)" for name in RAMPS},
    **{name: f"{name}(0: VALUE, COUNT: VALUE, ...)" for name in TABLES},
}
SPAN = "a span is a number of environment steps above 0, such as 100_000, or 500 updates"


@jax.tree_util.register_pytree_node_class
class Schedule:
    """A hyperparameter that changes over a training; `schedule` makes one.

    No dataclass: `asdict` of options must keep it whole, so that files hold its text.

    Attributes:
      kind: one of `KINDS`, or `FUNCTION`.
      values: floats: the start and the end; or those of a table.
      counts: floats: the span, or nothing until `over` fills in the whole run; or where each value
        of a table begins.
      unit: what `counts` counts: environment `steps` of all environments of a seed together, or
        `updates`.
      function: of the number of updates, for `FUNCTION`.
    """

    __slots__ = ("counts", "function", "kind", "unit", "values")

    def __init__(
        self,
        kind: str,
        values: tuple[Any, ...] = (),
        counts: tuple[Any, ...] = (),
        unit: str = "steps",
        function: FunctionOfUpdates | None = None,
    ) -> None:
        self.kind, self.values, self.counts = kind, values, counts
        self.unit, self.function = unit, function

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Split it into its numbers and what is static, for JAX."""
        return (self.values, self.counts), (self.kind, self.unit, self.function)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Any, ...]) -> "Schedule":
        """Put it together again, for JAX."""
        kind, unit, function = static
        return cls(kind, *children, unit=unit, function=function)

    def _parts(self) -> tuple[Any, ...]:
        return self.kind, self.values, self.counts, self.unit, self.function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        """Write it as `schedule` reads it."""
        if self.kind == FUNCTION:
            return f"{getattr(self.function, '__qualname__', self.function)}(updates)"
        values = [_written(value) for value in self.values]
        counts = [_written(count) for count in self.counts]
        unit = "" if self.unit == "steps" else f" {self.unit}"
        if self.kind in RAMPS:
            span = [f"{count}{unit or ' steps'}" for count in counts]
            return f"{self.kind}({', '.join([*values, *span])})"
        pairs = [f"{count}{unit}: {value}" for count, value in zip(counts, values, strict=True)]
        return f"{self.kind}({', '.join(pairs)})"

    def over(self, num_updates: int) -> "Schedule":
        """Fill in the whole run, `num_updates` updates, where no span is given.

        The span is a number in the state, so training for longer does not compile again.
        """
        if self.kind not in RAMPS or self.counts:
            return self
        return Schedule(self.kind, self.values, (float(num_updates),), "updates")

    def at(self, num_updates: ArrayLike, num_steps: ArrayLike) -> jax.Array:
        """Compute the value, float32 `[]`.

        Args:
          num_updates: int32 `[]`, updates so far.
          num_steps: float32 `[]`, environment steps so far.

        linear: start * (1 - x) + end * x of updates, start + x * (end - start) of steps; cosine:
        end + (start - end) * (1 + cos(pi * x)) / 2, as in Loshchilov and Hutter 2016,
        https://arxiv.org/abs/1608.03983, equation 5; exponential: start * (end / start)^x; where
        x = min(count / span, 1).
        """
        if self.function is not None:
            with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
                return jnp.asarray(self.function(num_updates), jnp.float32)
        count = num_steps if self.unit == "steps" else jnp.asarray(num_updates, jnp.float32)
        values = [jnp.asarray(value, jnp.float32) for value in self.values]
        if self.kind in RAMPS:
            start, end = values
            share = jnp.minimum(count / self.counts[0], 1.0) if self.counts else jnp.zeros(())
            return _ramp(self.kind, start, end, share, self.unit)
        starts = jnp.stack([jnp.asarray(count, jnp.float32) for count in self.counts])
        if self.kind == "interpolate":
            return jnp.interp(count, starts, jnp.stack(values))
        return jnp.stack(values)[jnp.sum(starts <= count) - 1]

    def first(self) -> jax.Array:
        """Compute the value before any update, float32 `[]`."""
        if self.kind in ("linear", "exponential"):  # its start exactly; computing it compiles
            return jnp.asarray(self.values[0], jnp.float32)
        return self.at(jnp.zeros((), jnp.int32), jnp.zeros(()))

    def ends(self) -> tuple[float, ...]:
        """List the numbers between which all its values lie; of a function, its first value."""
        if self.kind != FUNCTION:
            return self.values
        with jax.ensure_compile_time_eval(), user_error_context(f"the schedule {self} failed"):
            return (float(self.at(jnp.int32(0), 0.0)),)


def _ramp(kind: str, start: jax.Array, end: jax.Array, share: jax.Array, unit: str) -> jax.Array:
    if kind == "linear" and unit == "updates":
        return start * (1.0 - share) + end * share
    if kind == "linear":
        # Rounded otherwise than that of updates, as epsilon has been since version 0.1: another
        # last bit would change what earlier trainings explored.
        return start + share * (end - start)
    if kind == "cosine":
        return end + (start - end) * 0.5 * (1.0 + jnp.cos(math.pi * share))
    return start * (end / start) ** share


def schedule(value: str | Schedule | FunctionOfUpdates) -> Schedule:
    """Make a schedule from its text, or from an `optax` schedule, a function of the updates.

    `linear(START, END)`, `cosine(START, END)` and `exponential(START, END)` change over the whole
    run, or over a span: `linear(1, 0.05, 100_000)` (environment steps of a seed, `steps`) or
    `linear(3e-4, 0, 500 updates)`; then they stay at the end. `piecewise(0: 3e-4, 100_000: 1e-4)`
    holds each value from its count on, `interpolate` changes linearly between them.

    Raises:
      TriglotError: if the text is none of these.

    >>> schedule("linear(3e-4, 0, 500 updates)")
    linear(0.0003, 0, 500 updates)
    """
    if isinstance(value, Schedule):
        return value
    if callable(value):
        return Schedule(FUNCTION, unit="updates", function=value)
    if not isinstance(value, str):
        raise TriglotError(
            f"a schedule is text such as 'linear(3e-4, 0)' or a function of the updates, got "
            f"{shown(value)}."
        )
    form = re.fullmatch(r"\s*([\w.-]*)\s*\((.*)\)\s*", value)
    if form is None:
        raise TriglotError(
            f"a schedule has the form NAME(...), such as linear(3e-4, 0), got {shown(value)}."
        )
    kind = form[1].lower()
    if kind not in KINDS:
        raise unknown("schedule", form[1], KINDS)
    parts = [part.strip() for part in form[2].split(",")]
    return _of_ramp(kind, parts, value) if kind in RAMPS else _of_table(kind, parts, value)


def is_schedule_text(value: object) -> bool:
    """Return whether a value is text that can only be a schedule, since it has a parenthesis."""
    return isinstance(value, str) and "(" in value


def values_at(
    schedules: Mapping[str, Schedule], num_updates: ArrayLike, num_steps: ArrayLike
) -> dict[str, jax.Array]:
    """Compute the value of each schedule; see `Schedule.at`."""
    return {name: schedule.at(num_updates, num_steps) for name, schedule in schedules.items()}


def _of_ramp(kind: str, parts: list[str], text: str) -> Schedule:
    if len(parts) not in (2, 3):
        count = f"{len(parts)} argument{'s' * (len(parts) != 1)}"
        raise _misfit(kind, f"has {count}, not two or three", text)
    values = tuple(_finite(part, kind, text) for part in parts[:2])
    if kind == "exponential" and min(values) <= 0:
        raise TriglotError(f"exponential starts and ends above 0, got {shown(text)}.")
    if len(parts) == 2:
        return Schedule(kind, values)
    count, unit = _count(parts[2], kind, text)
    if count <= 0:
        raise TriglotError(f"{SPAN}; got {parts[2]} in {shown(text)}.")
    return Schedule(kind, values, (count,), unit or "steps")


def _of_table(kind: str, parts: list[str], text: str) -> Schedule:
    rows = [part.split(":") for part in parts]
    if len(rows) < 2 or any(len(row) != 2 for row in rows):
        raise _misfit(kind, "has other or fewer than two entries", text)
    counted = [_count(count.strip(), kind, text) for count, _ in rows]
    counts = tuple(count for count, _ in counted)
    units = {unit for count, unit in counted if unit or count}  # that of 0 may be left out
    if counts[0] != 0 or any(
        count >= next_count for count, next_count in itertools.pairwise(counts)
    ):
        raise TriglotError(f"the counts of {kind} begin at 0 and increase, got {shown(text)}.")
    if len(units - {None}) > 1 or (None in units and "updates" in units):
        raise TriglotError(f"the counts of {kind} have one unit, got {shown(text)}.")
    values = tuple(_finite(value.strip(), kind, text) for _, value in rows)
    return Schedule(kind, values, counts, "updates" if "updates" in units else "steps")


def _count(part: str, kind: str, text: str) -> tuple[float, str | None]:
    number, _, unit = part.partition(" ")
    unit = unit.strip()
    if unit and unit not in UNITS:
        raise unknown("unit of a schedule", unit, UNITS)
    return _finite(number, kind, text), unit or None


def _finite(part: str, kind: str, text: str) -> float:
    try:
        number = float(part)
    except ValueError:
        raise _misfit(kind, f"has {shown(part)} in place of a number", text) from None
    if not math.isfinite(number):
        raise TriglotError(f"the numbers of a schedule are finite, got {part} in {shown(text)}.")
    return number


def _misfit(kind: str, why: str, text: str) -> TriglotError:
    return TriglotError(f"{shown(text)} {why}: write {FORMS[kind]}.")


def _written(number: Any) -> str:
    if isinstance(number, jax.Array):
        return str(number)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
