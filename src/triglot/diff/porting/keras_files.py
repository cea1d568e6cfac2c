"""Weights in Keras's own files: the model itself reads and writes them."""

from pathlib import Path
from typing import Any, TypeAlias

from ...backends.calling import Inputs, example_arguments, parameters
from ...backends.keras.importing import import_keras
from ...backends.keras.lifting import calling_keras
from ...backends.keras.variables import named_variables
from ...core.errors import TriglotError, user_error_context
from ...core.network import Variables
from ..loading import required_names

KerasModel: TypeAlias = Any  # a `keras.Model`; Keras is imported where it is needed


def built_model(candidate: Any, path: Path, inputs: Inputs, title: str) -> KerasModel:
    """Make a Keras model with its variables.

    Args:
      candidate: a model, or a function without arguments that returns one.
      path: the file that the model reads or writes, for messages.
      inputs: one observation, for which the model is built; a tuple for several.
      title: the name of the model in messages.

    Raises:
      MissingExtra: if Keras is not installed.
      TriglotError: if it is no model, or fails on such inputs.
    """
    keras = import_keras()
    if (
        not isinstance(candidate, keras.Model)
        and callable(candidate)
        and not required_names(parameters(candidate))
    ):
        with user_error_context(f"{title} failed when it was called with nothing"):
            candidate = candidate()
    if not isinstance(candidate, keras.Model):
        raise TriglotError(
            f"{path} can only be loaded into a keras.Model, and {title} is a "
            f"{type(candidate).__name__}: give the model, or a function without arguments "
            "that returns it."
        )
    model: KerasModel = candidate
    if not model.built:
        with user_error_context(f"{title} failed on the inputs"), calling_keras(keras):
            model(*example_arguments(inputs, None))
    return model


def save_model(model: KerasModel, variables: Variables, path: Path) -> None:
    """Set a model's weights and write them to `.weights.h5`.

    Args:
      model: a Keras model with its variables.
      variables: the variables of the network that `from_keras` makes of the model.
      path: the file; an existing one is replaced.
    """
    values = {**variables.params, **variables.state}
    for each in named_variables(import_keras(), model):
        if not each.is_seed:
            each.variable.assign(values[each.name])
    model.save_weights(path)
