"""Names and options of a library's environments: what is known, and what is valid."""

import difflib
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from inspect import Parameter, signature
from typing import Any, TypeAlias

import jax.numpy as jnp

from ...core.errors import TriglotError, UnknownOption, shown, unknown, user_error_context
from ...core.hyper import MAX_COUNT, MAX_FLOAT, check_count, is_integer, is_number
from ...core.records import Values

Options: TypeAlias = tuple[tuple[str, Hashable], ...]

# Integers with these names count something that must be there: durations, and sizes. Libraries
# allocate arrays of a size, or its square, when they make an environment.
_DURATIONS = re.compile("(.*_)?(length|limit|steps?|steps_in_episode)")
_SIZES = re.compile(
    "(.*_)?(rows|cols|columns|blocks|size|height|width|agents|nodes|cities|items|jobs|machines|ems"
    "|customers|vehicles|searchers|targets|food|joints|actions|bits|urchins|distractor)"
)
MAX_SIZE = 4096
MANY = 200  # names, more than a message lists


def check_name(suite: str, name: str, known: Iterable[str], excluded: Mapping[str, str]) -> None:
    """Reject names that a suite does not have, or that triglot does not support.

    Args:
      suite: the library's name.
      name: of an environment.
      known: the supported names.
      excluded: reasons by unsupported names.

    Raises:
      TriglotError: with the reason, or the nearest names.
    """
    if name in excluded:
        raise TriglotError(f"{suite}:{name} is not supported: {excluded[name]}.")
    names = list(known)
    if name in names:
        return
    if len(names) <= MANY:
        raise unknown(f"{suite} environment", name, names)
    by_letters = {known_name.lower(): known_name for known_name in names}
    near = difflib.get_close_matches(name.lower(), by_letters, n=5, cutoff=0.5)
    hint = (
        f"; did you mean {' or '.join(repr(by_letters[letters]) for letters in near)}?"
        if near
        else "."
    )
    raise TriglotError(
        f"unknown {suite} environment {shown(name)}{hint} `triglot list {suite}` lists all "
        f"{len(names):,}."
    )


def check_options(environment: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Reject options that an environment does not have.

    Raises:
      UnknownOption: naming the first unknown option and the nearest known one.

    >>> check_options("gridworld:8x8", ["observations"], ["observation"])
    Traceback (most recent call last):
    triglot.core.errors.UnknownOption: unknown option 'observations' of gridworld:8x8; ...
    """
    known = list(known)
    for name in options:
        if name not in known:
            raise UnknownOption(environment, name, known)


def check_values(environment: str, options: Values, examples: Values) -> None:
    """Reject values of another type than an example, numbers out of range, and counts below 1.

    Args:
      environment: the environment's name, for the message.
      options: values by option.
      examples: a valid value of each option, such as its default; options without one, or whose
        example is neither a truth value, a number nor a string, may have any finite value.

    Raises:
      TriglotError: naming the option and what it takes.

    >>> check_values("gymnax:CartPole-v1", {"gravity": "low"}, {"gravity": 9.8})
    Traceback (most recent call last):
    triglot.core.errors.TriglotError: gravity of gymnax:CartPole-v1 must be a number, got 'low'.
    """
    for name, value in options.items():
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


def arguments(function: Callable[..., object]) -> dict[str, Any]:
    """List what may be given to a function by name, with an example of each for `check_values`.

    It is the default, 1 for an integer without one, or else `Parameter.empty`.
    """
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    parameters = [
        parameter
        for parameter in signature(function).parameters.values()
        if parameter.kind in named
    ]
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    integers = {
        parameter.name: 1 for parameter in needed if parameter.annotation in (int, jnp.int32)
    }
    return {parameter.name: parameter.default for parameter in parameters} | integers


def kept_arguments(constructor: Callable[..., object], instance: object) -> dict[str, Any]:
    """List the arguments of a constructor that an object keeps, as attributes of their names.

    A name may begin with an underscore.
    """
    attributes = {
        name: vars(instance).get(name, vars(instance).get(f"_{name}"))
        for name in arguments(constructor)
    }
    return {name: value for name, value in attributes.items() if value is not None}


def checked_options(environment: str, options: Values, examples: Values) -> Options:
    """Check options where all that there are have an example, such as a default.

    Returns:
      The options, hashable; see `hashable_options`.

    Raises:
      TriglotError: if an option is unknown, its value is of another type than the example or out of
        range, or cannot be hashed.
    """
    pairs = hashable_options(environment, options)
    check_options(environment, options, examples)
    check_values(environment, options, examples)
    return pairs


@contextmanager
def building(environment: str, options: Values) -> Iterator[None]:
    """Report in one sentence that a library cannot build an environment from these options.

    Args:
      environment: the environment's name, for the message.
      options: values by name, which the message shows if there are any.

    Raises:
      TriglotError: in place of any other exception.

    >>> with building("navix:Empty", {"size": "big"}):
    ...     int("big")
    Traceback (most recent call last):
    triglot.core.errors.TriglotError: navix:Empty cannot be built with {'size': 'big'}: Value...
    """
    description = f" with {dict(options)}" if options else ""
    with user_error_context(f"{environment} cannot be built{description}"):
        yield


def _numbers(value: object) -> list[float]:
    """List the numbers of an option: itself, or those in a tuple."""
    return [
        number for number in (value if isinstance(value, tuple) else (value,)) if is_number(number)
    ]


def hashable_options(environment: str, options: Values) -> Options:
    """Convert options to sorted pairs, so that equal options give equal environments.

    Args:
      environment: the environment's name, for the message.
      options: values by name.

    Returns:
      `(name, value)` pairs, sorted by name.

    Raises:
      TriglotError: if a value cannot be hashed.
    """
    for name, value in options.items():
        try:
            hash(value)
        except TypeError:
            raise TriglotError(
                f"option {name!r} of {environment} must be a number, a string or a tuple, so that "
                f"the environment can be hashed; got a {type(value).__name__}."
            ) from None
    return tuple(sorted(options.items()))


def changed(environment: str, options: Values, *defaults: Any) -> list[Any]:
    """Put options into the dataclasses that have fields of these names.

    Args:
      environment: the environment's name, for messages.
      options: values by option.
      defaults: dataclasses, such as a library's parameters of an environment.

    Returns:
      The dataclasses with the values, in the same order.

    Raises:
      TriglotError: if none has such a field, or its value is of another type.
    """
    examples = {
        f.name: getattr(params, f.name) for params in reversed(defaults) for f in fields(params)
    }
    check_options(environment, options, examples)
    check_values(environment, options, examples)
    return [
        replace(params, **{f.name: options[f.name] for f in fields(params) if f.name in options})
        for params in defaults
    ]
