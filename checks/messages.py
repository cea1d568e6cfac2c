"""Other people's exceptions and values, in a few words."""

from typing import Any

import jax

from ..core.errors import describe


class NotTraceable(Exception):
    """The environment's code cannot be compiled; the message says what to write instead."""


# The first that fits is told: later ones are the base classes of earlier ones.
_TRACING = (
    (
        jax.errors.TracerBoolConversionError,
        "a Python `if`, `while`, `and`, `or`, `not` or `assert` met an array whose value is not "
        "known while compiling: write jnp.where, jax.lax.cond, jnp.logical_and ...",
    ),
    (
        jax.errors.TracerArrayConversionError,
        "a NumPy function, or an assignment into a NumPy array, met an array whose value is not "
        "known while compiling: use jax.numpy, and array.at[index].set(value)",
    ),
    (
        jax.errors.TracerIntegerConversionError,
        "an array whose value is not known while compiling was used as a Python index or count: "
        "make the list or dictionary a jax.numpy array, or use jax.lax.switch or fori_loop",
    ),
    (
        jax.errors.ConcretizationTypeError,
        "float(), int(), .item() or a shape met an array whose value is not known while compiling: "
        "keep it an array, and shapes fixed",
    ),
    (
        jax.errors.UnexpectedTracerError,
        "an array was kept outside the state (on `self`, in a global or a list) by one call and "
        "used in another: return it in the state",
    ),
)


def told(error: Exception) -> str:
    """Put the environment's own exception in one line, errors of tracing in words of ours."""
    for kind, reason in _TRACING:
        if isinstance(error, kind):
            return describe(NotTraceable(reason).with_traceback(error.__traceback__))
    lines = [line for line in str(error).splitlines() if line.strip()]
    if "Traceback (most recent call last)" in str(error):  # raised within a callback
        return f"{type(error).__name__}: {lines[-1].strip()}"
    return describe(error)


def described(value: Any) -> str:
    """Say in a few words what was given."""
    kind = type(value).__name__
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list | tuple):
        inside = ", ".join(type(child).__name__ for child in value[:6])
        return f"a {kind} of {len(value)} ({inside})" if value else f"an empty {kind}"
    if isinstance(value, dict):
        return f"a dictionary with {list(value)}"
    if value is None:
        return "None"
    if isinstance(value, bool | int | float | str):
        return f"the Python {kind} {value!r}"[:80]
    return f"a {kind}"
