"""Short descriptions of exceptions and values."""

from typing import Any

import jax
import numpy as np

from ..core.errors import describe


class NotTraceable(Exception):
    """JAX cannot trace the component's code; the message says what to write instead."""


# The first match is used: later entries are base classes of earlier ones.
_TRACING_ERRORS = {
    jax.errors.TracerBoolConversionError: (
        "a Python `if`, `while`, `and`, `or`, `not` or `assert` uses the value of a traced array: "
        "write jnp.where, jax.lax.cond, jnp.logical_and ..."
    ),
    jax.errors.TracerArrayConversionError: (
        "a NumPy function, or an assignment into a NumPy array, uses a traced array: use "
        "jax.numpy, and array.at[index].set(value)"
    ),
    jax.errors.TracerIntegerConversionError: (
        "a traced array is used as a Python index or count: make the list or dictionary a "
        "jax.numpy array, or use jax.lax.switch or fori_loop"
    ),
    jax.errors.ConcretizationTypeError: (
        "float(), int(), .item() or a shape uses the value of a traced array: keep it an array, "
        "and keep shapes fixed"
    ),
    jax.errors.UnexpectedTracerError: (
        "an array was stored outside the state (on `self`, in a global or a list) by one call and "
        "used in another: return it in the state"
    ),
}


def describe_error(error: Exception) -> str:
    """Describe an exception of the component in one line; tracing errors get advice."""
    for kind, reason in _TRACING_ERRORS.items():
        if isinstance(error, kind):
            return describe(NotTraceable(reason).with_traceback(error.__traceback__))
    lines = [line for line in str(error).splitlines() if line.strip()]
    if "Traceback (most recent call last)" in str(error):  # raised within a callback
        return f"{type(error).__name__}: {lines[-1].strip()}"
    return describe(error)


def describe_value(value: Any) -> str:
    """Describe a value: dtype and shape of an array, otherwise its type and contents."""
    kind = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        library = "NumPy " if isinstance(value, np.ndarray | np.generic) else ""
        return f"{library}{value.dtype}{list(value.shape)}"
    if isinstance(value, list | tuple):
        inside = ", ".join(type(child).__name__ for child in value[:6])
        return f"a {kind} of {len(value)} ({inside})" if value else f"an empty {kind}"
    if isinstance(value, dict):
        return f"a dictionary with keys {list(value)}" if value else "an empty dictionary"
    if isinstance(value, bool | int | float | str):
        return f"the Python {kind} {value!r}"[:80]
    return f"a {kind}"
