"""From a loss, a target or an update step to a `Network` whose examples are whole batches."""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ...backends import calling, libraries
from ...backends.calling import parameters
from ...backends.jax.lifting import from_functions
from ...backends.jax.signatures import INPUTS, KEYS, PARAMS, Signature, is_functions
from ...backends.layers.describe import describe
from ...core.errors import TriglotError, user_error_context
from ...core.network import Codec, Network, Variables
from ...core.specs import Box
from ...core.types import PyTree
from .arguments import Arguments

Sources: TypeAlias = tuple[str, ...]
WHOLE = ""  # the source of a parameter that gets all arguments, as one record
EMPTY = inspect.Parameter.empty
ROWS = 32  # rows of a batch, where only the spec of one row is known


class Batch(dict[str, Any]):
    """All arguments by name, arrays of JAX or tensors, as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the batch has no {name!r}: it has {', '.join(self)}") from None


def lift_function(function: object, arguments: Arguments, name: str | None = None) -> Network:
    """Lift a function of a batch to a network whose examples are whole batches.

    Every result then has one number for each of several batches, so that two losses are not equal,
    or apart by a factor, by chance.

    Args:
      function: a function of arrays, in JAX or PyTorch; a pair `(init, function)`, whose function
        takes `params` first; a PyTorch module, or a pair of a module and a function that takes it
        first; a module of another library, or a `Network`.
      arguments: the arguments that it gets: by the names of its parameters, else in order; one
        parameter of another name gets all of them, as a dictionary with attributes.
      name: the function's name in errors and reports.

    Raises:
      TriglotError: if it is none of these, or its parameters do not fit the arguments.
    """
    called = function[1] if type(function) is tuple and len(function) == 2 else function
    title = name or calling.display_name(called)
    network, sources = _lift_unbatched(function, arguments, title)
    learned_names = [n for n in _argument_names(sources, arguments) if n in arguments.learned]
    if learned_names and network.codec is not None and network.codec.leaves:
        raise TriglotError(
            f"{title} has parameters already, so no input can be learned: give {learned_names[0]} "
            "another kind than `param`."
        )
    if learned_names:
        network = _with_learned(network, learned_names, arguments)
    return over_batches(network, sources, arguments)


def over_batches(network: Network, sources: Sources, arguments: Arguments) -> Network:
    """Map a network's call over whole batches.

    Args:
      network: a network that gets the arguments as a tuple of inputs.
      sources: the name of the argument of each input, `WHOLE` for all of them.
      arguments: all arguments.
    """

    def apply(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        learned = variables.params if arguments.learned else {}

        def call(batch: Mapping[str, jax.Array]) -> tuple[PyTree, PyTree]:
            learned_inputs = {n: learned[n] for n in arguments.learned if n in learned}
            values_by_name = {**batch, **learned_inputs}
            arguments_in_order = tuple(
                Batch(values_by_name) if each == WHOLE else values_by_name[each] for each in sources
            )
            inner_variables = (
                Variables(params={}, state=variables.state) if learned_inputs else variables
            )
            outputs, state = network.apply(
                inner_variables, arguments_in_order, key=key, train=train
            )
            return jax.tree.map(jnp.asarray, outputs), state

        outputs, states = jax.vmap(call)(dict(inputs))
        return outputs, jax.tree.map(lambda state: state[0], states)

    return replace(network, apply=apply)


def with_first_output(network: Network) -> Network:
    """Leave out all results but the first, such as metrics that a loss returns beside it."""

    def apply(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        outputs, state = network.apply(variables, inputs, key=key, train=train)
        return {"loss": jax.tree.leaves(outputs)[0]}, state

    return replace(network, apply=apply)


def names_of(function: object) -> list[str]:
    """Name the inputs of a pair `(init, apply)`; empty if they are not known."""
    if not is_functions(function):
        return []
    _, apply = _init_and_apply(function)
    signature = Signature.of(apply, "apply", first="params", expected="apply(params, inputs)")
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, role in signature.roles.items()
        if role == INPUTS and signature.names[name].kind not in kinds
    ]


def _init_and_apply(functions: Any) -> tuple[Callable[..., PyTree], Callable[..., PyTree]]:
    """Return both functions of a pair, or of an object that has them as methods."""
    return functions if type(functions) is tuple else (functions.init, functions.apply)


def _argument_names(sources: Sources, arguments: Arguments) -> list[str]:
    return list(arguments.names) if WHOLE in sources else list(sources)


def _lift_unbatched(function: object, arguments: Arguments, title: str) -> tuple[Network, Sources]:
    """Lift what a user has, with the argument of each of its inputs."""
    if isinstance(function, Network):
        return function, arguments.names
    if type(function) is tuple and len(function) == 2 and _is_torch_module(function[0]):
        return _torch_base(function[1], arguments, title, function[0])
    if is_functions(function):
        init, apply = _init_and_apply(function)
        apply = _with_constants(apply, arguments)
        signature = Signature.of(apply, title, first="params", expected="function(params, inputs)")
        inputs = {n: signature.names[n] for n, role in signature.roles.items() if role == INPUTS}
        return from_functions(init, apply, name=title), _sources(inputs, arguments, title)
    if _is_torch_module(function):
        return _torch_base(None, arguments, title, function)
    library = libraries.find_by_class(function if isinstance(function, type) else type(function))
    if library is not None:
        from ..loading import load_network

        rows = tuple(Box(each.spec.shape[1:], each.spec.dtype) for each in arguments.items)
        inputs = rows[0] if len(rows) == 1 else rows
        return load_network(function, inputs, name=title), arguments.names
    if not callable(function):
        raise TriglotError(
            f"{title} is a {type(function).__name__}; expected a function of arrays, a pair "
            "(init, function) or a module."
        )
    if _is_torch_function(function):
        return _torch_base(function, arguments, title)
    return _jax_base(function, arguments, title)


def _with_constants(function: Callable[..., PyTree], arguments: Arguments) -> Callable[..., PyTree]:
    """Bind the constants that a function takes."""
    constants = {n: v for n, v in arguments.constants.items() if n in parameters(function)}
    return functools.partial(function, **constants) if constants else function


def _jax_base(
    function: Callable[..., PyTree], arguments: Arguments, title: str
) -> tuple[Network, Sources]:
    function = _with_constants(function, arguments)
    names = parameters(function)
    keys = [name for name in names if name in KEYS and name not in arguments.names]
    inputs = {name: each for name, each in names.items() if name not in keys}
    sources = _sources(inputs, arguments, title)
    keyword_names = [
        name for name, each in inputs.items() if each.kind == each.POSITIONAL_OR_KEYWORD
    ]

    def apply(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        del train
        key_arguments = dict.fromkeys(keys, jax.random.key(0) if key is None else key)
        if len(keyword_names) < len(inputs):  # some are positional only, as those of `*args`
            return function(*inputs, **key_arguments), variables.state
        keywords = dict(zip(keyword_names, inputs, strict=False))
        return function(**keywords, **key_arguments), variables.state

    def init(key: jax.Array) -> Variables:
        del key
        return Variables(params={}, state=())

    codec = Codec.named({}, [])
    network = calling.lifted(title, "jax", init, apply, None, codec=codec, random_start=False)
    return network, sources


def _sources(inputs: Mapping[str, inspect.Parameter], arguments: Arguments, title: str) -> Sources:
    """Choose the argument of each parameter: by name, else in order, else all of them as one.

    Raises:
      TriglotError: if they do not fit.
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    bound = {name for name, each in inputs.items() if name in arguments.constants}
    names = [n for n, each in inputs.items() if each.kind in kinds and n not in bound]
    if any(each.kind == each.VAR_POSITIONAL for each in inputs.values()) and not names:
        return arguments.names
    required = [name for name in names if inputs[name].default is EMPTY]
    matched = [name for name in names if name in arguments.names]
    remaining = [name for name in arguments.names if name not in matched]
    unmatched = [name for name in required if name not in matched]
    if not matched and len(required) == 1 and len(arguments.names) > 1:
        return (WHOLE,)
    if unmatched and len(unmatched) != len(remaining):
        if unmatched[0] in PARAMS:
            raise TriglotError(
                f"{title} takes {unmatched[0]!r}: give a pair (init, {title.rpartition(':')[2]}), "
                "where init(key) returns the parameters, or name an input of the kind `param`."
            )
        raise TriglotError(
            f"{title} takes ({', '.join(names)}), and the inputs are {arguments}: name an input "
            f"for {', '.join(unmatched)}, such as {unmatched[0]}=float32:32."
        )
    by_order = dict(zip(unmatched, remaining, strict=False))
    sources: list[str] = []
    for name in names:  # in order, up to the first parameter that keeps its default
        source = name if name in matched else by_order.get(name)
        if source is None:
            break
        sources.append(source)
    if unreachable := [name for name in matched if name not in sources]:
        raise TriglotError(
            f"{title} has defaults before {unreachable[0]!r}: name inputs for all parameters "
            "before it."
        )
    return tuple(sources)


def _with_learned(network: Network, names: Sequence[str], arguments: Arguments) -> Network:
    """Make inputs of a function without parameters its parameters."""
    library = libraries.find("jax")

    def init(key: jax.Array) -> Variables:
        keys = jax.random.split(key, len(names))
        params = {n: arguments.learned[n].draw(k) for n, k in zip(names, keys, strict=True)}
        return Variables(params=params, state=network.init(key).state)

    shapes = jax.eval_shape(init, jax.random.key(0)).params
    leaves = [describe(library, (name,), (), shapes[name].shape) for name in sorted(names)]
    codec = Codec.named(shapes, leaves, sorted(names))
    return replace(network, init=init, codec=codec, random_start=True)


def _is_torch_module(model: object) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return isinstance(model, torch.nn.Module) or (
        isinstance(model, type) and issubclass(model, torch.nn.Module)
    )


def _is_torch_function(function: Callable[..., PyTree]) -> bool:
    """Return whether a function's module imports PyTorch, and the function reads it if it has JAX.

    A module may import both.
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    target = function if inspect.isfunction(function) else type(function).__call__
    globals_of_function = getattr(target, "__globals__", {})
    roots = {name: _root(value) for name, value in globals_of_function.items()}
    if "torch" not in roots.values():
        return False
    if not {"jax", "rlax", "optax", "distrax"} & {*roots.values()}:
        return True
    code = getattr(target, "__code__", None)
    modules_read = {roots.get(name) for name in getattr(code, "co_names", ())}
    return "torch" in modules_read and "jax" not in modules_read


def _root(value: object) -> str:
    name = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else ""


def _torch_base(
    function: Callable[..., PyTree] | None, arguments: Arguments, title: str, module: Any = None
) -> tuple[Network, Sources]:
    """Lift a function of PyTorch's tensors, of a module and tensors, or a module."""
    from ...backends.torch.importing import load_torchax

    load_torchax()
    from ...backends.torch.functions import lift_function_of_tensors
    from ...backends.torch.lifting import lift

    if isinstance(module, type):
        with user_error_context(f"the PyTorch module {title} failed when it was built"):
            module = module()
    if function is None:
        names = parameters(module.forward)
        return lift(module, title)[0], _sources(names, arguments, title)
    bound = _with_constants(function, arguments)
    names = dict(parameters(bound))
    if module is not None:
        names.pop(next(iter(names)))
    sources = _sources(names, arguments, title)
    if sources == (WHOLE,):
        bound, sources = _of_arrays(bound, arguments.names), arguments.names
    return lift_function_of_tensors(bound, module, title), sources


def _of_arrays(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """Take a batch's arrays in order, after a module if there is one, instead of the batch.

    PyTorch gets a tensor for each array that it is called with, and none of a record's.
    """

    def call(*inputs: Any) -> Any:
        first = len(inputs) - len(names)
        return function(*inputs[:first], Batch(zip(names, inputs[first:], strict=True)))

    return call
