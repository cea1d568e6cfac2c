"""Residual layers that are stacked along an axis and scanned, against separate ones."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax

from triglot.core.specs import Box

from ..pair import Bug, Pair


class EquinoxLayer(eqx.Module):
    norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, size: int, key: Any) -> None:
        first, second = jax.random.split(key)
        self.norm = eqx.nn.LayerNorm(size, eps=1e-6)
        self.up = eqx.nn.Linear(size, 2 * size, key=first)
        self.down = eqx.nn.Linear(2 * size, size, key=second)

    def __call__(self, x: Any) -> Any:
        h = self.norm(x)  # counterpart: scan_epsilon, scan_count
        h = jax.nn.silu(self.up(h))  # counterpart: scan_gelu, scan_count
        return x + self.down(h)


class EquinoxLayers(eqx.Module):
    """Separate layers, as in He et al. 2016, "Identity mappings in deep residual networks"."""

    embed: eqx.nn.Linear
    layers: list[EquinoxLayer]
    head: eqx.nn.Linear

    def __init__(self, size: int, depth: int, key: Any) -> None:
        first, second, third = jax.random.split(key, 3)
        self.embed = eqx.nn.Linear(5, size, key=first)
        self.layers = [EquinoxLayer(size, each) for each in jax.random.split(second, depth)]
        self.head = eqx.nn.Linear(size, 3, key=third)

    def __call__(self, x: Any) -> Any:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)  # counterpart: scan_reverse
        return self.head(x)


def equinox_layers(size: int = 6, depth: int = 3) -> Any:
    return lambda key: EquinoxLayers(size, depth, key)


class LinenLayer(nn.Module):
    bug: str

    @nn.compact
    def __call__(self, x: Any, _: None) -> tuple[Any, None]:
        epsilon = 1e-3 if self.bug == "scan_epsilon" else 1e-6  # planted: scan_epsilon
        h = nn.LayerNorm(epsilon=epsilon)(x)  # planted: scan_epsilon
        h = nn.Dense(2 * x.shape[-1])(h)
        h = nn.gelu(h) if self.bug == "scan_gelu" else nn.silu(h)  # planted: scan_gelu
        return x + nn.Dense(x.shape[-1])(h), None


class LinenStack(nn.Module):
    size: int = 6
    depth: int = 3
    bug: str = ""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dense(self.size, name="embed")(x)
        stack = nn.scan(
            LinenLayer,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=self.depth - (self.bug == "scan_count"),  # planted: scan_count
            reverse=self.bug == "scan_reverse",
        )
        x, _ = stack(self.bug, name="layers")(x, None)  # planted: scan_reverse, scan_count
        return nn.Dense(3, name="head")(x)


PAIRS = (
    Pair(
        name="scanned_layers",
        source="He et al. 2016",
        libraries=("equinox", "linen"),
        one=equinox_layers,
        other=LinenStack,
        inputs=Box((5,)),
        bugs=(
            Bug("scan_epsilon", ("norm_epsilon",), "another epsilon in the scanned body"),
            Bug("scan_gelu", ("activation",), "another activation in the scanned body"),
            Bug("scan_count", ("layer_count",), "one layer too few in the stack"),
            Bug("scan_reverse", ("layer_order",), "the stack is applied in reverse"),
        ),
    ),
)
