"""Weights in Keras's own files: the model itself reads and writes them."""

import inspect
from pathlib import Path
from typing import Any

from ...backends.calling import Inputs, example_arguments, parameters
from ...backends.keras.importing import import_keras
from ...backends.keras.lifting import calling_keras
from ...backends.keras.variables import named_variables
from ...core.errors import TriglotError, user_error_context
from ...core.network import Variables


def built_model(made: Any, path: Path, inputs: Inputs, shown: str) -> Any:
    """Make a Keras model with its variables.

    Args:
      made: a model, or a function without arguments that returns one.
      path: of the file that the model reads or writes, for messages.
      inputs: one observation, for which the model is built; a tuple for several.
      shown: the model, in messages.

    Raises:
      MissingExtra: if Keras is not installed.
      TriglotError: if it is no model, or fails on such inputs.
    """
    keras = import_keras()
    if not isinstance(made, keras.Model) and callable(made) and not _needs_arguments(made):
        with user_error_context(f"{shown} failed when it was called with nothing"):
            made = made()
    if not isinstance(made, keras.Model):
        raise TriglotError(
            f"{path} can only be loaded into a keras.Model, and {shown} is a "
            f"{type(made).__name__}: give the model, or a function without arguments that returns "
            "it."
        )
    model: Any = made
    if not model.built:
        with user_error_context(f"{shown} failed on the inputs"), calling_keras(keras):
            model(*example_arguments(inputs, None))
    return model


def _needs_arguments(function: Any) -> bool:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = parameters(function).values()
    return any(one.default is one.empty and one.kind not in kinds for one in found)


def load_model(model: Any, path: Path, shown: str) -> None:
    """Read a model's weights from `.weights.h5`.

    Raises:
      TriglotError: if the file holds others.
    """
    with user_error_context(f"{shown} cannot read {path}"):
        model.load_weights(path)


def save_model(model: Any, variables: Variables, path: Path) -> None:
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
