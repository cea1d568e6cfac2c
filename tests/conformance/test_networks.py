"""Every zoo network of every library, in every arithmetic, through one suite."""

import itertools
from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.compiled import compiled
from tests.covering import pairwise
from tests.extras import BACKENDS
from triglot.backends import build
from triglot.backends.canonical import ARITHMETICS
from triglot.backends.translate import translate
from triglot.core import specs
from triglot.core.errors import TriglotError
from triglot.core.network import Network, Variables, num_params
from triglot.core.networks.architecture import (
    CNN,
    MLP,
    NetworkSpec,
    Table,
    policy_head,
    q_head,
    value_head,
)
from triglot.core.networks.combinators import combine, ensemble, scalar

REST = [backend for backend in BACKENDS if backend != "linen"]
slow = pytest.mark.slow
HEADS = (("logits", policy_head(2)), ("q", q_head(3)), ("value", value_head()))
DUELING = (("logits", policy_head(2)), ("q", q_head(3, dueling=True)), ("value", value_head()))
VECTOR, INDEX = specs.Box((4,)), specs.Discrete(7)
IMAGE = specs.Box((10, 10, 3), "uint8", 0, 255)


@dataclass(frozen=True)
class Case:
    name: str
    spec: NetworkSpec
    num_params: int


# Dense layers hold in * out + out numbers, convolutions size * size * in * out + out, tables rows
# * out. Strides leave 4x4 of the 10x10 pixels, then 3x3.
MLP_PARAMS = (4 * 64 + 64) + (64 * 64 + 64)
STRIDED = CNN((3, 4), (4, 2), (64,), stride=(2, 1))
CNN_PARAMS = (16 * 3 * 3 + 3) + (4 * 3 * 4 + 4) + (36 * 64 + 64)
HEAD_PARAMS = (64 * 2 + 2) + (64 * 3 + 3) + (64 + 1)
CASES = [
    Case("mlp", NetworkSpec(VECTOR, MLP(), HEADS), MLP_PARAMS + HEAD_PARAMS),
    Case("dueling", NetworkSpec(VECTOR, MLP(), DUELING), MLP_PARAMS + HEAD_PARAMS + 64 + 1),
    Case("cnn", NetworkSpec(IMAGE, STRIDED, HEADS), CNN_PARAMS + HEAD_PARAMS),
    Case("table", NetworkSpec(INDEX, Table(init=0.5), HEADS), 7 * (2 + 3 + 1)),
]
# Two images, and one vector of 2 + (2 + 3) + 4 numbers beside them.
SEEN = specs.Dict(
    {
        "eye": specs.Box((6, 5, 2), "uint8", 0, 255),
        "hand": specs.Dict({"map": specs.Box((5, 5, 1)), "signs": specs.MultiDiscrete((2, 3))}),
        "speed": specs.Box((2,)),
        "room": specs.Discrete(4),
    }
)
TWO_EYES = CNN((3, 4), (3, 2), (16,))
TWO_PARAMS = (9 * 2 * 3 + 3) + (9 * 1 * 3 + 3) + 2 * (4 * 3 * 4 + 4) + ((24 + 16 + 11) * 16 + 16)
DICTIONARIES = [
    Case(
        "dictionary",
        NetworkSpec(SEEN, TWO_EYES, HEADS),
        TWO_PARAMS + (16 * 2 + 2) + (16 * 3 + 3) + (16 + 1),
    ),
    Case(
        "flattened",
        NetworkSpec(SEEN, MLP((16,)), HEADS),
        ((60 + 25 + 11) * 16 + 16) + (16 * 2 + 2) + (16 * 3 + 3) + (16 + 1),
    ),
]
each_dictionary = pytest.mark.parametrize("case", DICTIONARIES, ids=lambda case: case.name)
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_arithmetic = pytest.mark.parametrize("arithmetic", ARITHMETICS)


def make_eager(backend: str, case: Case, arithmetic: str = "native") -> Network:
    return build(backend, {"net": case.spec}, arithmetic=arithmetic)


def make(backend: str, case: Case, arithmetic: str = "native") -> Network:
    return compiled(make_eager(backend, case, arithmetic))


def batch(case: Case, size: int) -> jax.Array:
    keys = jax.random.split(jax.random.key(7), size)
    return jax.vmap(lambda key: specs.sample(case.spec.inputs[0], key))(keys)


def assert_equal(first: object, second: object) -> None:
    chex.assert_trees_all_equal(first, second)


@pytest.mark.covering(25)
@every_case
@every_backend
@every_arithmetic
def test_outputs_have_the_heads_shapes(case: Case, backend: str, arithmetic: str) -> None:
    network = make(backend, case, arithmetic)
    variables = network.init(jax.random.key(0))
    (outputs, state) = network.apply(variables, batch(case, 5))
    shapes = {name: array.shape for name, array in outputs["net"].items()}
    assert shapes == {"logits": (5, 2), "q": (5, 3), "value": (5,)}
    assert num_params(variables.params) == case.num_params
    chex.assert_tree_all_finite(outputs)
    assert jax.tree.structure(state) == jax.tree.structure(variables.state)


@pytest.mark.slow
@every_case
@every_backend
def test_init_is_one_function_eager_jitted_and_vmapped(case: Case, backend: str) -> None:
    network = make_eager(backend, case)
    keys = jax.random.split(jax.random.key(0), 3)
    one = network.init(keys[1])
    chex.assert_trees_all_close(one, jax.jit(network.init)(keys[1]), rtol=1e-5, atol=1e-6)
    many = jax.vmap(network.init)(keys)
    second = jax.tree.map(lambda leaf: leaf[1], many)
    chex.assert_trees_all_close(one, second, rtol=1e-5, atol=1e-6)
    if case.name != "table":  # A table starts constant, whatever the key.
        kernels = [leaf for leaf in jax.tree.leaves(many.params) if leaf.any() and leaf.ndim > 2]
        assert all((leaf[0] != leaf[1]).any() for leaf in kernels)


@pytest.mark.covering(14)
@every_case
@every_backend
def test_a_batch_is_its_members(case: Case, backend: str) -> None:
    network = make(backend, case)
    variables = network.init(jax.random.key(0))
    together, _ = network.apply(variables, batch(case, 4))
    for index in range(4):
        alone, _ = network.apply(variables, batch(case, 4)[index : index + 1])
        picked = jax.tree.map(lambda leaf, i=index: leaf[i : i + 1], together)
        chex.assert_trees_all_close(alone, picked, rtol=1e-4, atol=1e-5)


@pytest.mark.covering(30)
@every_case
@every_backend
@every_arithmetic
def test_apply_leaves_its_arguments_alone(case: Case, backend: str, arithmetic: str) -> None:
    """`nnx.merge` shares Variables with the states it is given; an eager call would change them."""
    network = make_eager(backend, case, arithmetic)
    variables = network.init(jax.random.key(0))
    before = jax.tree.map(np.array, variables)
    network.apply(variables, batch(case, 3), key=jax.random.key(1), train=True)
    assert_equal(before, jax.tree.map(np.array, variables))


@pytest.mark.covering(7)
@every_backend
def test_bytes_are_scaled_to_1(backend: str) -> None:
    case = CASES[2]
    in_bytes, as_floats = batch(case, 4), batch(case, 4).astype(jnp.float32) / 255
    network = make(backend, case)
    variables = network.init(jax.random.key(0))
    assert_equal(network.apply(variables, in_bytes), network.apply(variables, as_floats))


@pytest.mark.covering(4)
@every_case
@every_backend
def test_jit_traces_once(case: Case, backend: str) -> None:
    network = make_eager(backend, case)
    chex.clear_trace_counter()
    apply = jax.jit(chex.assert_max_traces(lambda v, x: network.apply(v, x)[0], n=1))
    for seed in range(3):
        apply(network.init(jax.random.key(seed)), batch(case, 4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "source", "target"),
    pairwise(itertools.product(CASES, BACKENDS, BACKENDS)),
    ids=lambda value: getattr(value, "name", None),
)
def test_translation_loses_nothing(case: Case, source: str, target: str) -> None:
    one, other = make(source, case), make(target, case)
    variables = one.init(jax.random.key(3))
    there = translate(variables, one, other)
    assert_equal(variables.params, translate(there, other, one).params)
    ours, theirs = one.apply(variables, batch(case, 6))[0], other.apply(there, batch(case, 6))[0]
    chex.assert_trees_all_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.covering(14)
@every_case
@every_backend
def test_arithmetics_compute_one_function(case: Case, backend: str) -> None:
    native = make(backend, case)
    variables = native.init(jax.random.key(3))
    outputs, _ = native.apply(variables, batch(case, 6))
    for arithmetic in ("leaf_order", "canonical"):
        network = make(backend, case, arithmetic)
        there = translate(variables, native, network)
        assert list(jax.tree_util.tree_leaves(there.params))
        found, _ = network.apply(there, batch(case, 6))
        chex.assert_trees_all_close(outputs, found, rtol=1e-4, atol=1e-5)


def losses_and_gradients(case: Case, arithmetic: str) -> list[tuple[np.ndarray, dict]]:
    """One loss and its gradient per library, from one set of weights, in canonical form."""
    reference = make("linen", case)
    weights = reference.init(jax.random.key(3))
    obs, found = batch(case, 32), []
    for backend in BACKENDS:
        network = make(backend, case, arithmetic)
        variables = translate(weights, reference, network)

        @jax.jit
        def evaluate(params, network=network, state=variables.state):
            def loss(params):
                outputs, _ = network.apply(Variables(params=params, state=state), obs)
                means = ((head**2).mean() for head in outputs["net"].values())
                return sum(means, jnp.zeros(())), None

            (value, _), grads = network.value_and_grad(loss)(params)
            assert network.codec is not None
            return value, network.codec.encode(grads)

        value, grads = evaluate(variables.params)
        found.append((np.asarray(value), jax.tree.map(np.asarray, grads)))
    return found


@pytest.mark.covering(3)
@pytest.mark.parametrize("case", [*CASES, *DICTIONARIES], ids=lambda case: case.name)
def test_gradients_are_equal_bit_for_bit_in_canonical_arithmetic(case: Case) -> None:
    first, *others = losses_and_gradients(case, "canonical")
    for other in others:
        assert_equal(first, other)


@pytest.mark.covering(4)
@every_case
def test_gradients_agree_in_native_arithmetic(case: Case) -> None:
    first, *others = losses_and_gradients(case, "native")
    for other in others:
        chex.assert_trees_all_close(first, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@each_dictionary
@every_backend
def test_dictionaries_are_read(case: Case, backend: str) -> None:
    network = make(backend, case)
    variables = network.init(jax.random.key(0))
    assert num_params(variables.params) == case.num_params
    obs = batch(case, 5)
    outputs = network.apply(variables, obs)[0]["net"]
    assert {name: array.shape for name, array in outputs.items()} == {
        "logits": (5, 2),
        "q": (5, 3),
        "value": (5,),
    }
    for name, leaf in specs.leaves(SEEN):  # each has an effect
        *path, last = name.split("/")
        changed = jax.tree.map(lambda array: array, obs)
        inner = changed[path[0]] if path else changed
        inner[last] = jnp.where(inner[last] == 0, 1, 0).astype(leaf.dtype)
        found = network.apply(variables, changed)[0]["net"]["q"]
        assert (found != outputs["q"]).any(), name


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["linen", *(pytest.param(b, marks=slow) for b in REST)])
def test_a_network_of_dictionaries_passes_its_checks(backend: str) -> None:
    case = DICTIONARIES[0]
    report = triglot.check_network(make(backend, case), SEEN)
    assert report.passed, str(report)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (CASES[0], CASES[1], "net/head/q"),
        (CASES[0], CASES[3], "the architectures differ"),
    ],
    ids=["dueling", "table"],
)
def test_translation_between_architectures_is_refused(
    source: Case, target: Case, words: str
) -> None:
    one, other = make("linen", source), make("equinox", target)
    with pytest.raises(TriglotError, match=words):
        translate(one.init(jax.random.key(0)), one, other)


@pytest.mark.slow
@every_backend
def test_orthogonal_scales_of_the_heads(backend: str) -> None:
    network = make(backend, CASES[0])
    assert network.codec is not None
    named = network.codec.encode(network.init(jax.random.key(0)).params)
    kernel = np.asarray(named["net/head/logits/kernel"])
    np.testing.assert_allclose(kernel.T @ kernel, 0.01**2 * np.eye(2), atol=1e-8)
    hidden = np.asarray(named["net/torso/1/kernel"])
    np.testing.assert_allclose(hidden.T @ hidden, 2.0 * np.eye(64), atol=1e-4)
    assert not any(array.any() for name, array in named.items() if name.endswith("bias"))


@pytest.mark.slow
@every_backend
def test_ensembles_hold_different_members(backend: str) -> None:
    network = ensemble(make(backend, CASES[0]), 2)
    variables = network.init(jax.random.key(0))
    outputs, _ = jax.jit(network.apply)(variables, batch(CASES[0], 5))
    assert outputs["net"]["q"].shape == (2, 5, 3)
    assert (outputs["net"]["q"][0] != outputs["net"]["q"][1]).any()
    assert network.codec is not None
    named = network.codec.encode(variables.params)
    assert named["net/torso/0/kernel"].shape == (2, 4, 64)
    assert_equal(network.codec.decode(named), variables.params)


def test_combine_names_its_parts_and_mixes_libraries() -> None:
    parts = {"a": make("haiku", CASES[0]), "b": make("equinox", CASES[0]), "c": scalar(0.5)}
    network = combine(parts)
    variables = network.init(jax.random.key(0))
    outputs, _ = network.apply(variables, batch(CASES[0], 5))
    assert outputs["a"]["net"]["q"].shape == outputs["b"]["net"]["q"].shape == (5, 3)
    assert float(outputs["c"]) == 0.5
    assert network.codec is not None
    named = network.codec.encode(variables.params)
    assert {"a/net/torso/0/kernel", "b/net/torso/0/kernel", "c/scalar"} <= named.keys()
    assert_equal(network.codec.decode(named), variables.params)


def test_an_empty_combination_is_refused() -> None:
    with pytest.raises(TriglotError, match="at least one network"):
        combine({})


def test_the_table_backend_is_the_tables_of_the_libraries() -> None:
    plain, haiku = build("table", {"net": CASES[3].spec}), make("haiku", CASES[3])
    variables = plain.init(jax.random.key(0))
    outputs, _ = plain.apply(variables, jnp.arange(7))
    expected, _ = haiku.apply(haiku.init(jax.random.key(0)), jnp.arange(7))
    assert_equal(outputs, expected)


def test_the_table_backend_refuses_what_is_no_table() -> None:
    with pytest.raises(TriglotError, match="lookup tables only"):
        build("table", {"net": CASES[0].spec})


# Bytes with other bounds than an image's: the same for all, of each element, and of a dictionary.
BYTES = {
    "bits": specs.Box((4,), "uint8", 0, 1),
    "each": specs.Box((4,), "uint8", (0, 1, 2, 3), (1, 5, 9, 255)),
    "tiles": specs.Box((5, 5, 2), "uint8", 3, 10),
    "parts": specs.Dict(
        {
            "bits": specs.Box((4,), "uint8", 0, 1),
            "tiles": specs.Box((5, 5, 2), "uint8", 3, 10),
            "image": specs.Box((5, 5, 1), "uint8", 0, 255),
        }
    ),
}


@pytest.mark.covering(30)
@every_backend
@pytest.mark.parametrize("name", BYTES)
def test_bytes_are_read_within_their_declared_bounds(name: str, backend: str) -> None:
    spec = BYTES[name]
    torso = CNN((2,), 3, (4,)) if name in ("tiles", "parts") else MLP((4,))

    def as_floats(one: specs.Spec) -> specs.Spec:
        if isinstance(one, specs.Dict):
            return specs.Dict({name: as_floats(child) for name, child in one.items})
        return specs.Box(one.shape)

    reads_bytes, reads_floats = (
        build(backend, {"net": NetworkSpec(one, torso, HEADS)}) for one in (spec, as_floats(spec))
    )
    key = jax.random.key(0)
    obs = jax.vmap(lambda key: specs.sample(spec, key))(jax.random.split(jax.random.key(1), 3))

    def by_hand(one: specs.Spec, value: object) -> object:
        if isinstance(one, specs.Dict):
            return {name: by_hand(child, value[name]) for name, child in one.items}  # pyright: ignore
        low, high = (np.float32(bound) for bound in one.bounds())
        return (np.asarray(value, np.float32) - low) / (high - low)

    scaled = jax.tree.map(jnp.asarray, by_hand(spec, obs))
    found, _ = reads_bytes.apply(reads_bytes.init(key), obs)
    expected, _ = reads_floats.apply(reads_floats.init(key), scaled)
    chex.assert_trees_all_close(found, expected, rtol=1e-5, atol=1e-6)
