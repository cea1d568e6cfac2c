"""Operations that torchax computes otherwise than PyTorch, computed as PyTorch does.

torchax's batch normalization does not move the running statistics.
"""

from collections.abc import Callable
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


REPLACED: dict[Callable[..., torch.Tensor], Callable[..., torch.Tensor]] = {
    torch.nn.functional.batch_norm: batch_norm
}
