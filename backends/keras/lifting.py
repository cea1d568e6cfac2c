"""`from_keras`: from a Keras model to a `Network`."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ...core.errors import TriglotError, user_error_context
from ...core.network import Codec, Leaf, Network, Statistic, Variables
from ...core.types import PyTree, abstract_key
from .. import calling
from ..layers.describe import describe
from ..libraries import Library, find
from ..naming import normalize_separators
from .importing import import_keras
from .layers import STORAGE
from .variables import Named, draw, named_variables, recording, reseed, same_seeds, seed_bits

if TYPE_CHECKING:
    import keras

PRECISE = ("float32", "float64")


def from_keras(
    model: "keras.Layer | Callable[[], keras.Layer]",
    obs_spec: calling.Inputs,
    *,
    name: str | None = None,
    initial_carry: calling.InitialCarry | None = None,
) -> Network:
    """Wrap a Keras 3 model or layer as a `Network`; Keras must run on JAX (`KERAS_BACKEND=jax`).

    Args:
      model: a function without arguments, such as a class, that returns a `keras.Model` or a
        `keras.Layer`; or a model. A model that has weights starts every training from them; one
        that is not built is built for these observations. It is called on a batch `[B, ...]`, with
        `training` set in training. A tuple of inputs becomes several arguments, unless `call` takes
        only one, as that of a functional model.
      obs_spec: one observation; a tuple of specs for several inputs.
      name: shown in errors and reports.
      initial_carry: for a recurrent model `(obs, carry) -> (outputs, carry)`:
        `initial_carry(num_envs)` returns the carry `[N, ...]` at an episode's start.

    Returns:
      The network; `params` are the trainable variables by their place in the model, `state` are all
      others. Each variable's own initializer draws from a key of `init`, whatever seed it was made
      with; seed generators, as of dropout, draw from the key of `apply`, and those with equal seeds
      draw alike. What only Keras's own
      training reads (a compiled loss, metrics) is left out.

    Raises:
      MissingExtra: if Keras is not installed.
      TriglotError: if Keras runs on another backend, the model does not take such observations, an
        initializer cannot be traced, variables are not float32, or a layer asks for a regularizer
        or a constraint, which Keras's own training applies.
    """
    keras = import_keras()
    shown = name or calling.display_name(model)
    what = f"the Keras model {shown!r}"
    example = jax.eval_shape(lambda: calling.example_arguments(obs_spec, initial_carry))
    failed = f"{what} failed on {calling.describe_inputs(obs_spec)}"
    with user_error_context(failed), calling_keras(keras), recording(keras) as start_of:
        module = _layer_of(keras, model, shown)
        names = calling.parameters(module.call)
        takes_one = _takes_one(names)

        def arguments(inputs: PyTree) -> tuple[PyTree, ...]:
            return (inputs,) if takes_one else calling.bind(what, names, inputs, False)[0]

        example_inputs = example[0] if len(example) == 1 else example
        symbolic = jax.tree.map(_symbolic(keras), example_inputs)
        module(*arguments(symbolic), training=False)
        entries = named_variables(keras, module)
        starts = {named.name: start_of(named.variable) for named in entries}
        _check(entries, starts, what)
    seeds = [named for named in entries if named.is_seed]
    trained = [named for named in entries if _is_trained(named)]
    kept = [named for named in entries if not named.is_seed and not _is_trained(named)]
    folded = same_seeds([starts[seed.name] for seed in seeds])
    reseed(keras, module, [start for start in starts.values() if callable(start)])

    def init(key: jax.Array) -> Variables:
        def start(index: int, named: Named) -> jax.Array:
            initial = starts[named.name]
            if not callable(initial):
                return initial
            with user_error_context(f"{what}: the initializer of {named.name!r} cannot be traced"):
                return draw(keras, initial, jax.random.fold_in(key, index), named.variable)

        with calling_keras(keras):
            values = {
                named.name: start(index, named) for index, named in enumerate([*trained, *kept])
            }
        return Variables(
            params={named.name: values[named.name] for named in trained},
            state={named.name: values[named.name] for named in kept},
        )

    def apply(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        values = {**variables.params, **variables.state}
        held = [(named.variable, values[named.name]) for named in (*trained, *kept)]
        network_key = jax.random.key(0) if key is None else key
        drawn = [
            (seed.variable, jax.random.fold_in(network_key, number))
            for seed, number in zip(seeds, folded, strict=True)
        ]
        held += [(variable, seed_bits(seed_key)) for variable, seed_key in drawn]
        # Not by `stateless_call`: it takes `training` only if the outermost `call` does.
        with calling_keras(keras), keras.StatelessScope(held) as scope:
            outputs = module(*arguments(inputs), training=train)
        if initial_carry is not None and isinstance(outputs, list):  # of a functional model
            outputs = tuple(outputs)
        if not train:
            return outputs, variables.state
        return outputs, {named.name: scope.get_current_value(named.variable) for named in kept}

    expected = jax.eval_shape(init, abstract_key())
    by_name = {named.name: named for named in trained}
    paths = jax.tree_util.tree_leaves_with_path(expected.params)
    library = find("keras")
    leaves = [_leaf(library, by_name[path[-1].key]) for path, _ in paths]
    network = calling.lifted(
        shown,
        "keras",
        init,
        apply,
        initial_carry,
        codec=Codec.named(expected.params, leaves, [path[-1].key for path, _ in paths]),
        statistics=tuple(_statistic(named) for named in sorted(kept, key=lambda named: named.name)),
        random_start=any(callable(starts[named.name]) for named in trained),
    )
    with user_error_context(failed):
        jax.eval_shape(network.apply, expected, example_inputs)
    return network


@contextmanager
def calling_keras(keras: ModuleType) -> Iterator[None]:
    """Let Keras promote dtypes and ranks, and raise a model's exceptions as they are.

    It adds the layer and all arguments to their messages otherwise.
    """
    is_filtering = keras.config.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()
    try:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            yield
    finally:
        if is_filtering:
            keras.config.enable_traceback_filtering()


def _layer_of(keras: ModuleType, model: Any, shown: str) -> Any:
    layer = model
    if not isinstance(layer, keras.Layer) and callable(layer):
        with user_error_context(f"{shown} failed when it was called with nothing"):
            layer = layer()
    if not isinstance(layer, keras.Layer):
        raise TriglotError(
            f"from_keras takes a keras.Model, a keras.Layer, or a function without arguments that "
            f"returns one; {shown!r} is or returned a {type(layer).__name__}."
        )
    return layer


def _takes_one(names: Mapping[str, inspect.Parameter]) -> bool:
    """Check for a `call` with one argument for all inputs, besides Keras's own."""
    kinds = [
        parameter.kind for name, parameter in names.items() if name not in ("training", "mask")
    ]
    several = inspect.Parameter.VAR_POSITIONAL in kinds
    return not several and kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) == 1


def _symbolic(keras: ModuleType) -> Callable[[jax.Array], Any]:
    return lambda array: keras.KerasTensor((None, *array.shape[1:]), str(array.dtype))


def _is_trained(named: Named) -> bool:
    is_float = jnp.issubdtype(named.variable.dtype, jnp.inexact)
    return named.variable.trainable and is_float


def _check(entries: list[Named], starts: Mapping[str, object], what: str) -> None:
    if len(starts) != len(entries):
        names = [named.name for named in entries]
        twice = next(name for name in names if names.count(name) > 1)
        raise TriglotError(f"{what} has two variables of the name {twice!r}: rename one layer.")
    for named in filter(_is_trained, entries):
        layer, variable = named.owners[-1][1], named.variable
        if variable.dtype not in PRECISE or layer.compute_dtype not in PRECISE:
            raise TriglotError(
                f"{what}: {named.name!r} is stored as {variable.dtype} and computed with as "
                f"{layer.compute_dtype}, and triglot trains in float32: set the layer's dtype to "
                "'float32' and leave keras.mixed_precision at its default."
            )
        for asked in ("regularizer", "constraint"):
            if getattr(variable, asked) is not None:
                raise TriglotError(
                    f"{what}: {named.name!r} has a {asked}, which only Keras's own training "
                    "applies: remove it, and give triglot an optimizer instead (--optimizer)."
                )


def _statistic(named: Named) -> Statistic | None:
    """Describe a running statistic or a singular vector by its variable and its layer."""
    *place, last = named.words
    owner = type(named.owners[-1][1]).__name__
    if owner == "SpectralNormalization" and last == "vector_u":
        return Statistic(normalize_separators("/".join((*place, "u"))))
    kind = STORAGE.statistics.get(last)
    if owner != "BatchNormalization" or kind is None:
        return None
    return Statistic(normalize_separators("/".join((*place, kind))))


def _leaf(library: Library, named: Named) -> Leaf:
    return describe(library, named.words, named.owners, tuple(named.variable.shape))
