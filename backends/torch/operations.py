"""Operations that torchax computes otherwise than PyTorch, or lacks, computed as PyTorch does.

torchax's batch normalization does not move the running statistics. It has no adaptive pooling by
maxima.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch


def batch_norm(
    input: torch.Tensor,
    running_mean: Any,
    running_var: Any,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Compute `torch.nn.functional.batch_norm`, and move the running statistics in training."""
    axes = [0, *range(2, input.dim())]
    shape = [1, -1, *[1] * (input.dim() - 2)]
    mean, var = running_mean, running_var
    if training:
        count = input.numel() // input.shape[1]
        if count == 1:
            raise ValueError("batch normalization in training needs more than one value a channel.")
        mean = input.mean(axes)
        var = (input - mean.view(shape)).square().mean(axes)
        if running_mean is not None:
            for old, new in ((running_mean, mean), (running_var, var * (count / (count - 1)))):
                old.copy_((1 - momentum) * old + momentum * new.detach())
    output = (input - mean.view(shape)) * torch.rsqrt(var.view(shape) + eps)
    if weight is not None:
        output = output * weight.view(shape)
    return output if bias is None else output + bias.view(shape)


def adaptive_max_pool(input: Any, output_size: Sequence[int]) -> tuple[Any, Any]:
    """Compute the maxima of adaptive windows over the last axes, and their flat indices."""
    rank = len(output_size)
    sizes = tuple(input.shape[-rank:])
    bounds = [
        [(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
        for length, size in zip(sizes, output_size, strict=True)
    ]
    maxima = input
    for axis, windows in zip(range(-rank, 0), bounds, strict=True):
        slices = [maxima.narrow(axis, start, end - start) for start, end in windows]
        maxima = torch.stack([each.amax(axis) for each in slices], axis)
    places = torch.arange(math.prod(sizes)).view(sizes)
    indices = []
    for window in itertools.product(*bounds):
        inside = tuple(slice(start, end) for start, end in window)
        largest = input[(..., *inside)].flatten(-rank).argmax(-1)
        indices.append(places[inside].flatten()[largest])
    return maxima, torch.stack(indices, -1).view(maxima.shape)


REPLACED: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.batch_norm: batch_norm,
    torch.ops.aten.adaptive_max_pool2d: adaptive_max_pool,
    torch.ops.aten.adaptive_max_pool3d: adaptive_max_pool,
}
