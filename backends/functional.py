"""Adapters of libraries whose modules are functions of their parameters: Haiku, Flax Linen.

Parameters exist once a module is called on example inputs, and its layers are known by the calls.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from inspect import Parameter
from typing import Any

import jax

from ..core.errors import user_error_context
from ..core.network import Codec, Network, Statistic, Variables
from ..core.types import PyTree, abstract_key
from . import calling
from .layers.describe import CallLog, Words
from .layers.stacks import Array, describe_all
from .libraries import find
from .naming import words_of


def lift(
    backend: str,
    kind: str,
    name: str,
    names: Mapping[str, Parameter],
    obs_spec: calling.Inputs,
    initial_carry: calling.InitialCarry | None,
    *,
    init: Callable[..., tuple[PyTree, PyTree]],
    apply: Callable[..., tuple[PyTree, PyTree]],
    train_at_init: bool,
    intercept: Callable[[Callable[..., PyTree]], AbstractContextManager[object]],
    place: Callable[[Any], Words | None],
    statistic: Callable[[Words], Statistic | None],
    words: Callable[[Any], Words] = words_of,
    names_inside: Callable[[object], bool] = lambda _: False,
) -> Network:
    """Build the network of a module that is called on a batch `[B, ...]`.

    Args:
      backend: the library's name.
      kind: what the module is called in messages, such as `Linen module`.
      name: the network's name.
      names: the module's parameters, by which it is given the switches of `calling`.
      obs_spec: one observation; a tuple of specs for several inputs.
      initial_carry: of a recurrent module.
      init: `init(key, *inputs, **modes) -> (params, state)`.
      apply: `apply(variables, key, *inputs, **modes) -> (outputs, state)`, of any call; evaluation
        discards the state.
      train_at_init: whether `init` calls the module as in training.
      intercept: the library's context in which every call of a layer goes through a function
        `(method, args, kwargs, context)`.
      place: the path of the layer in such a context; None for a call to leave out.
      statistic: describes an array of the state by its path.
      words: the path of a parameter, from its pytree path.
      names_inside: whether the places of modules that a module calls are relative to its own.

    Returns:
      The network; integer parameters are kept in its state.

    Raises:
      TriglotError: if the module fails on these observations.
    """
    module, calls = f"the {kind} {name!r}", CallLog()

    def init_network(key: jax.Array) -> Variables:
        example = calling.example_arguments(obs_spec, initial_carry)
        args, modes = calling.bind(module, names, example, train_at_init)
        params, state = init(key, *args, **modes)
        return Variables(params=params, state=state)

    def apply_network(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        args, modes = calling.bind(module, names, inputs, train)
        outputs, state = apply(variables, key, *args, **modes)
        return outputs, state if train else variables.state

    def log_call(
        method: Callable[..., PyTree], args: tuple[Any, ...], kwargs: dict[str, Any], context: Any
    ) -> PyTree:
        if (path := place(context)) is None:
            return method(*args, **kwargs)
        inside = names_inside(context.module)
        with calls.calling(path, context.module, names_inside=inside):
            return method(*args, **kwargs)

    failed = f"{module} failed on {calling.describe_inputs(obs_spec)}"
    with user_error_context(failed), intercept(log_call):
        abstract = jax.eval_shape(init_network, abstract_key())

    params, state = (
        jax.tree_util.tree_leaves_with_path(tree) for tree in (abstract.params, abstract.state)
    )
    arrays = [Array(words(path), calls.owners(words(path)), array.shape) for path, array in params]
    leaves = describe_all(find(backend), arrays)
    spellings = ["/".join(words_of(path)) for path, _ in params]
    network = calling.lifted(
        name,
        backend,
        init_network,
        apply_network,
        initial_carry,
        codec=Codec.named(abstract.params, leaves, spellings),
        statistics=tuple(statistic(words_of(path)) for path, _ in state),
    )
    return calling.without_integers(network, leaves, [array for _, array in params])
