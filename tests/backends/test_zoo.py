"""What all zoos have in common."""

import importlib
import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compiled import compiled
from tests.extras import BACKENDS
from triglot.backends import build
from triglot.backends.translate import translate
from triglot.core.errors import TriglotError
from triglot.core.network import Network, Statistics, Variables
from triglot.core.networks.architecture import (
    BATCH_NORM_EPSILON,
    BATCH_NORM_MOMENTUM,
    CNN,
    LAYER_NORM_EPSILON,
    MLP,
    NetworkSpec,
    RecurrentCell,
    Table,
    Torso,
    policy_head,
    q_head,
    value_head,
)
from triglot.core.networks.noise import draw_noise
from triglot.core.specs import Box, Discrete
from triglot.core.types import PyTree

HEADS = (("q", q_head(3, dueling=True)), ("v", value_head()))
MLP_LAYERS, CNN_LAYERS = MLP((4, 5), "relu"), CNN((2,), 3, (4,))
KEY = jax.random.key(7)


@pytest.mark.parametrize("name", ["haiku", "linen", "nnx", "equinox"])
def test_the_former_place_of_a_zoo_is_deprecated(name: str) -> None:
    former, new = f"triglot.backends.zoo.{name}", f"triglot.backends.{name}.zoo"
    sys.modules.pop(former, None)
    with pytest.warns(DeprecationWarning, match=f"{former} is deprecated .* import {new}"):
        module = importlib.import_module(former)
    assert module.make is importlib.import_module(new).make


def network(backend: str, torso: Torso, arithmetic: str = "native", **more: Any) -> Network:
    obs_spec = Box((3,)) if isinstance(torso, MLP) else Box((4, 4, 2))
    spec = {"q": NetworkSpec(obs_spec, torso, HEADS, **more)}
    return compiled(build(backend, spec, arithmetic=arithmetic))


def normed(torso: MLP | CNN, normalization: str) -> MLP | CNN:
    return replace(torso, normalization=normalization, normalize_inputs=True)


def perturbed(network: Network, key: jax.Array = KEY) -> Variables:
    """Draw variables whose scales, biases and sigmas are not those of the start."""
    variables = network.init(jax.random.key(0))
    leaves, structure = jax.tree.flatten(variables.params)
    keys = jax.random.split(key, len(leaves))
    moved = [a + 0.3 * jax.random.normal(k, a.shape) for a, k in zip(leaves, keys, strict=True)]
    return replace(variables, params=structure.unflatten(moved))


def observations(torso: Torso) -> jax.Array:
    shape = (3,) if isinstance(torso, MLP) else (4, 4, 2)
    return 1.0 + 2.0 * jax.random.normal(jax.random.key(3), (6, *shape))


def results(
    network: Network, variables: Variables, obs: jax.Array, *, train: bool
) -> tuple[PyTree, PyTree]:
    """Compute outputs and new statistics, and gradients by canonical name."""

    def loss(params: PyTree) -> tuple[jax.Array, PyTree]:
        own = Variables(params=params, state=variables.state)
        outputs, state = network.apply(own, obs, key=KEY if train else None, train=train)
        total = sum(jnp.sin(head).sum() for head in jax.tree.leaves(outputs))
        return jnp.asarray(total), (outputs, jax.tree.leaves(state))

    (_, aux), grads = jax.jit(lambda p: network.value_and_grad(loss)(p))(variables.params)
    assert network.codec is not None
    return aux, network.codec.encode(grads)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_network_is_built_without_compiling(backend: str) -> None:
    def spec(width: int) -> NetworkSpec:
        return NetworkSpec(Box((4,)), MLP((width,)), (("logits", policy_head(2)),))

    build(backend, {"actor": spec(5)})  # makes the first key of the process
    compiled = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        compiled.extend([duration_secs] if event.endswith("backend_compile_duration") else [])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        jax.jit(lambda: 1)()  # the listener hears it
        build(backend, {"actor": spec(20 + BACKENDS.index(backend))})
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(compiled) == 1


RESIDUAL = CNN((2, 3), 3, (4,), residual=True)
TORSOS = {"mlp": MLP_LAYERS, "cnn": CNN_LAYERS}
LAYERS = (
    {
        f"{kind} {name}": (torso if kind == "noisy" else normed(torso, kind), noise)
        for kind, noise in (("layer", None), ("batch", None), ("noisy", 0.5))
        for name, torso in TORSOS.items()
    }
    | {
        f"{kind} after activations, {name}": (
            replace(normed(torso, kind), normalize_after_activation=True),
            None,
        )
        for kind in ("layer", "batch")
        for name, torso in TORSOS.items()
    }
    | {
        "residual": (RESIDUAL, None),
        "layer residual cnn": (replace(RESIDUAL, normalization="layer"), None),
        "batch residual cnn": (replace(RESIDUAL, normalization="batch"), None),
    }
)


def slow_if_images(cases: dict[str, Any]) -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.slow if name.endswith("cnn") else ()) for name in cases
    ]


@pytest.mark.slow
@pytest.mark.parametrize("case", slow_if_images(LAYERS))
def test_norms_and_noisy_layers_compute_one_function_in_all_libraries(case: str) -> None:
    torso, noise = LAYERS[case]
    obs, first = observations(torso), network("haiku", torso, noise=noise)
    variables = perturbed(first)
    for train in (False, True) if case.startswith("batch") else (True,):
        expected = results(first, variables, obs, train=train)
        for backend in BACKENDS[1:]:
            other = network(backend, torso, noise=noise)
            found = results(other, translate(variables, first, other), obs, train=train)
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5), expected, found
            )


@pytest.mark.optimized
@pytest.mark.covering(6)
@pytest.mark.parametrize("case", slow_if_images(LAYERS))
def test_they_are_equal_bit_for_bit_in_canonical_arithmetic(case: str) -> None:
    torso, noise = LAYERS[case]
    obs, first = observations(torso), network("haiku", torso, "canonical", noise=noise)
    variables = perturbed(first)
    expected = results(first, variables, obs, train=True)
    for backend in BACKENDS[1:]:
        other = network(backend, torso, "canonical", noise=noise)
        found = results(other, translate(variables, first, other), obs, train=True)
        jax.tree.map(np.testing.assert_array_equal, expected, found)


@pytest.mark.slow
def test_lecun_normal_draws_the_same_kernels_in_all_libraries() -> None:
    specs = {
        "mlp": NetworkSpec(Box((50,)), MLP((200,)), HEADS, noise=0.5, lecun_normal=True),
        "cnn": NetworkSpec(Box((4, 4, 5)), CNN((200,), 3), HEADS, lecun_normal=True),
    }
    drawn = []
    for backend in BACKENDS:
        own = build(backend, specs)
        assert own.codec is not None
        drawn.append(own.codec.encode(own.init(KEY).params))
        jax.tree.map(np.testing.assert_array_equal, drawn[0], drawn[-1])
    for name, shape in {"mlp/torso/0/mu": (50, 200), "cnn/torso/0": (3, 3, 5, 200)}.items():
        kernel, bias = (np.asarray(drawn[0][f"{name}/{leaf}"]) for leaf in ("kernel", "bias"))
        assert kernel.shape == shape and not bias.any()
        assert kernel.var() == pytest.approx(1.0 / np.prod(shape[:-1]), rel=0.05)
        assert abs(kernel).max() * np.prod(shape[:-1]) ** 0.5 < 2.3  # truncated at two deviations
    sigma = np.asarray(drawn[0]["mlp/torso/0/sigma/kernel"])
    np.testing.assert_allclose(sigma, 0.5 / 50**0.5, rtol=1e-6)
    own = build("linen", {"q": specs["cnn"].with_library_initializers()}).init(KEY).params
    assert not np.array_equal(own["q"]["torso_0"]["kernel"], drawn[0]["cnn/torso/0/kernel"])


@pytest.mark.covering(7)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_noisy_layer_is_that_of_the_paper(backend: str) -> None:
    spec = NetworkSpec(Box((3,)), MLP(()), (("v", q_head(2)),), noise=0.5)
    noisy = build(backend, {"q": spec})
    variables, obs = noisy.init(jax.random.key(0)), observations(MLP(()))
    assert noisy.codec is not None
    named = noisy.codec.encode(variables.params)
    mu, sigma = (
        [np.asarray(named[f"q/head/v/{part}/{leaf}"]) for leaf in ("kernel", "bias")]
        for part in ("mu", "sigma")
    )
    np.testing.assert_allclose(sigma[0], 0.5 / 3**0.5, rtol=1e-6)
    np.testing.assert_allclose(sigma[1], 0.5 / 3**0.5, rtol=1e-6)
    key = jax.random.split(KEY, 1)[0]  # as `combine` does
    drawn = np.asarray(jax.random.normal(key, (5,)))
    f = np.sign(drawn) * np.sqrt(np.abs(drawn))
    weight = mu[0] + sigma[0] * np.outer(f[:3], f[3:])
    expected = np.asarray(obs) @ weight + mu[1] + sigma[1] * f[3:]
    found = noisy.apply(variables, obs, key=KEY)[0]["q"]["v"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    mean = noisy.apply(variables, obs)[0]["q"]["v"]
    np.testing.assert_allclose(mean, np.asarray(obs) @ mu[0] + mu[1], rtol=1e-4, atol=1e-5)


def test_noise_has_the_signed_root_of_a_normal_number() -> None:
    drawn = jnp.concatenate(list(draw_noise({"b": 3, "a": 50_000}, KEY).values()))
    assert drawn.shape == (50_003,)
    assert abs(float(drawn.mean())) < 0.02
    assert float((drawn**2).mean()) == pytest.approx((2 / np.pi) ** 0.5, abs=0.01)  # E|e|


@pytest.mark.covering(14)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_last", [False, True], ids=["before", "after"])
def test_layer_normalization_by_hand(backend: str, is_last: bool) -> None:
    torso = MLP((4,), "relu", normalization="layer", normalize_after_activation=is_last)
    spec = NetworkSpec(Box((3,)), torso, (("v", q_head(2)),))
    own = build(backend, {"q": spec})
    variables, obs = perturbed(own), np.asarray(observations(torso))
    assert own.codec is not None
    named = {
        n.removeprefix("q/"): np.asarray(a) for n, a in own.codec.encode(variables.params).items()
    }

    def normalized(x: np.ndarray) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + LAYER_NORM_EPSILON)
        return x * named["norm/0/scale"] + named["norm/0/bias"]

    x = obs @ named["torso/0/kernel"] + named["torso/0/bias"]
    x = normalized(np.maximum(x, 0.0)) if is_last else np.maximum(normalized(x), 0.0)
    expected = x @ named["head/v/kernel"] + named["head/v/bias"]
    found = own.apply(variables, jnp.asarray(obs))[0]["q"]["v"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.covering(7)
@pytest.mark.parametrize("backend", BACKENDS)
def test_batch_normalization_by_hand(backend: str) -> None:
    """In training by the batch, whose statistics move the running ones; otherwise by these."""
    torso = MLP((), normalization="batch", normalize_inputs=True)
    spec = NetworkSpec(Box((3,)), torso, (("v", q_head(2)),))
    own = build(backend, {"q": spec})
    variables, obs = perturbed(own), np.asarray(observations(torso))
    assert own.codec is not None
    named = {
        n.removeprefix("q/"): np.asarray(a) for n, a in own.codec.encode(variables.params).items()
    }

    def expected(mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        x = (obs - mean) / np.sqrt(var + BATCH_NORM_EPSILON)
        x = x * named["norm/input/scale"] + named["norm/input/bias"]
        return x @ named["head/v/kernel"] + named["head/v/bias"]

    mean, var, state = np.zeros(3), np.ones(3), variables.state
    for _ in range(2):
        found, state = own.apply(variables, jnp.asarray(obs), train=True)
        batch = obs.mean(0), obs.var(0)
        np.testing.assert_allclose(found["q"]["v"], expected(*batch), rtol=1e-3, atol=1e-4)
        mean, var = (
            BATCH_NORM_MOMENTUM * old + (1.0 - BATCH_NORM_MOMENTUM) * new
            for old, new in zip((mean, var), batch, strict=True)
        )
        variables = replace(variables, state=state)
    kept = state["q"].named
    np.testing.assert_allclose(kept["norm/input/mean"], mean, rtol=1e-4)
    np.testing.assert_allclose(kept["norm/input/var"], var, rtol=1e-4)
    found, same = own.apply(variables, jnp.asarray(obs))
    np.testing.assert_allclose(found["q"]["v"], expected(mean, var), rtol=1e-3, atol=1e-4)
    jax.tree.map(np.testing.assert_array_equal, same, state)


@pytest.mark.slow
def test_ensembles_and_frozen_networks_keep_statistics() -> None:
    spec = NetworkSpec(
        Box((3,)), normed(MLP((4,)), "batch"), (("v", value_head()),), ensemble_size=2
    )
    nets = [build(backend, {"q": spec}) for backend in ("haiku", "equinox")]
    variables = perturbed(nets[0])
    _, state = nets[0].apply(variables, observations(MLP()), train=True)
    variables = replace(variables, state=state)
    assert isinstance(state["q"], Statistics) and state["q"].named["norm/0/mean"].shape == (2, 4)
    moved = translate(variables, nets[0], nets[1])
    for one, other in zip(nets, (variables, moved), strict=True):
        assert one.apply(other, observations(MLP()))[0]["q"]["v"].shape == (2, 6)
    np.testing.assert_allclose(
        *(
            n.apply(v, observations(MLP()))[0]["q"]["v"]
            for n, v in zip(nets, (variables, moved), strict=True)
        ),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            NetworkSpec(Box((3,)), MLP(normalization="group"), HEADS),
            "unknown normalization 'group'",
        ),
        (
            NetworkSpec(Box((3,)), MLP(normalize_inputs=True), HEADS),
            "inputs are normalized as the layers are",
        ),
        (
            NetworkSpec(Box((3,)), MLP(normalize_after_activation=True), HEADS),
            "nothing is normalized after the activations: choose the normalization layer or batch",
        ),
        (NetworkSpec(Discrete(3), Table(), HEADS, noise=0.5), "noisy layers are dense ones"),
        (
            NetworkSpec(Box((3,)), MLP(), HEADS, RecurrentCell(), noise=0.5),
            "noisy layers are dense ones",
        ),
    ],
)
def test_impossible_layers_are_refused(spec: NetworkSpec, message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        build("haiku", {"q": spec})


@pytest.mark.slow
def test_statistics_are_translated_only_where_both_networks_have_them() -> None:
    spec = NetworkSpec(Box((3,)), MLP((4,), normalization="batch"), HEADS)
    one = build("linen", {"q": spec})
    other = build("nnx", {"q": replace(spec, torso=MLP((4,), normalization="layer"))})
    with pytest.raises(TriglotError, match="has state besides its parameters"):
        translate(one.init(KEY), one, other)
