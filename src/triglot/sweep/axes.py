"""Parse `--over NAME=VALUES`: what a sweep varies."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..core.agent import Algorithm
from ..core.errors import TriglotError, shown, unknown
from ..core.rl.schedules import schedule
from ..runs.registry.arg import other_name
from ..runs.registry.overrides import field_types, item_type, parse_words
from ..shared.pages.numbers import format_value

# Swept by name, beside the fields of an algorithm; each value is a program of its own.
COMPONENTS = ("algorithm", "env", "backend", "arithmetic", "optimizer")
FORM = "NAME=VALUE,VALUE or NAME=LOW..HIGH or NAME=log:LOW..HIGH"
DIGITS = 4  # of a number drawn from a range, so that it can be read and typed


@dataclass(frozen=True)
class Choices:
    """A name, and the values that it takes one after the other."""

    name: str
    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw one of the values."""
        return self.values[int(rng.integers(len(self.values)))]


@dataclass(frozen=True)
class Range:
    """A name, and the bounds between which its values are drawn, uniformly or log-uniformly."""

    name: str
    low: float
    high: float
    log: bool = False
    integer: bool = False

    def draw(self, rng: np.random.Generator) -> int | float:
        """Draw a number, rounded to four digits or to an integer."""
        if self.log:
            number = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        elif self.integer:
            return int(rng.integers(int(self.low), int(self.high) + 1))
        else:
            number = rng.uniform(self.low, self.high)
        return self.rounded(number)

    def rounded(self, number: float) -> int | float:
        """Round a number to four digits or to an integer, within the bounds."""
        number = round(number) if self.integer else float(f"{number:.{DIGITS}g}")
        low, high = (int(b) if self.integer else b for b in (self.low, self.high))
        return min(max(number, low), high)


Axis: TypeAlias = Choices | Range


def parse_axes(over: Sequence[str], algorithms: Mapping[str, Algorithm]) -> list[Axis]:
    """Parse all of `--over`.

    Args:
      over: each `NAME=VALUES`.
      algorithms: classes by name; what is swept must be an option of each.

    Raises:
      TriglotError: if a name is unknown, given twice or without values, a value does not fit the
        option, or a range is empty, reversed or, on a log scale, not above 0.
    """
    axes: list[Axis] = []
    for text in over:
        name, values = split_name(text)
        if name in (axis.name for axis in axes):
            raise TriglotError(f"--over {name} is given twice: give all its values at once.")
        axes.append(_axis(name, values, algorithms))
    return axes


def split_name(text: str) -> tuple[str, str]:
    """Split `NAME=VALUES` into both.

    Raises:
      TriglotError: if the form is another.
    """
    name, equals, values = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    if not equals or not name:
        raise TriglotError(f"--over {shown(text)} must have the form {FORM}.")
    if not values.strip():
        raise TriglotError(f"--over {name} has no values: write {name}=VALUE,VALUE.")
    return name, values.strip()


def split_values(name: str, values: str) -> list[str]:
    """Split values at commas; the options of an environment stay with it.

    >>> split_values("env", "jumanji:Maze-v0,num_rows=5,num_cols=5,gymnax:CartPole-v1")
    ['jumanji:Maze-v0,num_rows=5,num_cols=5', 'gymnax:CartPole-v1']
    """
    pattern = r",(?![A-Za-z_]\w*=)" if name == "env" else r",(?![^()]*\))"  # not of a schedule
    return [value.strip() for value in re.split(pattern, values)]


def _axis(name: str, values: str, algorithms: Mapping[str, Algorithm]) -> Axis:
    members: set[Any] = {str}
    if name not in COMPONENTS:
        types = [_types(owner, algorithm, name) for owner, algorithm in algorithms.items()]
        members = {member for members in types for member in members}
    is_number = not members.isdisjoint((int, float))
    if is_number and "(" not in values and (".." in values or values.startswith("log:")):
        return _range(name, values, integer=float not in members)
    texts = split_values(name, values)
    if "" in texts:
        raise TriglotError(f"--over {name} has an empty value: write {name}=VALUE,VALUE.")
    return _choices(name, [_value(name, text, members) for text in texts])


def _types(owner: str, algorithm: Algorithm, name: str) -> tuple[Any, ...]:
    """List the types that a field of an algorithm's `Config` or `Hyperparams` may have."""
    known = {
        field.name: types
        for part in (algorithm.Config, algorithm.Hyperparams)
        for field, types in field_types(part).items()
    }
    if name not in known:
        raise unknown(f"option of {owner} in --over", name, [*known, *COMPONENTS], other_name(name))
    return known[name]


def _choices(name: str, values: list[Any]) -> Choices:
    for value in values:
        if values.count(value) > 1:
            lists = "; sizes of several layers are joined by slashes, 64/64"
            hint = lists if isinstance(value, tuple) else ""
            raise TriglotError(
                f"--over {name} has {format_value(value)} twice: once is enough{hint}."
            )
    return Choices(name, tuple(values))


def _range(name: str, text: str, *, integer: bool) -> Range:
    log = text.startswith("log:")
    low_text, dots, high_text = text.removeprefix("log:").partition("..")
    if not dots or "," in text or ".." in high_text:
        raise TriglotError(
            f"--over {name} mixes a range with other values, {shown(text)}: write one range, "
            f"{name}={'log:' if log else ''}LOW..HIGH, or a list."
        )
    kind = int if integer else float
    low, high = (_value(name, part, {kind}) for part in (low_text, high_text))
    if not -math.inf < low < high < math.inf or (log and low <= 0):
        raise TriglotError(
            f"--over {name}: the range {text} must have two finite bounds, the lower one first"
            f"{' and above 0, since it is logarithmic' if log else ''}; for a single value write "
            f"{name}={low_text}."
        )
    return Range(name, low, high, log, integer)


def _value(name: str, text: str, members: set[Any]) -> Any:
    """Parse one value as one of several types."""
    words = [text] if item_type(members) is None else text.split("/")
    try:
        value = parse_words(members, words)
        if value == text and float in members and "(" in text:
            return str(schedule(text))
    except TriglotError as error:
        raise TriglotError(f"--over {name}: {error}") from None
    if value != value:
        raise TriglotError(f"--over {name}: expected a number, got {shown(text)}.")
    return value
