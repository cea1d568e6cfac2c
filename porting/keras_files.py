"""Weights that Keras saved: the model itself reads them."""

from pathlib import Path
from typing import Any

from ..backends.calling import Inputs, example_arguments
from ..backends.keras.importing import import_keras
from ..backends.keras.lifting import calling_keras
from ..core.errors import TriglotError, user_error_context


def loaded_model(made: Any, path: Path, inputs: Inputs, shown: str) -> Any:
    """Make a Keras model and read its weights.

    Args:
      made: a model, or a function without arguments that returns one.
      path: `.weights.h5`.
      inputs: one observation, for which the model is built; a tuple for several.
      shown: the model, in messages.

    Raises:
      MissingExtra: if Keras is not installed.
      TriglotError: if it is no model, or one of other sizes.
    """
    keras = import_keras()
    if not isinstance(made, keras.Model) and callable(made):
        with user_error_context(f"{shown} failed when it was called with nothing"):
            made = made()
    if not isinstance(made, keras.Model):
        raise TriglotError(
            f"{path} was saved by a keras.Model, and {shown} is a {type(made).__name__}: give the "
            "model, or a function without arguments that returns it."
        )
    with user_error_context(f"{shown} cannot read {path}"):
        if not made.built:
            given = example_arguments(inputs, None)
            with calling_keras(keras):
                made(*given)
        made.load_weights(path)
    return made
