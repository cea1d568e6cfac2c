"""PyTorch objects for code that is called without its networks: nothing here is compared."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.optim import adam  # pyright: ignore[reportAttributeAccessIssue]

from triglot.diff.functions.lifting import Batch


class Outputs:
    """An agent whose networks return given outputs, as CleanRL and Stable-Baselines3 call it.

    Attributes:
      policy: has `log_prob(action)` and `entropy()`, `[B]` each.
      value: values `[B, 1]`.
    """

    def __init__(self, policy: Any, value: torch.Tensor) -> None:
        self.policy = policy
        self.value = value[:, None]

    @classmethod
    def of(cls, batch: Batch) -> "Outputs":
        """Return the agent of discrete actions."""
        return cls(torch.distributions.Categorical(logits=batch.logits), batch.value)

    def get_action_and_value(self, obs: Any, action: torch.Tensor) -> tuple[Any, ...]:
        """Return actions, log-probabilities and entropies `[B]`, and values `[B, 1]`."""
        return action, self.policy.log_prob(action), self.policy.entropy(), self.value

    def evaluate_actions(self, obs: Any, action: torch.Tensor) -> tuple[Any, ...]:
        """Return values `[B, 1]`, log-probabilities and entropies `[B]`."""
        return self.value, self.policy.log_prob(action), self.policy.entropy()


class Adam(torch.optim.Adam):
    """PyTorch's Adam, whose count of steps is a Python number, so that a step can be traced."""

    def begin(self, means: list[torch.Tensor], squares: list[torch.Tensor], step: int) -> None:
        """Set the averages, and the number of the next step."""
        self.means, self.squares, self.count = means, squares, float(step - 1)

    def step(self, closure: Any = None) -> None:
        """Take a step by PyTorch's own arithmetic."""
        (group,) = self.param_groups
        params = group["params"]
        adam._single_tensor_adam(
            params,
            [each.grad for each in params],
            self.means,
            self.squares,
            [],
            [self.count] * len(params),  # type: ignore[arg-type]
            None,
            None,
            amsgrad=group["amsgrad"],
            has_complex=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=group["maximize"],
            capturable=False,
            differentiable=False,
            decoupled_weight_decay=False,
        )


OPTIM = SimpleNamespace(Adam=Adam)


class AsArray:
    """A tensor where code expects one that it moves to NumPy, or an array of NumPy.

    Its shape stays `[N]`: torchax does not assign a row `[1, N]` to one of that shape, as PyTorch
    does.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def clone(self) -> "AsArray":
        """Return itself."""
        return self

    cpu = numpy = clone

    def reshape(self, *shape: int) -> torch.Tensor:
        """Return the tensor, `[N]`."""
        return self.tensor

    def flatten(self) -> torch.Tensor:
        """Return the tensor, `[N]`."""
        return self.tensor.reshape(-1)

    def astype(self, dtype: Any) -> torch.Tensor:
        """Return the tensor, which is float32."""
        return self.tensor


def parameters_of(*tensors: torch.Tensor, gradients: Sequence[torch.Tensor]) -> Any:
    """Return parameters with gradients, as a module that has them."""
    params = [tensor.clone() for tensor in tensors]
    for param, gradient in zip(params, gradients, strict=True):
        param.grad = gradient.clone()
    return SimpleNamespace(parameters=lambda: params)
