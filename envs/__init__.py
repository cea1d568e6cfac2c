"""The environment suites, one module each: `make(name, **options)` and `names()`.

On the command line and in reports an environment's name is `suite:name`, such as
`gymnax:CartPole-v1`; `make` takes the part after the colon.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import TriglotError, shown, unknown
from ..core.hyper import MAX_COUNT, MAX_FLOAT, check_count, is_integer, is_number

# Integers with these names count something that must be there: durations, and sizes. Libraries
# allocate arrays of a size, or its square, when they make an environment.
_DURATIONS = re.compile("(.*_)?(length|limit|steps?|steps_in_episode)")
_SIZES = re.compile(
    "(.*_)?(rows|cols|columns|blocks|size|height|width|agents|nodes|cities|items|jobs|machines|ems"
    "|customers|vehicles|searchers|targets|food|joints|actions|bits|urchins|distractor)"
)
MAX_SIZE = 4096


def check_options(environment: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Reject options that an environment does not have.

    Raises:
      TriglotError: naming the first unknown option and the nearest known one.

    >>> check_options("gridworld:8x8", ["observations"], ["observation"])
    Traceback (most recent call last):
    triglot.core.errors.TriglotError: unknown option of gridworld:8x8 'observations'; ...
    """
    known = list(known)
    for name in given:
        if not known:
            raise TriglotError(f"{environment} takes no options, got {name!r}.")
        if name not in known:
            raise unknown(f"option of {environment}", name, known)


def check_values(environment: str, given: Mapping[str, Any], examples: Mapping[str, Any]) -> None:
    """Reject values of another type than an example, numbers out of range, and counts below 1.

    Args:
      environment: the environment's name, for the message.
      given: values by option.
      examples: a valid value of each option, such as its default; options without one, or whose
        example is neither a truth value, a number nor a string, may have any finite value.

    Raises:
      TriglotError: naming the option and what it takes.

    >>> check_values("gymnax:CartPole-v1", {"gravity": "low"}, {"gravity": 9.8})
    Traceback (most recent call last):
    triglot.core.errors.TriglotError: gravity of gymnax:CartPole-v1 must be a number, got 'low'.
    """
    for name, value in given.items():
        example, what = examples.get(name), f"{name} of {environment}"
        if isinstance(example, bool | str):
            if not isinstance(value, type(example)):
                wanted = "True or False" if isinstance(example, bool) else "a name"
                raise TriglotError(f"{what} must be {wanted}, got {shown(value)}.")
        elif is_integer(example):
            is_size, low = _SIZES.fullmatch(name), 0 if example >= 0 else -MAX_COUNT
            is_count = example > 0 and (is_size or _DURATIONS.fullmatch(name))
            check_count(what, value, 1 if is_count else low, MAX_SIZE if is_size else MAX_COUNT)
        elif is_number(example) and (isinstance(value, bool) or not is_number(value)):
            raise TriglotError(f"{what} must be a number, got {shown(value)}.")
        limit = (
            MAX_FLOAT if all(abs(number) < math.inf for number in _numbers(example)) else math.inf
        )
        if not all(abs(number) <= limit for number in _numbers(value)):
            raise TriglotError(f"{what} must be finite, got {shown(value)}.")


def _numbers(value: Any) -> list[float]:
    """List the numbers of an option: itself, or those in a tuple."""
    return [one for one in (value if isinstance(value, tuple) else (value,)) if is_number(one)]
