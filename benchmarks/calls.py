"""One call of a network from Python, with each library's own form of jit and with our adapter's.

The same small network (4 inputs, two 64-unit tanh layers, 4 outputs) on a batch of 1, called from
Python as in a notebook, and inside one compiled scan as in a training. All forms run in one
process, interleaved in random order (`benchmarks.harness`). Run it from the repository's root:

    python -m benchmarks.calls --json calls.json
"""

import functools
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from flax import linen, nnx

from triglot import from_equinox, from_haiku, from_linen, from_nnx
from triglot.compare.cost.noise import Noise
from triglot.core.network import Network
from triglot.core.specs import Box

from . import harness

SIZES = (4, 64, 64, 4)
SCAN_LENGTH = 10_000  # so that the call itself is a small part
SECONDS_PER_ROUND = 0.03  # of each form


def haiku_network(x: jax.Array) -> jax.Array:
    """Build and apply the network in Haiku."""
    for size in SIZES[1:]:
        x = jnp.tanh(hk.Linear(size)(x))
    return x


class LinenNetwork(linen.Module):
    """The network in Linen."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for size in SIZES[1:]:
            x = jnp.tanh(linen.Dense(size)(x))
        return x


class NNXNetwork(nnx.Module):
    """The network in NNX."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        pairs = itertools.pairwise(SIZES)
        self.layers = nnx.List([nnx.Linear(*pair, rngs=rngs) for pair in pairs])

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return x


class EquinoxNetwork(eqx.Module):
    """The network in Equinox, of one example."""

    layers: list[eqx.nn.Linear]

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, len(SIZES) - 1)
        pairs = zip(itertools.pairwise(SIZES), keys, strict=True)
        self.layers = [eqx.nn.Linear(*pair, key=key) for pair, key in pairs]

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return x


@dataclass(frozen=True)
class Form:
    """One way to write and compile a call.

    Attributes:
      jit: compiles a function of the model and the inputs.
      model: what holds the weights.
      apply: `apply(model, x) -> y`, float32 `[1, 4]` both.
    """

    jit: Callable[[Callable], Callable]
    model: Any
    apply: Callable[[Any, jax.Array], Any]

    def scan(self, model: Any, x: jax.Array) -> jax.Array:
        """Apply the network to its own outputs, `SCAN_LENGTH` times."""
        return jax.lax.scan(lambda x, _: (self.apply(model, x), None), x, length=SCAN_LENGTH)[0]


def forms() -> dict[str, Form]:
    """Build the network in every form; the weights of one library's forms are equal."""
    key, x = jax.random.key(0), jnp.zeros((1, SIZES[0]))
    spec = Box((SIZES[0],))
    transformed = hk.without_apply_rng(hk.transform(haiku_network))
    module, networks = (
        LinenNetwork(),
        {
            "haiku": from_haiku(haiku_network, spec),
            "linen": from_linen(LinenNetwork(), spec),
            "nnx": from_nnx(NNXNetwork),
            "equinox": from_equinox(EquinoxNetwork),
        },
    )
    made = {name: network.init(key) for name, network in networks.items()}
    built = nnx.merge(nnx.graphdef(NNXNetwork(nnx.Rngs(0))), made["nnx"].params, made["nnx"].state)
    equinox = eqx.combine(made["equinox"].params, EquinoxNetwork(key))
    plain = [made["haiku"].params[name] for name in sorted(made["haiku"].params)]

    def plain_apply(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
        for layer in layers:
            x = jnp.tanh(x @ layer["w"] + layer["b"][None])
        return x

    def adapted(network: Network) -> Callable[[Any, jax.Array], jax.Array]:
        return lambda variables, x: network.apply(variables, x)[0]

    idiomatic = {
        "plain JAX: jax.jit": Form(jax.jit, plain, plain_apply),
        "haiku: hk.transform, jax.jit": Form(jax.jit, made["haiku"].params, transformed.apply),
        "linen: apply, jax.jit": Form(
            jax.jit, made["linen"].params, lambda params, x: module.apply({"params": params}, x)
        ),
        "nnx: nnx.jit": Form(nnx.jit, built, lambda model, x: model(x)),
        "equinox: eqx.filter_jit": Form(
            eqx.filter_jit, equinox, lambda model, x: jax.vmap(model)(x)
        ),
    }
    ours = {
        f"{name}: our adapter, jax.jit": Form(jax.jit, made[name], adapted(network))
        for name, network in networks.items()
    }
    outputs = {name: form.apply(form.model, x + 0.5) for name, form in (idiomatic | ours).items()}
    for name, output in outputs.items():
        library = name.partition(":")[0]
        own = next(o for n, o in outputs.items() if n.startswith(f"{library}:"))
        np.testing.assert_allclose(output, own, rtol=1e-5, err_msg=name)
    return dict(sorted((idiomatic | ours).items(), key=lambda item: _rank(item[0])))


def _rank(name: str) -> tuple[int, bool]:
    order = ("plain JAX", "haiku", "linen", "nnx", "equinox")
    return order.index(name.partition(":")[0]), "our adapter" in name


class Repeated:
    """Repeats a call for about `SECONDS_PER_ROUND`, waiting for each.

    A round's value is the median of its calls, which an interruption by another process does not
    change.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call, self.medians = call, []
        for _ in range(3):
            self.seconds()  # the first one compiles
        self.count = max(3, int(SECONDS_PER_ROUND / min(self.seconds() for _ in range(5))))

    def seconds(self) -> float:
        """Time one call."""
        start = time.perf_counter()
        jax.block_until_ready(self.call())
        return time.perf_counter() - start

    def __call__(self) -> None:
        """Time all calls of a round."""
        self.medians.append(statistics.median(self.seconds() for _ in range(self.count)))


def measure(rounds: int = 30) -> dict[str, Any]:
    """Time every form.

    Returns:
      `forms`, by name `call_microseconds` and `scan_step_microseconds`, each a `harness.Interval`;
      `noise`; `rounds`; and `environment`.
    """
    environment, noise = harness.environment(), Noise()
    x = jnp.full((1, SIZES[0]), 0.5)
    calls: dict[str, Repeated] = {}
    scans: dict[str, Repeated] = {}
    for name, form in forms().items():
        calls[name] = Repeated(functools.partial(form.jit(form.apply), form.model, x))
        scans[name] = Repeated(functools.partial(form.jit(form.scan), form.model, x))
    thunks: dict[str, Any] = {"": noise.calibrate}
    thunks |= {f"{name} call": call for name, call in calls.items()}
    thunks |= {f"{name} scan": scan for name, scan in scans.items()}
    harness.measure(thunks, rounds=rounds)

    def microseconds(repeated: Repeated, steps: int = 1) -> harness.Interval:
        return harness.interval(1e6 / steps * np.array(repeated.medians[-rounds:]))

    return {
        "environment": environment,
        "rounds": rounds,
        "forms": {
            name: {
                "call_microseconds": microseconds(calls[name]),
                "scan_step_microseconds": microseconds(scans[name], SCAN_LENGTH),
            }
            for name in calls
        },
        "noise": noise.as_json(),
    }


def main(rounds: int = 30, json: Path | None = None) -> None:
    """Measure and print a table.

    Args:
      rounds: each round runs every form once.
      json: a file for the result, overwritten.
    """
    result = measure(rounds)
    rows = [
        [name, *(_shown(row[kind]) for kind in ("call_microseconds", "scan_step_microseconds"))]
        for name, row in result["forms"].items()
    ]
    header = ["batch of 1, median [95%]", "call from Python, µs", "step in a scan, µs"]
    harness.print_table(header, rows)
    print(result["noise"]["sentence"])
    if json is not None:
        harness.write_json(json, result)
        print(f"written to {json}")


def _shown(found: harness.Interval) -> str:
    digits = 2 if found.median < 10 else 0
    return f"{found.median:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


if __name__ == "__main__":
    tyro.cli(main)
