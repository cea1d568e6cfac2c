"""Compare a component with its protocol: attributes, types, signatures, hashes."""

import inspect
from collections.abc import Callable, Mapping

from .report import Failed, describe_error, describe_value

EXPECTED = {bool: "True or False", int: "an integer of at least 1", str: "a string"}


def check_members(component: object, members: Mapping[str, type | str]) -> None:
    """Check attributes and methods.

    Args:
      component: what is checked.
      members: by name: the type of an attribute (int: at least 1), or the arguments with which a
        method is called, such as `state, key, *, explore`.
    """
    for name, expected in members.items():
        try:
            value = getattr(component, name)
        except Exception as error:
            if isinstance(error, AttributeError) and f"attribute {name!r}" in str(error):
                raise Failed(f"{describe_value(component)} has no {name}.") from None
            raise Failed(f"its {name} raised {describe_error(error)}.") from None
        if isinstance(expected, str):
            if not callable(value):
                raise Failed(f"its {name} is {value!r}; expected a function.")
            _check_signature(name, value, expected)
        elif not isinstance(value, expected) or (
            expected is int and (isinstance(value, bool) or value < 1)
        ):
            raise Failed(f"its {name} is {value!r}; expected {EXPECTED[expected]}.")


def _check_signature(name: str, function: Callable[..., object], arguments: str) -> None:
    """Check that a function takes the arguments, and in this order if it has the same names."""
    positional, _, keywords = (part.strip(", ") for part in arguments.partition("*"))
    names = positional.split(", ")
    call = f"{name}({arguments.replace('*, ', '')})"
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*names, **dict.fromkeys(keywords.split())).arguments
    except TypeError as error:
        raise Failed(
            f"it is called as {call}, but is defined as {name}{signature}: {error}."
        ) from None
    bound_names = [argument for argument in bound if argument in names]
    if bound_names != [argument for argument in names if argument in bound_names]:
        raise Failed(
            f"it is called as {call}, but its parameters are ({', '.join(bound)}), in another "
            "order."
        )


def check_hashable(name: str, value: object) -> None:
    """Check that a value has one hash, and is equal to itself."""
    try:
        first, again, equal = hash(value), hash(value), bool(value == value)
    except Exception as error:
        raise Failed(f"hashing or comparing {name} raised {describe_error(error)}.") from None
    if first != again or not equal:
        raise Failed(f"{name} is not equal to itself, or its hash changes.")


def check_pair(function: str, result: object, expected: str) -> None:
    """Check that a function returned a pair.

    Args:
      function: its name.
      result: what it returned.
      expected: the names of both, such as `(state, metrics)`.
    """
    if not isinstance(result, tuple) or len(result) != 2:
        description = describe_value(result)
        raise Failed(f"{function} returned {description}; expected the pair {expected}.")
