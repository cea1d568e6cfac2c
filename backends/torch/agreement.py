"""Does a wrapped module compute what PyTorch computes?"""

import copy
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ...core import specs
from ...core.errors import TriglotError, user_error_context
from ...core.network import Network, Variables
from ...core.tracing.jaxprs import leaves_read
from ...core.types import Params, PyTree
from .. import calling
from .modules import Skeleton, move_channels

BATCH_SIZE = 3
TOLERANCE = 1e-3  # of the largest number, of sums in another order


def check_agreement(
    network: Network,
    skeleton: Skeleton,
    obs_spec: calling.Inputs,
    initial_carry: calling.InitialCarry | None,
    channels_first: bool,
) -> None:
    """Compare the outputs and gradients for one batch in evaluation mode with PyTorch's own.

    In training mode the outputs and buffers are compared, unless they are random.

    Raises:
      TriglotError: if the module fails or they differ; it says so if the channels of an
        observation stand at the wrong place.
    """
    shown = f"the PyTorch module {network.name!r}"
    args = _example(obs_spec, initial_carry)
    variables = Variables(params=skeleton.params, state=skeleton.state)
    inputs = args[0] if len(args) == 1 else args
    failed = f"{shown} failed on {calling.describe_inputs(obs_spec)}"
    try:
        expected = _with_pytorch(skeleton, args, network.recurrent, channels_first)
    except Exception as error:
        hint = _hint(skeleton, args, network.recurrent, channels_first)
        with user_error_context(f"{failed}{hint}"):
            raise error
    with user_error_context(failed):
        results = jax.jit(_with_jax, static_argnums=0)(network, variables, inputs)
    for what, one, other in zip(("outputs", "gradients"), expected, results, strict=True):
        _check_equal(shown, what, one, other)
    with user_error_context(f"{failed} in training"):
        trained = _in_training(skeleton, args, network.recurrent, channels_first)
        if trained is None:
            return
        key = jax.random.key(0)
        if leaves_read(
            lambda key, *args_of_network: network.apply(*args_of_network, key=key, train=True),
            key,
            variables,
            inputs,
        ):
            return  # of a torch.Generator, whose seed the calls above have in common
        apply = partial(network.apply, key=key, train=True)
        results = jax.jit(apply)(variables, inputs)
    for what, one, other in zip(("outputs", "buffers"), trained, results, strict=True):
        _check_equal(f"{shown} in training", what, one, other)


def _example(
    inputs: calling.Inputs, initial_carry: calling.InitialCarry | None
) -> tuple[PyTree, ...]:
    """Draw a batch of observations, and the carry of a recurrent module."""
    key, drawn = jax.random.key(0), []
    for index, spec in enumerate(calling.arguments(inputs)):
        keys = jax.random.split(jax.random.fold_in(key, index), BATCH_SIZE)
        drawn.append(jax.vmap(lambda key, spec=spec: specs.sample(spec, key))(keys))
    if initial_carry is None:
        return tuple(drawn)
    return (drawn[0] if len(drawn) == 1 else tuple(drawn), initial_carry(BATCH_SIZE))


def _with_pytorch(
    skeleton: Skeleton, args: tuple[PyTree, ...], recurrent: bool, channels_first: bool
) -> tuple[PyTree, PyTree]:
    """Compute the outputs, and the gradients of their weighted sum, with PyTorch."""
    module = copy.deepcopy(skeleton.module).eval()
    with torch.enable_grad():
        outputs = _call(module, args, recurrent, channels_first)
        sums = [
            (output * torch.from_numpy(_weights(tuple(output.shape)))).sum()
            for output in jax.tree.leaves(outputs)
            if isinstance(output, torch.Tensor) and output.requires_grad
        ]
        if sums:
            sum(sums[1:], sums[0]).backward()
    gradients = {
        name: np.zeros(tuple(parameter.shape), np.float32)
        if parameter.grad is None
        else parameter.grad.numpy()
        for name, parameter in module.named_parameters()
        if name in skeleton.params
    }
    return jax.tree.map(_to_array, outputs), gradients


def _in_training(
    skeleton: Skeleton, args: tuple[PyTree, ...], recurrent: bool, channels_first: bool
) -> tuple[PyTree, PyTree] | None:
    """Compute the outputs and the state after a call in training; None if they are random."""
    results = []
    for seed in range(2):
        module = copy.deepcopy(skeleton.module).train()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            outputs = _call(module, args, recurrent, channels_first)
        arrays = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        state = {name: _to_array(arrays[name]) for name in skeleton.state}
        results.append((jax.tree.map(_to_array, outputs), state))
    one, other = map(jax.tree.leaves, results)
    is_same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))
    return results[0] if is_same else None


def _call(
    module: torch.nn.Module, args: tuple[PyTree, ...], recurrent: bool, channels_first: bool
) -> PyTree:
    """Call a module with PyTorch."""
    names = calling.parameters(module.forward)
    args, modes = calling.bind("the PyTorch module", names, args, module.training)
    if channels_first:
        args = move_channels(args, recurrent)
    tensors = jax.tree.map(lambda array: _to_tensor(np.array(array)), args)
    return module(*tensors, **modes)


def _with_jax(network: Network, variables: Variables, inputs: PyTree) -> tuple[PyTree, PyTree]:
    def loss(params: Params) -> tuple[jax.Array, PyTree]:
        outputs, _ = network.apply(Variables(params=params, state=variables.state), inputs)
        floats = [
            output
            for output in jax.tree.leaves(outputs)
            if jnp.issubdtype(output.dtype, jnp.floating)
        ]
        return sum(
            (jnp.sum(output * _weights(output.shape)) for output in floats), jnp.zeros(())
        ), outputs

    gradients, outputs = jax.grad(loss, has_aux=True)(variables.params)
    return outputs, gradients


def _weights(shape: tuple[int, ...]) -> np.ndarray:
    """Make numbers that differ, so that no two outputs can be exchanged unnoticed."""
    return np.cos(np.arange(np.prod(shape, dtype=int), dtype=np.float32)).reshape(shape)


def _to_array(output: object) -> object:
    """Convert a tensor; `to_arrays` refuses anything else."""
    return output.detach().numpy() if isinstance(output, torch.Tensor) else output


def _to_tensor(array: np.ndarray) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.long() if tensor.dtype == torch.int32 else tensor


def _hint(
    skeleton: Skeleton, args: tuple[PyTree, ...], recurrent: bool, channels_first: bool
) -> str:
    """Say whether the module accepts the other order of an image's axes."""
    observations = jax.tree.leaves(args[:-1] if recurrent else args)
    if not any(array.ndim > 2 for array in observations):
        return ""
    try:
        _with_pytorch(skeleton, args, recurrent, not channels_first)
    except Exception:
        return ""
    if channels_first:
        return "; it accepts images with the channels last: leave out channels_first=True"
    return "; it accepts images with the channels first: pass channels_first=True"


def _check_equal(shown: str, what: str, expected: PyTree, actual: PyTree) -> None:
    if jax.tree.structure(expected) != jax.tree.structure(actual):
        raise TriglotError(f"{shown} returns another structure with JAX than with PyTorch.")
    pairs = zip(jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(actual), strict=True)
    for (path, one), other in pairs:
        other = np.asarray(other)
        size = max(1.0, float(np.max(np.abs(one), initial=0.0)))
        if one.shape == other.shape and np.allclose(one, other, rtol=0, atol=TOLERANCE * size):
            continue
        where = jax.tree_util.keystr(path)
        difference = (
            f"by up to {np.max(np.abs(one - other)):.2g}"
            if one.shape == other.shape
            else f"in shape, {one.shape} and {other.shape}"
        )
        raise TriglotError(
            f"{shown}: the {what}{where} with JAX differ from PyTorch's {difference}. The usual "
            "causes are writing in place into a view of a tensor (`x.view(...).add_(1)`), "
            "torch.no_grad() or a torch.autograd.Function inside of forward, and a buffer that "
            "evaluation changes: write the operation out of place, and use detach()."
        )
