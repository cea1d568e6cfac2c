"""PyTorch's built-in networks, made from a `NetworkSpec`.

Every module takes a batch `[B, ...]`, images with the channels last.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ...core.errors import unknown
from ...core.network import Network
from ...core.networks.architecture import (
    BATCH_NORM_EPSILON,
    BATCH_NORM_MOMENTUM,
    LAYER_NORM_EPSILON,
    Head,
    Layers,
    NetworkSpec,
    RecurrentCell,
    Table,
)
from ...core.networks.inputs import POOL_SIZE, POOL_STRIDE, pool_padding
from ...core.networks.noise import dropped, of_layer, sigma_start
from ...core.specs import Box, scaled_bytes
from ...core.types import PyTree
from ..zoo.lifting import activated, lift_zoo, values_of
from .lifting import lift

Noise = Mapping[str, Any]

# jax.nn's functions of these names, so that one option means one function in all libraries.
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "celu": functional.celu,
    "elu": functional.elu,
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "hard_tanh": functional.hardtanh,
    "leaky_relu": functional.leaky_relu,
    "log_sigmoid": functional.logsigmoid,
    "mish": functional.mish,
    "relu": functional.relu,
    "relu6": functional.relu6,
    "selu": functional.selu,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "soft_sign": functional.softsign,
    "softplus": functional.softplus,
    "swish": functional.silu,
    "tanh": torch.tanh,
}


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from PyTorch's own layers."""

    def build(*module: Any, **options: Any) -> Network:
        return lift(*module, **options, trusted=True)[0]

    return lift_zoo(build, spec, name, make(spec))


def make(spec: NetworkSpec) -> Callable[[], nn.Module]:
    """Return the constructor of a network."""
    module = Tabular if isinstance(spec.torso, Table) else TorsoAndHeads
    return lambda: module(spec)


def _initialized(layer: Any, scale: float | None) -> Any:
    """Initialize a layer's weight orthogonally at `scale` and its bias with zeros.

    A `scale` of None leaves the layer as it is.
    """
    if scale is not None:
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return layer


def _dense(size: int, width: int, scale: float | None, noise: float | None) -> nn.Module:
    if noise is None:
        return _initialized(nn.Linear(size, width), scale)
    return Noisy(size, width, scale, noise)


def _norm(torso: Layers, size: int) -> nn.Module:
    if torso.normalization == "layer":
        return nn.LayerNorm(size, LAYER_NORM_EPSILON)
    return BatchNorm(size, BATCH_NORM_EPSILON, 1.0 - BATCH_NORM_MOMENTUM)


class TorsoAndHeads(nn.Module):
    """Layers shared by several heads."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        torso = spec.layers
        if torso.activation not in ACTIVATIONS:
            raise unknown("activation of PyTorch", torso.activation, ACTIVATIONS)
        self.spec, self.activation = spec, ACTIVATIONS[torso.activation]
        if torso.normalize_inputs:
            self.norm_input = _norm(torso, spec.obs_shape[-1])
        for index, (channels, convolution) in enumerate(spec.convolutions):
            padding = convolution.size // 2 if convolution.same else 0
            layer = nn.Conv2d(
                channels, convolution.channels, convolution.size, convolution.stride, padding
            )
            self._add(f"torso_{index}", _initialized(layer, torso.scale))
        size = spec.num_features
        for index, width in enumerate(torso.hidden_sizes, spec.num_convolutions):
            self._add(f"torso_{index}", _dense(size, width, torso.scale, spec.noise))
            size = width
        if torso.normalization != "none":
            for index, width in enumerate(spec.widths):
                self._add(f"norm_{index}", _norm(torso, width))
        if spec.cell is not None:
            self.cell = (LSTMCell if spec.cell.kind == "lstm" else GRUCell)(size, spec.cell.size)
            size = spec.cell.size
        for name, head in spec.heads:
            self._add_head(f"head_{name}", head, size)

    def _add(self, name: str, module: nn.Module) -> None:
        self.add_module(name, module)

    def _add_head(self, name: str, head: Head, size: int) -> None:
        if head.size is not None and head.state_independent is not None:
            self._add(name, StateIndependent(head.size, head.state_independent))
            return
        sizes = {"": head.size or 1}
        if head.dueling:
            sizes = {"_value": 1, "_advantage": head.size or 1}
        for suffix, width in sizes.items():
            self._add(f"{name}{suffix}", _dense(size, width, head.scale, self.spec.noise))

    def forward(self, *inputs: PyTree) -> PyTree:
        spec = self.spec
        observations, more = spec.split(inputs)
        parts = spec.parts(observations, _joined)
        if spec.cell is None:
            return self._heads(self._torso(parts, more), more)
        features, carry = self._step(self._torso(parts, {}), more, spec.cell)
        return self._heads(features, {}), carry

    def _torso(self, parts: Sequence[torch.Tensor], noise: Noise) -> torch.Tensor:
        torso = self.spec.layers
        flat = []
        for features, path in zip(parts, self.spec.paths, strict=True):
            if torso.normalize_inputs:
                features = self.norm_input(features)
            features = path.convolved(
                features, self._convolution, self._activated, self._norm, self.activation, _pooled
            )
            flat.append(features.flatten(1))
        features = flat[0] if len(flat) == 1 else torch.cat(flat, dim=-1)
        for index, _ in enumerate(torso.hidden_sizes, self.spec.num_convolutions):
            features = self._apply_dense(f"torso_{index}", features, noise)
            features = dropped(features, self.spec, noise, f"torso_{index}")
            features = self._activated(features, index)
        return features

    def _convolution(self, features: torch.Tensor, index: int) -> torch.Tensor:
        convolution = self.get_submodule(f"torso_{index}")
        return convolution(features.movedim(-1, 1)).movedim(1, -1)

    def _norm(self, features: torch.Tensor, index: int) -> torch.Tensor:
        if self.spec.layers.normalization == "none":
            return features
        return self.get_submodule(f"norm_{index}")(features)

    def _activated(self, features: torch.Tensor, index: int) -> torch.Tensor:
        torso = self.spec.layers
        if torso.normalization == "none":
            return self.activation(features)
        norm = self.get_submodule(f"norm_{index}")
        return activated(torso, features, self.activation, norm)

    def _apply_dense(self, name: str, features: torch.Tensor, noise: Noise) -> torch.Tensor:
        layer = self.get_submodule(name)
        if not isinstance(layer, Noisy):
            return layer(features)
        return layer(features, *of_layer(noise, name, features.shape[-1]))

    def _step(
        self, features: torch.Tensor, carry: Mapping[str, torch.Tensor], cell: RecurrentCell
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        if cell.kind == "gru":
            hidden = self.cell(features, carry["hidden"])
            return hidden, {"hidden": hidden}
        hidden, memory = self.cell(features, (carry["hidden"], carry["cell"]))
        return hidden, {"hidden": hidden, "cell": memory}

    def _heads(self, features: torch.Tensor, noise: Noise) -> dict[str, Any]:
        heads = sorted(self.spec.heads)
        return {name: self._head(features, name, head, noise) for name, head in heads}

    def _head(self, features: torch.Tensor, name: str, head: Head, noise: Noise) -> Any:
        if head.state_independent is not None:
            return self.get_submodule(f"head_{name}")(features)

        def dense(size: int, suffix: str = "") -> Any:
            del size
            return self._apply_dense(f"head_{name}{suffix}", features, noise)

        return values_of(head, dense)


def _pooled(features: torch.Tensor) -> torch.Tensor:
    """Pool images `[B, H, W, C]`; PyTorch's own padding is equal on both sides."""
    sides = [
        padding for side in reversed(features.shape[1:3]) for padding in pool_padding(int(side))
    ]
    padded = functional.pad(features.movedim(-1, 1), sides, value=float("-inf"))
    return functional.max_pool2d(padded, POOL_SIZE, POOL_STRIDE).movedim(1, -1)


def _joined(specs: Sequence[Box], inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Convert inputs as `core.networks.inputs.joined` does."""
    scaled = [
        scaled_bytes(spec, array.float(), _constant)
        if array.dtype == torch.uint8
        else array.float()
        for spec, array in zip(specs, inputs, strict=True)
    ]
    if len(scaled) == 1:
        return scaled[0]
    return torch.cat([array.flatten(1) for array in scaled], dim=-1)


def _constant(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array.tolist())


class Noisy(nn.Module):
    """A noisy dense layer (`core.networks.noise`)."""

    def __init__(self, size: int, width: int, scale: float | None, noise: float) -> None:
        super().__init__()
        self.mu = _initialized(nn.Linear(size, width), scale)
        self.sigma = nn.Linear(size, width)
        for parameter in (self.sigma.weight, self.sigma.bias):
            nn.init.constant_(parameter, sigma_start(noise, size))

    def forward(
        self, features: torch.Tensor, before: torch.Tensor, after: torch.Tensor
    ) -> torch.Tensor:
        return self.mu(features) + after * self.sigma(before * features)


class StateIndependent(nn.Module):
    """State-independent parameters that are the output for every observation."""

    def __init__(self, size: int, start: float) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.full((size,), start))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.bias.expand(features.shape[0], -1)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalization over all axes but the last; its running variance is the batch's own.

    PyTorch's would be that of an unbiased estimate, which other libraries do not keep.
    """

    def forward(self, features: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        mean, var = self.running_mean, self.running_var
        assert mean is not None and var is not None and self.momentum is not None  # they are kept
        if self.training:
            axes = tuple(range(features.dim() - 1))
            batch_mean = features.mean(axes)
            batch_var = (features - batch_mean).square().mean(axes)
            for old, new in ((mean, batch_mean), (var, batch_var)):
                old.copy_((1.0 - self.momentum) * old + self.momentum * new)
            mean, var = batch_mean, batch_var
        return (features - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


class LSTMCell(nn.LSTMCell):
    """PyTorch's LSTM cell with one bias instead of two, which are added."""

    def __init__(self, num_inputs: int, size: int) -> None:
        super().__init__(num_inputs, size, bias=False)
        self.bias_ih = nn.Parameter(torch.zeros(4 * size))

    def forward(  # pyright: ignore
        self, features: torch.Tensor, carry: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, memory = carry
        gates = functional.linear(features, self.weight_ih) + functional.linear(
            hidden, self.weight_hh
        )
        i, f, g, o = (gates + self.bias_ih).chunk(4, dim=-1)
        memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(memory), memory


class GRUCell(nn.GRUCell):
    """PyTorch's GRU cell with one bias for each gate, and a second one for the last."""

    def __init__(self, num_inputs: int, size: int) -> None:
        super().__init__(num_inputs, size, bias=False)
        self.bias_ih = nn.Parameter(torch.zeros(3 * size))
        self.bias_n = nn.Parameter(torch.zeros(size))

    def forward(self, features: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:  # pyright: ignore
        inputs = functional.linear(features, self.weight_ih, self.bias_ih).chunk(3, dim=-1)
        recurrent = functional.linear(hidden, self.weight_hh).chunk(3, dim=-1)
        reset = torch.sigmoid(inputs[0] + recurrent[0])
        update = torch.sigmoid(inputs[1] + recurrent[1])
        new = torch.tanh(inputs[2] + reset * (recurrent[2] + self.bias_n))
        return (1.0 - update) * new + update * hidden


class Tabular(nn.Module):
    """One embedding per head, indexed by the observation."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.is_scalar = {name: head.size is None for name, head in spec.heads}
        for name, head in spec.heads:
            table = nn.Embedding(spec.num_rows, head.size or 1)
            nn.init.constant_(table.weight, spec.table.init)
            self.add_module(f"head_{name}", table)

    def forward(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        rows = {name: self.get_submodule(f"head_{name}")(obs) for name in self.is_scalar}
        return {name: row[:, 0] if self.is_scalar[name] else row for name, row in rows.items()}
