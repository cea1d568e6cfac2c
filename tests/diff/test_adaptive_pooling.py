"""Adaptive pooling of PyTorch and Equinox: equal windows agree, others are named."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from tests.extras import skip_missing
from triglot import diff_networks
from triglot.core.specs import Box

pytestmark = pytest.mark.library_promotion("layers of the libraries mix ranks")


def in_torch(kind: str, size: int, target: int) -> Any:
    import torch

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 4, 1)
            self.pool = getattr(torch.nn, f"Adaptive{kind}Pool2d")(target)
            self.last = torch.nn.Linear(4 * target * target, 2)

        def forward(self, x: Any) -> Any:
            return self.last(torch.tanh(self.pool(torch.tanh(self.first(x)))).flatten(1))

    del size
    return Pooled


class InEquinox(eqx.Module):
    first: eqx.nn.Conv2d
    pool: Any
    last: eqx.nn.Linear

    def __init__(self, kind: str, target: int, key: jax.Array) -> None:
        keys = jax.random.split(key)
        self.first = eqx.nn.Conv2d(3, 4, 1, key=keys[0])
        self.pool = getattr(eqx.nn, f"Adaptive{kind}Pool2d")(target)
        self.last = eqx.nn.Linear(4 * target * target, 2, key=keys[1])

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(jnp.tanh(self.pool(jnp.tanh(self.first(x)))).ravel())


def in_equinox(kind: str, size: int, target: int) -> Any:
    del size
    return lambda key: InEquinox(kind, target, key)


class InLinen(nn.Module):
    """Windows of PyTorch's adaptive pooling, written by hand."""

    size: int
    target: int
    reduce: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = jnp.tanh(nn.Conv(4, (1, 1), name="first")(x.transpose(0, 2, 3, 1)))
        windows = [
            (i * self.size // self.target, -(-(i + 1) * self.size // self.target))
            for i in range(self.target)
        ]
        x = jnp.stack([self.reduce(x[:, a:b], 1) for a, b in windows], 1)
        x = jnp.stack([self.reduce(x[:, :, a:b], 2) for a, b in windows], 2)
        return nn.Dense(2, name="last")(jnp.tanh(x).transpose(0, 3, 1, 2).reshape(len(x), -1))


def in_linen(kind: str, size: int, target: int) -> Any:
    return InLinen(size, target, jnp.max if kind == "Max" else jnp.mean)


BUILD = {"torch": in_torch, "equinox": in_equinox, "linen": in_linen}
CASES = {
    "overlapping windows": (("torch", "Max"), ("linen", "Max"), 7, 3, set()),
    "equal windows": (("torch", "Max"), ("equinox", "Max"), 6, 3, set()),
    "one window": (("torch", "Max"), ("equinox", "Max"), 7, 1, set()),
    "overlapping averages": (("torch", "Avg"), ("linen", "Avg"), 7, 3, set()),
    "windows that do not overlap": (
        ("torch", "Max"), ("equinox", "Max"), 7, 3, {"adaptive_pooling"}
    ),
    "averages that do not overlap": (
        ("torch", "Avg"), ("equinox", "Avg"), 7, 3, {"adaptive_pooling"}
    ),
    "a maximum and an average": (("torch", "Max"), ("linen", "Avg"), 7, 3, {"pooling"}),
    "of equal windows": (("equinox", "Max"), ("linen", "Avg"), 6, 3, {"pooling"}),
}  # fmt: skip


@pytest.mark.covering(8)
@pytest.mark.parametrize("case", CASES)
def test_adaptive_pooling(case: str) -> None:
    one, other, size, target, names = CASES[case]
    for library, _ in (one, other):
        skip_missing(library)
    first, second = (BUILD[library](kind, size, target) for library, kind in (one, other))
    report = diff_networks(first, second, Box((3, size, size)), level="quick")
    assert {cause.name for cause in report.causes} - {"precision"} == names, report
    assert (report.verdict == "different") == bool(names), report
