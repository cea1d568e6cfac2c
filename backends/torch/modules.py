"""A PyTorch module as a function of its arrays."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn.utils.weight_norm import WeightNorm

from ...core.errors import TriglotError
from ...core.types import PyTree
from .running import JaxEnvironment, Tensor


class Place(NamedTuple):
    """Where a module or one of its submodules holds a tensor."""

    owner: torch.nn.Module
    attribute: str


class Skeleton:
    """A copy of a module, into which arrays are put for the time of a call.

    Attributes:
      module: the copy.
      params: the trainable arrays by their names in `state_dict`.
      state: all other arrays with a name: buffers, and parameters that need no gradient.
    """

    def __init__(self, module: torch.nn.Module, shown: str) -> None:
        """Copy a module.

        Raises:
          TriglotError: if its tensors are not float32 or integers in the CPU's memory.
        """
        try:
            self.module = copy.deepcopy(module, _normalized_weights(module))
        except Exception as error:
            raise TriglotError(
                f"{shown} cannot be copied ({error}): make its tensors in __init__, by operations "
                "without a gradient."
            ) from None
        self._places: dict[str, list[Place]] = {}
        self.params: dict[str, np.ndarray] = {}
        self.state: dict[str, np.ndarray] = {}
        names: dict[int, str] = {}  # tied arrays have the first of their names
        for name, tensor in _named_tensors(self.module):
            first = names.setdefault(id(tensor), name)
            self._places.setdefault(first, []).append(_place(self.module, name))
            if first == name:
                trained = isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad
                _check(name, tensor, shown)
                (self.params if trained else self.state)[name] = _to_numpy(tensor)
        self._constants = [
            (Place(owner, attribute), _to_numpy(value))
            for owner in self.module.modules()
            for attribute, value in vars(owner).items()
            if isinstance(value, torch.Tensor)
        ]

    def call(
        self,
        env: JaxEnvironment,
        arrays: Mapping[str, jax.Array],
        inputs: tuple[PyTree, ...],
        modes: Mapping[str, bool],
        train: bool,
    ) -> tuple[PyTree, dict[str, Any]]:
        """Call the module with these arrays.

        Args:
          env: the context in which it is called.
          arrays: of `params` and `state` by name, JAX arrays.
          inputs: tensors of this context.
          modes: arguments by name.
          train: whether in training mode.

        Returns:
          Its outputs, and the arrays of `state` afterwards.
        """
        with self._unchanged():
            for name, array in arrays.items():
                tensor = Tensor(array, env)
                for place in self._places[name]:
                    _put(place, tensor)
            for place, constant in self._constants:
                setattr(*place, Tensor(jnp.asarray(constant), env))
            self.module.train(train)
            outputs = self.module(*inputs, **modes)
            moved = {name: getattr(*self._places[name][0]) for name in self.state}
        return outputs, moved

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Set back what a call changes in the module: its arrays, and what it keeps on itself."""
        before = [
            (owner, dict(vars(owner)), dict(owner._parameters), dict(owner._buffers))
            for owner in self.module.modules()
        ]
        try:
            yield
        finally:
            for owner, attributes, params, buffers in before:
                vars(owner).clear()
                vars(owner).update(attributes)
                owner._parameters.clear()
                owner._parameters.update(params)
                owner._buffers.clear()
                owner._buffers.update(buffers)


def _normalized_weights(module: torch.nn.Module) -> dict[int, torch.Tensor]:
    """Copy the weights that `torch.nn.utils.weight_norm` computes before each call.

    They have a gradient, so that `deepcopy` refuses them.
    """
    hooks = [
        (owner, hook)
        for owner in module.modules()
        for hook in owner._forward_pre_hooks.values()
        if isinstance(hook, WeightNorm)
    ]
    weights = [getattr(owner, hook.name) for owner, hook in hooks]
    return {id(weight): weight.detach().clone() for weight in weights}


def arrays_of(module: torch.nn.Module) -> dict[str, jax.Array]:
    """Read the JAX arrays of a module that was constructed with JAX, by name."""
    arrays: dict[str, jax.Array] = {}
    ids: set[int] = set()
    for name, tensor in _named_tensors(module):
        if id(tensor) not in ids:
            ids.add(id(tensor))
            arrays[name] = tensor.jax()
    return arrays


def move_channels(args: tuple[PyTree, ...], recurrent: bool) -> tuple[PyTree, ...]:
    """Move the last axis of batches of images to the front, in the observations only."""

    def move(array: jax.Array) -> jax.Array:
        return jnp.moveaxis(array, -1, 1) if array.ndim > 2 else array

    observations, carry = (args[:-1], args[-1:]) if recurrent else (args, ())
    return (*jax.tree.map(move, observations), *carry)


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _place(module: torch.nn.Module, name: str) -> Place:
    path, _, attribute = name.rpartition(".")
    return Place(module.get_submodule(path), attribute)


def _put(place: Place, tensor: Any) -> None:
    owner, attribute = place
    held = owner._parameters if attribute in owner._parameters else owner._buffers
    held[attribute] = tensor


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().clone().numpy()


def _check(name: str, tensor: torch.Tensor, shown: str) -> None:
    if isinstance(tensor, torch.nn.UninitializedParameter | torch.nn.UninitializedBuffer):
        raise TriglotError(
            f"{shown}: the shape of {name} is not known yet: call the module once before lifting "
            "it, or name the number of inputs."
        )
    if tensor.device.type != "cpu":
        raise TriglotError(
            f"{shown}: {name} is on the device {tensor.device}: move the module to the CPU "
            '(`module.to("cpu")`); training runs on the device that JAX chooses.'
        )
    if tensor.dtype.is_complex:
        raise TriglotError(
            f"{shown}: {name} is {str(tensor.dtype).removeprefix('torch.')}; networks are trained "
            "in float32: hold its real and imaginary parts in one float32 parameter of shape "
            f"{(*tensor.shape, 2)}, and convert it in forward with torch.view_as_complex."
        )
    if tensor.is_floating_point() and tensor.dtype != torch.float32:
        raise TriglotError(
            f"{shown}: {name} is {str(tensor.dtype).removeprefix('torch.')}; networks are trained "
            "in float32: convert the module (`module.float()`)."
        )
