"""Specs: hashable descriptions, values that fit them, and Gymnasium's spaces from them and back."""

import copy
import dataclasses
import re
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import triglot
from triglot.core.errors import TriglotError
from triglot.core.specs import (
    Box,
    Dict,
    Discrete,
    MultiDiscrete,
    Spec,
    floats,
    from_stored,
    leaves,
    mask_size,
    mismatch,
    sample,
    to_stored,
    vector,
    vector_size,
    zeros,
)
from triglot.envs.adapting.spaces import space_from_spec, spec_from_space

SPECS: list[Spec] = [
    Discrete(3),
    Discrete(1),
    MultiDiscrete((2, 3)),
    MultiDiscrete((2, 1, 127), "int8"),
    Box((4,)),
    Box((), "float32", -1.0, 1.0),
    Box((2, 2), "float32", 0.0, (1.0, 2.0, 3.0, 4.0)),
    Box((2,), "float32", (0.0, -float("inf")), (float("inf"), 5.0)),
    Box((3,), "int32", -2, 2),
    Box((2, 3), "uint8", 0, 255),
    Box((2,), "bool", 0, 1),
    Dict({"image": Box((2, 2), "uint8", 0, 255), "goal": Dict({"cell": Discrete(5)})}),
]
each_spec = pytest.mark.parametrize("spec", SPECS, ids=repr)


@each_spec
def test_a_spec_hashes_by_value(spec: Spec) -> None:
    assert len({spec, copy.deepcopy(spec)}) == 1


def test_a_dict_takes_a_dictionary_or_pairs() -> None:
    speed, image = Box((2,)), Box((2, 2), "uint8", 0, 255)
    spec = triglot.Dict({"speed": speed, "image": image})
    assert spec.items == (("image", image), ("speed", speed))
    assert spec == Dict([("speed", speed), ("image", image)])
    assert spec == dataclasses.replace(spec)


@pytest.mark.parametrize(
    "given, message",
    [({"speed": (2,)}, r"got 'speed': \(2,\)"), ({1: Box((2,))}, "a string as name.*got 1: Box")],
)
def test_a_dict_of_something_else_is_refused(given: Any, message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        Dict(given)


@each_spec
def test_samples_fit_and_differ(spec: Spec) -> None:
    draw = jax.jit(sample, static_argnums=0)
    values = [draw(spec, key) for key in jax.random.split(jax.random.key(0), 40)]
    for value in values:
        assert mismatch(spec, jax.tree.map(np.asarray, value)) is None
    if spec != Discrete(1):
        assert len({str(value) for value in values}) > 1


@each_spec
def test_zeros_have_the_shape_and_dtype_with_leading_axes(spec: Spec) -> None:
    value, batch = zeros(spec), zeros(spec, 5, 2)
    assert jax.tree.structure(value) == jax.tree.structure(batch)
    for one, several in zip(jax.tree.leaves(value), jax.tree.leaves(batch), strict=True):
        assert several.shape == (5, 2, *one.shape)
        assert several.dtype == one.dtype


def test_integer_samples_reach_both_bounds() -> None:
    keys = jax.random.split(jax.random.key(0), 200)
    values = jax.vmap(lambda key: sample(Box((), "int32", -1, 1), key))(keys)
    assert np.unique(values).tolist() == [-1, 0, 1]


def test_a_box_of_booleans_holds_both() -> None:
    assert mismatch(Box((2,), "bool"), np.array([False, True])) is None


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        (Discrete(3), jnp.int32(3), r"within \[0, 2\], got 3"),
        (Discrete(3), jnp.float32(1), "dtype int32, got .* float32"),
        (Discrete(3), jnp.zeros((1,), jnp.int32), r"shape \(\) .*, got \(1,\)"),
        (MultiDiscrete((2, 3)), jnp.array([0, 3], jnp.int32), r"within \[0, 2\], got \[0, 3\]"),
        (MultiDiscrete((2, 3)), jnp.array([2, 0], jnp.int32), r"within \[0, 2\], got \[2, 0\]"),
        (MultiDiscrete((2, 3)), jnp.int32(0), r"shape \(2,\) .*, got \(\)"),
        (Box((2,)), jnp.zeros((3,)), r"shape \(2,\) .*, got \(3,\)"),
        (Box((2,), "float32", 0.0, 1.0), jnp.float32([0.5, 1.5]), r"within \[0.0, 1.0\], got"),
        (Box((2,), "float32", (0.0, 1.0)), jnp.float32([0.0, 0.0]), "within"),
        (Dict({"a": Discrete(2)}), {"b": jnp.int32(0)}, r"dictionary with \['a'\]"),
        (Dict({"a": Discrete(2)}), {"a": jnp.int32(2)}, r"within \[0, 1\]"),
    ],
)
def test_a_mismatch_is_told(spec: Spec, value: Any, message: str) -> None:
    told = mismatch(spec, value)
    assert told is not None
    assert re.search(message, told)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Discrete(0), "at least 1, got 0"),
        (lambda: MultiDiscrete((2, 0)), r"at least one value for each, got \(2, 0\)"),
        (lambda: MultiDiscrete(()), r"at least one integer .*, got \(\)"),
        (lambda: MultiDiscrete([2, 3]), r"takes a tuple .*hashed; got \[2, 3\]"),  # pyright: ignore
        (lambda: MultiDiscrete(3), "takes a tuple .*hashed; got 3"),  # pyright: ignore
        (lambda: Box((2,), low=(0.0, 0.0, 0.0)), "needs 2 values for `low`.*got 3"),
    ],
)
def test_bad_specs_are_explained(make: Any, message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        make()


def test_bounded_needs_two_finite_sides() -> None:
    assert Box((2,), "float32", 0.0, 1.0).bounded
    assert Box((2,), "uint8").bounded
    assert not Box((2,), "float32", 0.0).bounded
    assert not Box((2,), "float32", 0.0, (1.0, float("inf"))).bounded


@each_spec
def test_a_spec_survives_the_way_to_gymnasium_and_back(spec: Spec) -> None:
    assert spec_from_space(space_from_spec(spec)) == spec


@each_spec
def test_samples_of_a_spec_are_in_its_space(spec: Spec) -> None:
    value = jax.tree.map(np.asarray, sample(spec, jax.random.key(0)))
    assert space_from_spec(spec).contains(value)


@each_spec
def test_samples_of_a_space_fit_its_spec(spec: Spec) -> None:
    space = space_from_spec(spec)
    space.seed(0)
    assert all(mismatch(spec, space.sample()) is None for _ in range(20))


def test_spaces_of_64_bits_become_what_jax_holds() -> None:
    assert spec_from_space(spaces.Discrete(3)) == Discrete(3, "int32")
    assert spec_from_space(spaces.MultiDiscrete([2, 3])) == MultiDiscrete((2, 3), "int32")
    box = spaces.Box(-1.0, 1.0, (2,), np.float64)  # pyright: ignore[reportArgumentType]
    assert spec_from_space(box) == Box((2,), "float32", -1.0, 1.0)


def test_binaries_become_integers_of_two_values() -> None:
    assert spec_from_space(spaces.MultiBinary(2)) == MultiDiscrete((2, 2), "int8")


def test_tuples_become_dictionaries_with_numbers_as_names() -> None:
    inner = spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))])
    spec = spec_from_space(spaces.Tuple([spaces.MultiBinary(1), inner]))
    assert spec == Dict(
        {
            "0": MultiDiscrete((2,), "int8"),
            "1": Dict({"0": Discrete(2), "1": Box((2,), "float32", 0.0, 1.0)}),
        }
    )
    assert spec_from_space(space_from_spec(spec)) == spec


@pytest.mark.parametrize(
    ("spec", "given", "expected"),
    [
        (Box((3,), "uint8", 0, 255), [0, 51, 255], [0, 51 / 255, 1]),
        (Box((3,), "uint8"), [0, 51, 255], [0, 51 / 255, 1]),
        (Box((3,), "uint8", 0, 1), [0, 1, 1], [0, 1, 1]),
        (Box((3,), "uint8", 10, 14), [10, 11, 14], [0, 0.25, 1]),
        (Box((3,), "uint8", (0, 4, 7), (2, 8, 7)), [1, 8, 7], [0.5, 1, 0]),
        (Box((3,), "int32", 0, 4), [0, 1, 4], [0, 1, 4]),
        (Box((3,), "int8", 0, 4), [0, 1, 4], [0, 1, 4]),
        (Box((3,), "bool", 0, 1), [0, 1, 1], [0, 1, 1]),
        (Box((3,), "float32", 0, 4), [0, 1, 4], [0, 1, 4]),
    ],
)
@pytest.mark.parametrize("leading", [(), (2,), (5, 2)])
def test_bytes_are_scaled_by_their_declared_bounds(
    spec: Box, given: list[int], expected: list[float], leading: tuple[int, ...]
) -> None:
    array = jnp.broadcast_to(jnp.array(given, spec.dtype), (*leading, 3))
    found = floats(spec, array)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, np.broadcast_to(expected, (*leading, 3)), rtol=1e-6)
    in_part = vector(
        Dict({"part": Dict({"of": spec})}), {"part": {"of": array}}, num_axes=len(leading)
    )
    np.testing.assert_array_equal(in_part, found)


def test_images_are_divided_by_255_to_the_bit() -> None:
    every = jnp.arange(256).astype(jnp.uint8)
    found = jax.jit(lambda array: floats(Box((), "uint8", 0, 255), array))(every)
    before = jax.jit(lambda array: array.astype(jnp.float32) / 255.0)(every)
    np.testing.assert_array_equal(found, before)


def test_a_value_is_one_vector_of_floats() -> None:
    spec = Dict(
        {
            "b": Dict({"bytes": Box((1, 2), "uint8", 0, 255), "signs": MultiDiscrete((2, 3))}),
            "a": Discrete(2),
            "c": Box((), "bool", 0, 1),
        }
    )
    assert [name for name, _ in leaves(spec)] == ["a", "b/bytes", "b/signs", "c"]
    value = {
        "a": jnp.array([1, 0]),
        "b": {
            "bytes": jnp.array([[[255, 51]], [[0, 0]]], jnp.uint8),
            "signs": jnp.array([[0, 2], [1, 1]]),
        },
        "c": jnp.array([True, False]),
    }
    found, size = vector(spec, value), vector_size(spec)
    assert found.dtype == jnp.float32 and found.shape == (2, size)
    expected = [
        [0, 1, 1, 51 / 255, 1, 0, 0, 0, 1, 1],
        [1, 0, 0, 0, 0, 1, 0, 1, 0, 0],
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    alone = jax.tree.map(lambda array: array[1], value)
    np.testing.assert_array_equal(vector(spec, alone, num_axes=0), found[1])


def test_a_scale_bounds_what_has_no_bounds() -> None:
    inf = float("inf")
    assert Box((2,)).within(2.0) == Box((2,), low=-2.0, high=2.0)
    spec = Box((4,), low=(-inf, 0.0, -inf, 5.0), high=(inf, inf, 1.0, 6.0)).within(2.0)
    assert spec == Box((4,), low=(-2.0, 0.0, -1.0, 5.0), high=(2.0, 2.0, 1.0, 6.0))
    with pytest.raises(TriglotError, match="has bounds already"):
        spec.within(2.0)
    for scale in (0.0, -1.0, inf, float("nan")):
        with pytest.raises(TriglotError, match="a scale must be finite and above 0"):
            Box((2,)).within(scale)


def test_a_mask_has_one_entry_for_each_value() -> None:
    assert mask_size(Discrete(3)) == 3
    assert mask_size(MultiDiscrete((2, 3))) == 5
    assert mask_size(Box((3,))) is None


def test_the_largest_float_means_unbounded() -> None:
    limit = np.array([1.0, np.finfo(np.float32).max], np.float32)
    spec = spec_from_space(spaces.Box(-limit, limit, dtype=np.float32))
    inf = float("inf")
    assert spec == Box((2,), "float32", (-1.0, -inf), (1.0, inf))


def test_all_integers_mean_unbounded_but_bytes_have_bounds() -> None:
    whole = np.iinfo(np.int32)
    spec = spec_from_space(spaces.Box(whole.min, whole.max, (2,), np.int32))
    assert spec == Box((2,), "int32")
    assert spec_from_space(spaces.Box(0, 255, (2,), np.uint8)) == Box((2,), "uint8", 0.0, 255.0)


def test_gymnasium_environments_convert() -> None:
    env = gymnasium.make("Pendulum-v1")
    assert spec_from_space(env.action_space) == Box((1,), "float32", -2.0, 2.0)
    assert spec_from_space(env.observation_space) == Box(
        (3,), "float32", (-1.0, -1.0, -8.0), (1.0, 1.0, 8.0)
    )
    env.close()


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Discrete(3, start=1), "must start at 0, got Discrete.*subtract 1"),
        (spaces.MultiBinary((2, 2)), "has no counterpart: expected a Discrete, a MultiDiscrete"),
        (spaces.Sequence(spaces.Discrete(2)), "the Gymnasium space Sequence.* has no counterpart"),
        (spaces.MultiDiscrete(np.array([[2], [3]])), "has no counterpart.*with one axis"),
        (
            spaces.MultiDiscrete([2, 3], start=[0, 1]),
            r"must start at 0.*starts at \[0 1\]: subtract",
        ),
        (spaces.Dict(a=spaces.Text(3)), "in 'a', the Gymnasium space Text.* has no counterpart"),
    ],
)
def test_spaces_without_a_counterpart_are_explained(space: Any, message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        spec_from_space(space)


def test_what_is_no_spec_is_explained() -> None:
    with pytest.raises(TriglotError, match="expected a Discrete, a MultiDiscrete, a Box or a D"):
        space_from_spec(spaces.Discrete(2))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        (Box((2,), "float32", 0, 255, whole=True), "uint8"),
        (Box((2,), "float32", -1, 127, whole=True), "int8"),
        (Box((2,), "int32", 0, 256, whole=True), "uint16"),
        (Box((2,), "float32", -129, 0, whole=True), "int16"),
        (Box((2,), "float32", 0, 70_000, whole=True), "float32"),
        (Box((2,), "float32", 0, whole=True), "float32"),  # without a bound
        (Box((2,), "float32", 0, 1), "float32"),
    ],
)
def test_whole_numbers_are_stored_in_few_bytes_and_exactly(spec: Box, dtype: str) -> None:
    tree, value = Dict({"x": spec}), {"x": sample(spec, jax.random.key(0))}
    stored = to_stored(tree, value)
    assert mismatch(tree, value) is None
    assert stored["x"].dtype == dtype
    back = from_stored(tree, stored)["x"]
    assert back.dtype == spec.dtype
    np.testing.assert_array_equal(back, value["x"])


def test_a_fraction_is_no_whole_number() -> None:
    spec = Box((2,), "float32", 0, 1, whole=True)
    assert mismatch(spec, np.array([0, 1], np.float32)) is None
    assert "expected whole numbers, got [0.5, 1.0]" in str(
        mismatch(spec, np.array([0.5, 1], np.float32))
    )
