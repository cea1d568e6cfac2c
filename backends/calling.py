"""How a person's own module is called: which arguments it gets, read from its signature."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..core import specs

PyTree: TypeAlias = Any
InitialCarry: TypeAlias = Callable[[int], PyTree]
Inputs: TypeAlias = specs.Spec | tuple[specs.Spec, ...]

# What libraries call the switch between training and evaluation.
TRAINING = ("train", "training", "is_training")
EVALUATING = ("deterministic", "inference", "use_running_average")


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Read the names that a function, class or callable object may be given; none if unknown."""
    if isinstance(function, type):  # NNX's metaclass hides the constructor's signature
        function = function.__init__
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def mode_arguments(names: Mapping[str, Any], train: bool) -> dict[str, bool]:
    """Fill in the switches between training and evaluation that a module takes.

    >>> mode_arguments({"obs": None, "is_training": None}, True)
    {'is_training': True}
    """
    return {
        **{name: train for name in TRAINING if name in names},
        **{name: not train for name in EVALUATING if name in names},
    }


def arguments(inputs: PyTree) -> tuple[PyTree, ...]:
    """Spread several inputs over several arguments; a recurrent step has two, with its carry."""
    return inputs if isinstance(inputs, tuple) else (inputs,)


def example(inputs: Inputs, initial_carry: InitialCarry | None) -> tuple[PyTree, ...]:
    """Make the arguments of a call on one example, `[1, ...]` each."""
    made = tuple(specs.zeros(spec, 1) for spec in arguments(inputs))
    if initial_carry is None:
        return made
    return (made[0] if len(made) == 1 else made, initial_carry(1))


def in_words(inputs: Inputs) -> str:
    """Describe a batch of inputs."""

    def one(spec: specs.Spec) -> str:
        if isinstance(spec, specs.Dict):
            return "{" + ", ".join(f"{name}: {one(child)}" for name, child in spec.items) + "}"
        return f"{spec.dtype} [{', '.join(['B', *map(str, spec.shape)])}]"

    return " and ".join(one(spec) for spec in arguments(inputs))
