"""Arguments of a user's module, chosen by its signature."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ..core import specs
from ..core.errors import TriglotError, kind_of
from ..core.hyper import is_integer
from ..core.network import (
    Codec,
    Leaf,
    Network,
    Statistic,
    ValueAndGrad,
    Variables,
    value_and_grad_of,
)
from ..core.networks.combinators import hold
from ..core.types import Key, PyTree
from .layers.stacks import without_moved_axes

InitialCarry: TypeAlias = Callable[[int], PyTree]
Inputs: TypeAlias = specs.Spec | tuple[specs.Spec, ...]

# Names that libraries give to the switch between training and evaluation.
TRAINING = ("train", "training", "is_training")
EVALUATING = ("deterministic", "inference", "use_running_average")
# Parameters that an adapter fills in itself.
FILLED_IN = {"key", "rngs", "state", *TRAINING, *EVALUATING}


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Read what a caller passes to a function, class or callable object; empty if it is unknown."""
    if isinstance(function, type):  # NNX's metaclass hides the constructor's signature
        return method_parameters(function, "__init__")
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def method_parameters(kind: type, method: str) -> Mapping[str, inspect.Parameter]:
    """Read what a caller passes to a method of an instance, without the instance itself."""
    return parameters(functools.partial(getattr(kind, method), None))


def arguments(inputs: PyTree) -> tuple[PyTree, ...]:
    """Convert inputs to positional arguments; `(obs, carry)` of a recurrent step gives two."""
    return inputs if isinstance(inputs, tuple) else (inputs,)


def bind(
    module: str, names: Mapping[str, inspect.Parameter], inputs: PyTree, train: bool
) -> tuple[tuple[PyTree, ...], dict[str, bool]]:
    """Convert inputs to the arguments of a module's call.

    Args:
      module: the library and the name, for the message.
      names: its parameters.
      inputs: as `Network.apply` takes them.
      train: whether the call is one in training.

    Returns:
      The positional arguments, and the switches between training and evaluation that it takes.

    Raises:
      TriglotError: if the module requires more inputs, with the advice for a recurrent module.
    """
    args = arguments(inputs)
    required = [
        name
        for name, parameter in names.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and name not in FILLED_IN
    ]
    if len(required) > len(args):
        raise TriglotError(
            f"{module} requires {len(required)} inputs ({', '.join(required)}) and was given "
            f"{len(args)}. If it is recurrent, pass initial_carry=FUNCTION to its adapter, where "
            "FUNCTION(num_envs) returns the carry at an episode's start. If it reads several "
            "observations, its inputs must be a tuple."
        )
    modes = dict.fromkeys(TRAINING, train) | dict.fromkeys(EVALUATING, not train)
    return args, {name: mode for name, mode in modes.items() if name in names}


def example_arguments(inputs: Inputs, initial_carry: InitialCarry | None) -> tuple[PyTree, ...]:
    """Build the arguments of a call on a batch of one example, `[1, ...]` each."""
    observations = tuple(specs.zeros(spec, 1) for spec in _checked(inputs))
    if initial_carry is None:
        return observations
    return (observations[0] if len(observations) == 1 else observations, initial_carry(1))


def describe_inputs(inputs: Inputs) -> str:
    """Describe a batch of inputs, such as `float32 [B, 4]`."""

    def described(spec: specs.Spec) -> str:
        if isinstance(spec, specs.Dict):
            return (
                "{" + ", ".join(f"{name}: {described(child)}" for name, child in spec.items) + "}"
            )
        return f"{spec.dtype} [{', '.join(['B', *map(str, spec.shape)])}]"

    return " and ".join(described(spec) for spec in _checked(inputs))


def _checked(inputs: Inputs) -> tuple[specs.Spec, ...]:
    """Refuse what is not the spec of an observation, such as its shape."""
    for spec in (obs_specs := arguments(inputs)):
        if not isinstance(spec, specs.Spec):
            sizes = ", ".join(map(str, obs_specs)) + ("," if len(obs_specs) == 1 else "")
            is_shape = all(map(is_integer, obs_specs))
            named = f": give triglot.Box(({sizes}))." if is_shape else ", such as env.obs_spec."
            raise TriglotError(
                "obs_spec must be a Box, Discrete, MultiDiscrete or Dict of triglot, or a tuple of "
                f"them for several inputs; got {kind_of(inputs)}{named}"
            )
    return obs_specs


def display_name(module: object) -> str:
    """Name a module, function or class in errors and reports."""
    first = module[0] if isinstance(module, tuple) and module else module
    return getattr(first, "__name__", type(first).__name__)


def lifted(
    name: str,
    backend: str,
    init: Callable[[Key], Variables],
    apply: Callable[..., tuple[PyTree, PyTree]],
    initial_carry: InitialCarry | None,
    *,
    codec: Codec | None,
    statistics: tuple[Statistic | None, ...] = (),
    random_start: bool = True,
    value_and_grad: ValueAndGrad = value_and_grad_of,
) -> Network:
    """Build the network of a module, which is recurrent if it has an `initial_carry`."""

    def carry(variables: PyTree, num_envs: int) -> PyTree:
        return initial_carry(num_envs) if initial_carry else ()

    return Network(
        name=name,
        backend=backend,
        init=init,
        apply=apply,
        value_and_grad=value_and_grad,
        recurrent=initial_carry is not None,
        initial_carry=carry,
        random_start=random_start,
        codec=None if codec is None else without_moved_axes(codec, init),
        statistics=statistics,
    )


def without_integers(
    network: Network, leaves: Sequence[Leaf], arrays: Sequence[jax.ShapeDtypeStruct]
) -> Network:
    """Keep the parameters that are integers in the state, where nothing trains them.

    Args:
      network: with all of them as `params`.
      leaves: describe the parameters.
      arrays: their shapes and dtypes.
    """
    integers = {
        leaf.name
        for leaf, array in zip(leaves, arrays, strict=True)
        if not jnp.issubdtype(array.dtype, jnp.inexact)
    }
    return hold(network, integers) if integers else network
