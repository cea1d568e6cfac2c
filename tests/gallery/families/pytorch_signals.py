"""Ports of PyTorch modules of signals: x-vectors, a temporal convolutional network."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import torch

from triglot.core.specs import Box

from ..pair import Bug, Pair

tn = torch.nn


class TorchXVector(tn.Module):
    """Snyder et al. 2018: mean and standard deviation over time."""

    def __init__(self, width=16):
        super().__init__()
        self.frames = tn.Sequential(
            tn.Conv1d(5, width, 5),
            tn.ReLU(),
            tn.Conv1d(width, width, 3, dilation=2),  # counterpart: dilation
            tn.ReLU(),
        )
        self.embed, self.out = tn.Linear(2 * width, width), tn.Linear(width, 4)

    def forward(self, features):
        x = self.frames(features.transpose(1, 2))  # counterpart: dilation
        mean, std = x.mean(-1), torch.sqrt(x.var(-1) + 1e-5)  # counterpart: biased
        return self.out(self.embed(torch.cat([mean, std], -1)).relu())  # counterpart: std_first


class LinenXVector(nn.Module):
    bug: str = ""
    width: int = 16

    @nn.compact
    def __call__(self, features):
        x = nn.relu(nn.Conv(self.width, (5,), padding="VALID")(features))
        rate = 1 if self.bug == "dilation" else 2  # planted: dilation
        conv = nn.Conv(self.width, (3,), kernel_dilation=rate, padding="VALID")
        x = nn.relu(conv(x))  # planted: dilation
        mean, ddof = x.mean(1), 0 if self.bug == "biased" else 1  # planted: biased
        std = jnp.sqrt(x.var(1, ddof=ddof) + 1e-5)  # planted: biased
        parts = [std, mean] if self.bug == "std_first" else [mean, std]  # planted: std_first
        x = nn.relu(nn.Dense(self.width)(jnp.concatenate(parts, -1)))  # planted: std_first
        return nn.Dense(4)(x)


class TorchTCN(tn.Module):
    """Bai et al. 2018, without weight normalization and dropout."""

    def __init__(self, width=16, depth=3):
        super().__init__()
        self.first, self.second, self.shortcuts = (tn.ModuleList() for _ in range(3))
        for index in range(depth):
            inputs, rate = width if index else 3, 2**index
            self.first.append(tn.Conv1d(inputs, width, 3, dilation=rate))
            self.second.append(tn.Conv1d(width, width, 3, dilation=rate))
            self.shortcuts.append(tn.Conv1d(inputs, width, 1) if index == 0 else tn.Identity())
        self.out = tn.Linear(width, 4)

    def forward(self, sequence):
        x = sequence.transpose(1, 2)
        layers = zip(self.first, self.second, self.shortcuts, strict=True)
        for index, (first, second, shortcut) in enumerate(layers):
            before = (2 * 2**index, 0)
            y = first(tn.functional.pad(x, before)).relu()  # counterpart: both_sides
            y = second(tn.functional.pad(y, before)).relu()  # counterpart: relu_late
            x = (shortcut(x) + y).relu()  # counterpart: relu_late
        return self.out(x[..., -1])  # counterpart: mean_over_time


class EquinoxTCN(eqx.Module):
    first: list[eqx.nn.Conv1d]
    second: list[eqx.nn.Conv1d]
    shortcut: eqx.nn.Conv1d
    out: eqx.nn.Linear
    bug: str = eqx.field(static=True)

    def __init__(self, width, depth, bug, key):
        keys = jax.random.split(key, (depth + 1, 2))
        self.first, self.second, self.bug = [], [], bug
        for index in range(depth):
            inputs, rate = width if index else 3, 2**index
            past = 2 * rate
            padding = (
                ((rate, rate),) if bug == "both_sides" else ((past, 0),)
            )  # planted: both_sides
            how = {"padding": padding, "dilation": rate}
            self.first.append(eqx.nn.Conv1d(inputs, width, 3, **how, key=keys[index, 0]))
            self.second.append(eqx.nn.Conv1d(width, width, 3, **how, key=keys[index, 1]))
        self.shortcut = eqx.nn.Conv1d(3, width, 1, key=keys[-1, 0])
        self.out = eqx.nn.Linear(width, 4, key=keys[-1, 1])

    def __call__(self, sequence):
        x = sequence.T
        for index, (first, second) in enumerate(zip(self.first, self.second, strict=True)):
            y = second(jax.nn.relu(first(x)))  # planted: both_sides
            y = y if self.bug == "relu_late" else jax.nn.relu(y)  # planted: relu_late
            x = jax.nn.relu((x if index else self.shortcut(x)) + y)  # planted: relu_late
        last = x.mean(-1) if self.bug == "mean_over_time" else x[:, -1]  # planted: mean_over_time
        return self.out(last)  # planted: mean_over_time


def equinox_tcn(width=16, depth=3, bug=""):
    return lambda key: EquinoxTCN(width, depth, bug, key)


PAIRS = (
    Pair(
        name="x_vector",
        source="Snyder et al. 2018",
        libraries=("torch", "linen"),
        one=lambda: TorchXVector,
        other=LinenXVector,
        inputs=Box((16, 5)),
        bugs=(
            Bug("biased", ("constant",), "divides the variance by n, not n - 1 as PyTorch"),
            Bug(
                "std_first",
                ("concatenation",),
                "joins deviations before means",
            ),
            Bug("dilation", ("dilation",), "dilation 1 for 2"),
        ),
    ),
    Pair(
        name="tcn",
        source="Bai et al. 2018",
        libraries=("torch", "equinox"),
        one=lambda: TorchTCN,
        other=equinox_tcn,
        inputs=Box((12, 3)),
        bugs=(
            Bug("both_sides", ("padding",), "pads on both sides, so that outputs see the future"),
            Bug("relu_late", ("activation", "operation_order"), "leaves out the branch's ReLU"),
            Bug("mean_over_time", ("pooling",), "averages over time"),
        ),
    ),
)
