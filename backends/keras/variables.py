"""The variables of a Keras model: their names, their layers, and how each is initialized."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import jax
import numpy as np

from ...core.errors import TriglotError
from ..layers.describe import Owners
from ..layers.rules import Module, Words

Start: TypeAlias = Callable[..., jax.Array] | jax.Array  # an initializer, or the values
SEED = "seed_generator_state"  # Keras's name of a seed generator's variable


@dataclass(frozen=True)
class Named:
    """A variable and its place in a model.

    Attributes:
      words: the names of the layers on the way to it, and its own.
      owners: these layers with their places, the model first.
      variable: a `keras.Variable`.
    """

    words: Words
    owners: Owners
    variable: Any

    @property
    def name(self) -> str:
        return "/".join(self.words)

    @property
    def is_seed(self) -> bool:
        return self.variable.name == SEED


def named_variables(keras: ModuleType, model: Module) -> list[Named]:
    """List a model's variables, those of a layer in two places once.

    A layer is named by the attribute that holds it; the layers of a functional or sequential model
    by their own names, and those that Keras named in their order, so that names do not depend on
    the models that were made before.
    """
    named: dict[int, Named] = {}
    visited: set[int] = set()

    def visit(layer: Module, owners: Owners) -> None:
        visited.add(id(layer))
        inner: set[int] = set()
        place = owners[-1][0]
        for word, child in _children(keras, layer):
            inner.update(map(id, child.variables))
            if id(child) not in visited:
                path = (*place, *word)
                visit(child, (*owners, (path, child)))
        attributes = {id(value): name for name, value in vars(layer).items()}
        for variable in layer.variables:
            if id(variable) not in inner and id(variable) not in named:
                name_of_variable = variable.name
                if _is_automatic(name_of_variable, type(variable)) and id(variable) in attributes:
                    name_of_variable = attributes[id(variable)].strip("_")
                named[id(variable)] = Named((*place, name_of_variable), owners, variable)

    visit(model, (((), model),))
    return list(named.values())


def _children(keras: ModuleType, layer: Module) -> list[tuple[Words, Module]]:
    is_functional = isinstance(layer, keras.Model) and hasattr(layer, "operations")
    if is_functional or isinstance(layer, keras.Sequential):
        return _in_order(layer.layers)

    # A layer has one place: a public attribute, a private one, or Keras's own list of all.
    def rank(item: tuple[str, object]) -> tuple[bool, bool]:
        return item[0] == "_layers", item[0].startswith("_")

    attributes = sorted(vars(layer).items(), key=rank)
    return [pair for name, value in attributes for pair in _layers_in(keras, value, (name,))]


def _layers_in(keras: ModuleType, value: object, words: Words) -> Iterator[tuple[Words, Module]]:
    if isinstance(value, keras.Layer):
        yield tuple(word.strip("_") for word in words), value
    elif isinstance(value, Mapping):
        for name, child in value.items():
            yield from _layers_in(keras, child, (*words, str(name)))
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value):
            yield from _layers_in(keras, child, (*words, str(index)))


def _in_order(layers: Sequence[Module]) -> list[tuple[Words, Module]]:
    counts: dict[str, int] = {}

    def name(layer: Module) -> str:
        if not _is_automatic(layer.name, type(layer)):
            return layer.name
        base = layer.name.rstrip("0123456789").rstrip("_")
        counts[base] = counts.get(base, -1) + 1
        return base if counts[base] == 0 else f"{base}_{counts[base]}"

    return [((name(layer),), layer) for layer in layers]


def _is_automatic(name: str, kind: type) -> bool:
    """Check for a name that Keras gave: that of the class, and a number."""
    letters = name.rstrip("0123456789").replace("_", "")
    classes = [base.__name__.lower() for base in kind.__mro__]
    return letters.rstrip("0123456789") in [
        c.replace("_", "").rstrip("0123456789") for c in classes
    ]


@functools.cache
def _generator(keras: ModuleType) -> Any:
    """Return the source of random numbers of every initializer; its state follows from a key."""
    return keras.random.SeedGenerator(0)


def seed_bits(key: jax.Array) -> jax.Array:
    """Draw the state of a seed generator, uint32 `[2]`."""
    return jax.random.bits(key, (2,), "uint32")


def same_seeds(starts: Sequence[Start]) -> list[int]:
    """Number seed generators, those in an equal state by the first of them: they draw alike.

    Args:
      starts: of their variables, as `recording` gives them.
    """
    states = [
        np.asarray(start((2,), dtype="uint32") if callable(start) else start).tobytes()
        for start in starts
    ]
    return [states.index(state) for state in states]


@contextmanager
def recording(keras: ModuleType) -> Iterator[Callable[[Any], Start]]:
    """Make variables without drawing their values.

    Yields:
      A function to call before the end: it gives a variable's initializer, or its array if it has
      one, such as pretrained weights. A new variable holds zeros afterwards.

    Raises:
      TriglotError: if a variable is made from an array.
    """
    known: dict[int, Any] = {}
    with _initializers_required(), keras.StatelessScope() as scope:

        def start(variable: Any) -> Any:
            if id(variable) in known:
                return known[id(variable)]
            initializer, value = variable._initializer, scope.get_current_value(variable)
            if initializer is None:
                value = variable.value
            else:
                # Not `jnp.zeros`, which is one small program for each shape.
                variable._initializer = lambda shape, dtype: jax.device_put(np.zeros(shape, dtype))
            return known.setdefault(id(variable), initializer if value is None else value)

        yield start


@contextmanager
def _initializers_required() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "create a variable while in a stateless scope" not in " ".join(str(error).split()):
            raise
        raise TriglotError(
            "a Keras variable is made from an array, which would be the same for every seed: use "
            "self.add_weight(shape=..., initializer=...), or give a model that is already built."
        ) from None


def reseed(keras: ModuleType, model: Module, initializers: Sequence[Any]) -> None:
    """Let a model's initializers draw from keys, in place of the seeds that they were made with.

    Such a seed is fixed, so an initializer would draw the same values for every key.
    """
    held = [value for layer in layers_of(keras, model) for value in vars(layer).values()]
    for initializer in (*initializers, *held):
        if isinstance(initializer, keras.Initializer) and hasattr(initializer, "seed"):
            initializer.seed = _generator(keras)


def layers_of(keras: ModuleType, layer: Module) -> list[Module]:
    """List a layer and those in it."""
    layers = {id(layer): layer}
    waiting = [layer]
    while waiting:
        for _, child in _children(keras, waiting.pop()):
            if id(child) not in layers:
                layers[id(child)] = child
                waiting.append(child)
    return list(layers.values())


def draw(
    keras: ModuleType, initializer: Callable[..., jax.Array], key: jax.Array, variable: Any
) -> jax.Array:
    """Compute the initial value of a variable.

    Raises:
      TriglotError: if it has another shape than the variable.
    """
    with keras.StatelessScope([(_generator(keras).state, seed_bits(key))]):
        value = initializer(variable.shape, dtype=variable.dtype)
    value = keras.ops.convert_to_tensor(value, dtype=variable.dtype)
    if value.shape != tuple(variable.shape):
        raise TriglotError(
            f"the initializer of {variable.path} returned shape {value.shape}; the variable's is "
            f"{tuple(variable.shape)}."
        )
    return value
