"""Networks of points, sets and graphs: NeRF, SIREN, DeepSets, graph convolution."""

import itertools

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.core.specs import Box

from ..pair import Bug, Pair


def jax_dense(key, inputs, outputs):
    w = jax.random.normal(key, (inputs, outputs)) / inputs**0.5
    return {"w": w, "b": jnp.zeros(outputs)}


def apply_dense(p, x):
    return x @ p["w"] + p["b"]


def jax_nerf(width=16, frequencies=4):
    """Mildenhall et al. 2020: sines and cosines of a point, and a skip connection."""
    features = 3 * (2 * frequencies + 1)

    def init(key):
        keys = jax.random.split(key, 5)
        return {
            "first": jax_dense(keys[0], features, width),
            "second": jax_dense(keys[1], width, width),
            "third": jax_dense(keys[2], width + features, width),
            "density": jax_dense(keys[3], width, 1),
            "color": jax_dense(keys[4], width, 3),
        }

    def apply(params, point):
        scales = 2.0 ** jnp.arange(frequencies)  # counterpart: without_pi
        angles = (jnp.pi * point[..., None, :] * scales[:, None]).reshape(len(point), -1)
        encoded = jnp.concatenate([point, jnp.sin(angles), jnp.cos(angles)], -1)
        x = jax.nn.relu(apply_dense(params["first"], encoded))
        x = jax.nn.relu(apply_dense(params["second"], x))
        x = jnp.concatenate([x, encoded], -1)  # counterpart: skip_first
        x = jax.nn.relu(apply_dense(params["third"], x))
        density = jax.nn.softplus(apply_dense(params["density"], x))  # counterpart: relu_density
        return density, jax.nn.sigmoid(apply_dense(params["color"], x))

    return init, apply


class EquinoxNeRF(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    third: eqx.nn.Linear
    density: eqx.nn.Linear
    color: eqx.nn.Linear
    frequencies: int = eqx.field(static=True)
    bug: str = eqx.field(static=True)

    def __init__(self, width, frequencies, bug, key):
        keys = jax.random.split(key, 5)
        features = 3 * (2 * frequencies + 1)
        self.first = eqx.nn.Linear(features, width, key=keys[0])
        self.second = eqx.nn.Linear(width, width, key=keys[1])
        self.third = eqx.nn.Linear(width + features, width, key=keys[2])
        self.density = eqx.nn.Linear(width, 1, key=keys[3])
        self.color = eqx.nn.Linear(width, 3, key=keys[4])
        self.frequencies, self.bug = frequencies, bug

    def __call__(self, point):
        unit = 1.0 if self.bug == "without_pi" else jnp.pi  # planted: without_pi
        angles = jnp.outer(unit * 2.0 ** jnp.arange(self.frequencies), point)  # planted: without_pi
        if self.bug == "by_axis":
            angles = angles.T  # planted: by_axis
        angles = angles.ravel()  # planted: by_axis
        encoded = jnp.concatenate([point, jnp.sin(angles), jnp.cos(angles)])  # planted: by_axis
        x = jax.nn.relu(self.second(jax.nn.relu(self.first(encoded))))
        parts = [encoded, x] if self.bug == "skip_first" else [x, encoded]  # planted: skip_first
        x = jax.nn.relu(self.third(jnp.concatenate(parts)))  # planted: skip_first
        positive = jax.nn.relu if self.bug == "relu_density" else jax.nn.softplus
        density = positive(self.density(x))  # planted: relu_density
        return density, jax.nn.sigmoid(self.color(x))


def equinox_nerf(width=16, frequencies=4, bug=""):
    return lambda key: EquinoxNeRF(width, frequencies, bug, key)


def haiku_siren(width=16, layers=3, omega=30.0):
    """Sitzmann et al. 2020."""

    def network(point):
        x = point
        for index in range(layers):
            bound = 1 / x.shape[-1] if index == 0 else (6 / x.shape[-1]) ** 0.5 / omega
            init = hk.initializers.RandomUniform(-bound, bound)
            x = hk.Linear(width, w_init=init)(x)
            x = jnp.sin(omega * x)  # counterpart: omega_one, omega_bias, cosine
        return hk.Linear(3)(x)

    return network


class NNXSiren(nnx.Module):
    def __init__(self, width, layers, omega, bug, rngs):
        self.layers, inputs = nnx.List(), 2
        for index in range(layers):
            bound = 1 / inputs if index == 0 else (6 / inputs) ** 0.5 / omega
            init = lambda key, shape, dtype, *_, b=bound, **__: jax.random.uniform(  # noqa: E731
                key, shape, dtype, -b, b
            )
            self.layers.append(nnx.Linear(inputs, width, kernel_init=init, rngs=rngs))
            inputs = width
        self.out = nnx.Linear(width, 3, rngs=rngs)
        self.omega, self.bug = omega, bug

    def __call__(self, point):
        x = point
        for index, layer in enumerate(self.layers):
            omega = 1.0 if self.bug == "omega_one" and index else self.omega  # planted: omega_one
            if self.bug == "omega_bias":
                kernel, bias = layer.kernel[...], layer.bias[...]
                x = jnp.sin(omega * (x @ kernel) + bias)  # planted: omega_bias
            else:
                wave = jnp.cos if self.bug == "cosine" else jnp.sin  # planted: cosine
                x = wave(omega * layer(x))  # planted: omega_one, cosine
        return self.out(x)


def nnx_siren(width=16, layers=3, omega=30.0, bug=""):
    return lambda rngs: NNXSiren(width, layers, omega, bug, rngs)


class LinenDeepSets(nn.Module):
    """Zaheer et al. 2017, with equivariant layers and a masked mean."""

    width: int = 16

    @nn.compact
    def __call__(self, members, is_member):
        x, mask = members, is_member[..., None]
        for _ in range(2):
            pooled = (x * mask).max(1, keepdims=True)
            x = nn.relu(nn.Dense(self.width)(x) - nn.Dense(self.width, use_bias=False)(pooled))
        count = jnp.maximum(mask.sum(1), 1.0)  # counterpart: all_counted
        x = (x * mask).sum(1) / count  # counterpart: all_counted, unmasked
        return nn.Dense(4)(nn.relu(nn.Dense(self.width)(x)))


def haiku_deepsets(width=16, bug=""):
    def network(members, is_member):
        x, mask = members, is_member[..., None]
        for _ in range(2):
            pooled = (x * mask).max(1, keepdims=True)
            own, other = hk.Linear(width)(x), hk.Linear(width, with_bias=False)(pooled)
            y = own + other if bug == "plus" else own - other  # planted: plus
            x = jax.nn.relu(y)  # planted: plus
        count = jnp.maximum(mask.sum(1), 1.0)
        if bug == "all_counted":
            count = float(mask.shape[1])  # planted: all_counted
        kept = x if bug == "unmasked" else x * mask  # planted: unmasked
        x = kept.sum(1) / count  # planted: all_counted, unmasked
        return hk.Linear(4)(jax.nn.relu(hk.Linear(width)(x)))

    return network


class NNXGraph(nnx.Module):
    """Kipf & Welling 2017: neighbours weighted by the roots of both degrees."""

    def __init__(self, width, depth, rngs):
        sizes = (5, *(width,) * depth)
        self.layers = nnx.List(
            nnx.Linear(a, b, use_bias=False, rngs=rngs) for a, b in itertools.pairwise(sizes)
        )
        self.out = nnx.Linear(width, 3, rngs=rngs)

    def __call__(self, nodes, edges):
        adjacency = jnp.maximum(edges, edges.swapaxes(1, 2)) + jnp.eye(edges.shape[-1])
        scale = jax.lax.rsqrt(adjacency.sum(-1))  # counterpart: row_normalized, no_loops
        adjacency = adjacency * scale[:, None] * scale[..., None]  # counterpart: row_normalized
        x = nodes
        for layer in self.layers:
            x = nnx.relu(layer(adjacency @ x))  # counterpart: relu_first
        return self.out(x.sum(1))


def nnx_graph(width=16, depth=2):
    return lambda rngs: NNXGraph(width, depth, rngs)


def jax_graph(width=16, depth=2, bug=""):
    def init(key):
        keys = jax.random.split(key, depth + 1)
        sizes = (5, *(width,) * depth)
        layers = zip(keys[1:], sizes[:-1], sizes[1:], strict=True)
        return {
            "layers": [jax_dense(*each)["w"] for each in layers],
            "out": jax_dense(keys[0], width, 3),
        }

    def apply(params, nodes, edges):
        adjacency = jnp.maximum(edges, edges.swapaxes(1, 2))
        if bug != "no_loops":
            adjacency = adjacency + jnp.eye(edges.shape[-1])  # planted: no_loops
        degree = adjacency.sum(-1)  # planted: no_loops, row_normalized
        if bug == "row_normalized":
            adjacency = adjacency / degree[..., None]  # planted: row_normalized
        else:
            scale = 1 / jnp.sqrt(degree)
            adjacency = scale[..., None] * adjacency * scale[:, None]
        x = nodes
        for w in params["layers"]:
            if bug == "relu_first":
                x = adjacency @ jax.nn.relu(x @ w)  # planted: relu_first
            else:
                x = jax.nn.relu(adjacency @ x @ w)
        return apply_dense(params["out"], x.sum(1))

    return init, apply


PAIRS = (
    Pair(
        name="nerf",
        source="Mildenhall et al. 2020",
        libraries=("jax", "equinox"),
        one=jax_nerf,
        other=equinox_nerf,
        inputs=Box((3,), "float32", -1.0, 1.0),
        bugs=(
            Bug("without_pi", ("constant", "position_embedding"), "angles without the factor pi"),
            Bug("by_axis", ("flatten_order",), "orders angles by axis, then by frequency"),
            Bug(
                "skip_first",
                ("concatenation",),
                "joins the skip connection first",
            ),
            Bug("relu_density", ("activation",), "ReLU for softplus"),
        ),
    ),
    Pair(
        name="siren",
        source="Sitzmann et al. 2020",
        libraries=("haiku", "nnx"),
        one=haiku_siren,
        other=nnx_siren,
        inputs=Box((2,), "float32", -1.0, 1.0),
        bugs=(
            Bug("omega_one", ("constant",), "omega 30 in the first layer only"),
            Bug("omega_bias", ("operation_order",), "adds the bias after the factor omega"),
            Bug("cosine", ("activation",), "cosine for sine"),
        ),
    ),
    Pair(
        name="deepsets",
        source="Zaheer et al. 2017",
        libraries=("linen", "haiku"),
        one=LinenDeepSets,
        other=haiku_deepsets,
        inputs=(Box((6, 4)), Box((6,), "float32", 0.0, 1.0, whole=True)),
        bugs=(
            Bug("plus", ("operation_differs", "constant"), "adds the pooled part"),
            Bug(
                "all_counted",
                ("constant", "operand_source"),
                "divides by the size, not the members",
            ),
            Bug("unmasked", ("operation_missing", "attention_mask"), "sums without the mask"),
        ),
    ),
    Pair(
        name="graph_convolution",
        source="Kipf & Welling 2017",
        libraries=("nnx", "jax"),
        one=nnx_graph,
        other=jax_graph,
        inputs=(Box((6, 5)), Box((6, 6), "float32", 0.0, 1.0, whole=True)),
        bugs=(
            Bug("row_normalized", ("operation_differs",), "divides by the degree of one side"),
            Bug("no_loops", ("operation_missing",), "leaves out the edges of nodes to themselves"),
            Bug("relu_first", ("operation_order",), "activates before neighbours are summed"),
        ),
    ),
)
