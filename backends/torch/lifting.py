"""`from_torch`: from a PyTorch module to a `Network`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import jax
import jax.numpy as jnp

from ...core.errors import TriglotError
from ...core.network import Codec, Network, Statistic, Variables
from ...core.types import PyTree
from .. import calling
from ..layers.describe import describe
from ..layers.rules import Module, Words
from ..libraries import find
from ..naming import normalize_separators
from .importing import load_torchax
from .layers import STORAGE, has_spectral_hook

if TYPE_CHECKING:
    import torch

    from .modules import Skeleton

    TorchModule: TypeAlias = torch.nn.Module | Callable[[], torch.nn.Module]


def from_torch(
    module: "TorchModule",
    obs_spec: calling.Inputs,
    *,
    name: str | None = None,
    initial_carry: calling.InitialCarry | None = None,
    channels_first: bool = False,
) -> Network:
    """Wrap a PyTorch module as a `Network`, which JAX compiles and differentiates.

    torchax converts the module's operations while they are traced; PyTorch computes nothing in
    training. The outputs and gradients for one batch are compared with PyTorch's own, and, unless
    they are random, the outputs and buffers of a call in training, so that an operation that is
    converted wrongly is found here.

    Args:
      module: a class or another constructor without arguments, or a module, whose weights every
        training then starts from. It is called on a batch of observations `[B, ...]`; a tuple of
        inputs becomes several arguments. Its `train()` or `eval()` is called first; if `forward`
        takes `train` (or `training`, `deterministic`), it gets that flag. Random operations, such
        as dropout, use the network's key. The arrays are in the CPU's memory, float32 or integers.
      obs_spec: one observation; a tuple of specs for several inputs.
      name: shown in errors and reports.
      initial_carry: for a recurrent module `(obs, carry) -> (outputs, carry)`:
        `initial_carry(num_envs)` returns the carry `[N, ...]` at an episode's start, JAX arrays.
      channels_first: whether the module reads images as `[B, C, H, W]`: of observations with two
        axes or more, the last axis is then moved to the front.

    Returns:
      The network; `params` and `state` are dictionaries by the names of `state_dict`. Trainable
      floating-point parameters are `params`; buffers and all other parameters are state. A
      constructor is called with JAX, for each key, if that reproduces PyTorch's initial arrays;
      if not, such as for `trunc_normal_`, with PyTorch on the host, in a callback.

    Raises:
      MissingExtra: if PyTorch or torchax is not installed.
      TriglotError: if the constructor or the module fails, an operation cannot be converted, an
        array has another type or device, or the numbers are not those of PyTorch.
    """
    load_torchax()
    from .agreement import check_agreement

    network, skeleton = lift(module, name, initial_carry, channels_first)
    check_agreement(network, skeleton, obs_spec, initial_carry, channels_first)
    return network


def lift(
    module: "TorchModule",
    name: str | None = None,
    initial_carry: calling.InitialCarry | None = None,
    channels_first: bool = False,
    *,
    trusted: bool = False,
) -> "tuple[Network, Skeleton]":
    """Build the network of a module, as `from_torch` does, without calling the module.

    Args:
      module, name, initial_carry, channels_first: as those of `from_torch`.
      trusted: whether a constructor is known to give PyTorch's initial arrays with JAX.

    Returns:
      The network, and the skeleton of its module.
    """
    load_torchax()
    import torch

    from .modules import Skeleton, move_channels
    from .running import explained, running, to_arrays
    from .starts import construct, drawing

    shown_name = name or calling.display_name(module)
    shown = f"the PyTorch module {shown_name!r}"
    is_built = isinstance(module, torch.nn.Module)
    if not is_built and not callable(module):
        raise TriglotError(
            f"from_torch takes a torch.nn.Module or a function that returns one; got a "
            f"{type(module).__name__}."
        )
    built = module if is_built else construct(module, shown)
    skeleton = Skeleton(built, shown)
    names = calling.parameters(skeleton.module.forward)
    draw: Callable[[jax.Array], dict[str, jax.Array]]
    if is_built:
        start = {**skeleton.params, **skeleton.state}
        draw = lambda key: {name: jnp.array(array) for name, array in start.items()}  # noqa: E731
    else:
        draw = drawing(module, skeleton, shown, trusted=trusted)

    def init(key: jax.Array) -> Variables:
        drawn = draw(key)
        return Variables(
            params={name: drawn[name] for name in skeleton.params},
            state={name: drawn[name] for name in skeleton.state},
        )

    def apply(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        args, modes = calling.bind(shown, names, inputs, train)
        if channels_first:
            args = move_channels(args, initial_carry is not None)
        with explained(shown), running(key) as env:
            tensors = jax.tree.map(lambda array: env.j2t_iso(jnp.asarray(array)), args)
            arrays = {**variables.params, **variables.state}
            outputs, moved = skeleton.call(env, arrays, tensors, modes, train)
            outputs, moved = to_arrays(outputs, shown), to_arrays(moved, shown)
        return outputs, moved if train else variables.state

    library, leaves = find("torch"), []
    for parameter, array in sorted(skeleton.params.items()):
        words = tuple(parameter.split("."))
        owners: list[tuple[Words, Module]] = [((), skeleton.module)]
        for length in range(1, len(words)):
            place = words[:length]
            owners.append((place, skeleton.module.get_submodule(".".join(place))))
        leaves.append(describe(library, words, owners, array.shape))
    codec = Codec.named(dict(skeleton.params), leaves, sorted(skeleton.params))
    network = calling.lifted(
        shown_name,
        "torch",
        init,
        apply,
        initial_carry,
        codec=codec,
        statistics=tuple(_statistic(buffer, skeleton.module) for buffer in sorted(skeleton.state)),
        random_start=not is_built,
    )
    return network, skeleton


def _statistic(name: str, module: "torch.nn.Module") -> Statistic | None:
    """Describe a buffer of a normalization by its name in `state_dict`."""
    import torch

    place, _, last = name.rpartition(".")
    layer, _, inside = place.rpartition("parametrizations.weight.0")
    if last in ("_u", "_v") and not inside and place:
        return Statistic(normalize_separators(f"{layer}/{last}"))
    if last in ("weight_u", "weight_v") and has_spectral_hook(module.get_submodule(place)):
        return Statistic(normalize_separators(f"{place}/{last.removeprefix('weight')}"))
    is_norm = isinstance(module.get_submodule(place), torch.nn.modules.batchnorm._NormBase)
    kind = STORAGE.statistics.get(last)
    if kind is None or not is_norm:
        return None
    return Statistic(normalize_separators(f"{place}/{kind}"))
