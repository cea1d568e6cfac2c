"""Plain functions of PyTorch's tensors, such as losses, as networks."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch.distributions import Distribution

from ...core.network import Network
from ...core.types import PyTree
from .lifting import lift


class _Function(torch.nn.Module):
    """A module that calls a function of tensors, or of a module and tensors."""

    def __init__(self, function: Callable[..., PyTree], model: torch.nn.Module | None) -> None:
        super().__init__()
        self.function, self.model = function, model

    def forward(self, *inputs: PyTree) -> PyTree:
        with _without_validation():
            return self.function(*(() if self.model is None else (self.model,)), *inputs)


def lift_function_of_tensors(
    function: Callable[..., PyTree], model: torch.nn.Module | None, name: str
) -> Network:
    """Lift a function of tensors to a `Network`.

    Args:
      function: `function(*inputs)`, or `function(model, *inputs)` if there is a model.
      model: a module, whose parameters are those of the network; None for a function without any.
      name: shown in errors and reports.
    """
    network, _ = lift(_Function(function, model), name)
    return network


@contextlib.contextmanager
def _without_validation() -> Iterator[None]:
    """Let distributions check no values, which are not known while tracing."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)
