"""Weights in Keras's own files: the model itself reads and writes them."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...backends.calling import Inputs, example_arguments, parameters
from ...backends.keras.importing import import_keras
from ...backends.keras.lifting import calling_keras
from ...backends.keras.variables import named_variables
from ...core.errors import TriglotError, user_error_context
from ...core.network import Variables

if TYPE_CHECKING:
    import keras


def built_model(model_or_function: object, path: Path, inputs: Inputs, title: str) -> "keras.Model":
    """Make a Keras model with its variables.

    Args:
      model_or_function: a model, or a function without arguments that returns one.
      path: of the file that the model reads or writes, for messages.
      inputs: one observation, for which the model is built; a tuple for several.
      title: the model, in messages.

    Raises:
      MissingExtra: if Keras is not installed.
      TriglotError: if it is no model, or fails on such inputs.
    """
    keras = import_keras()
    if (
        not isinstance(model_or_function, keras.Model)
        and callable(model_or_function)
        and not _needs_arguments(model_or_function)
    ):
        with user_error_context(f"{title} failed when it was called with nothing"):
            model_or_function = model_or_function()
    if not isinstance(model_or_function, keras.Model):
        raise TriglotError(
            f"{path} can only be loaded into a keras.Model, and {title} is a "
            f"{type(model_or_function).__name__}: give the model, or a function without arguments "
            "that returns it."
        )
    model = cast("keras.Model", model_or_function)
    if not model.built:
        with user_error_context(f"{title} failed on the inputs"), calling_keras(keras):
            model(*example_arguments(inputs, None))
    return model


def _needs_arguments(function: Callable[..., object]) -> bool:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    signature = parameters(function).values()
    return any(
        parameter.default is parameter.empty and parameter.kind not in kinds
        for parameter in signature
    )


def load_model(model: "keras.Model", path: Path, title: str) -> None:
    """Read a model's weights from `.weights.h5`.

    Raises:
      TriglotError: if the file holds others.
    """
    with user_error_context(f"{title} cannot read {path}"):
        model.load_weights(path)


def save_model(model: "keras.Model", variables: Variables, path: Path) -> None:
    """Set a model's weights and write them to `.weights.h5`.

    Args:
      model: a Keras model with its variables.
      variables: of the network that `from_keras` makes of it.
      path: the file; an existing one is replaced.
    """
    values = {**variables.params, **variables.state}
    for each in named_variables(import_keras(), model):
        if not each.is_seed:
            each.variable.assign(values[each.name])
    model.save_weights(path)
