"""Fingerprints see every bit, and the first difference is found where it is."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.core.agent import AgentState
from triglot.core.errors import TriglotError
from triglot.core.learner import LearnerState
from triglot.core.network import Codec, Leaf, Network, Variables
from triglot.core.types import pytree_dataclass
from triglot.runs.identity import (
    PREFIX,
    Trace,
    codec_of,
    compare_traces,
    differing,
    fingerprint,
    fingerprints,
    learned,
    params_sha256,
)

STEPS_PER_UPDATE = 512


def f32(values: list[float]) -> np.ndarray:
    """Make a float32 array."""
    return np.array(values, np.float32)


def flip(array: np.ndarray, index: int, bit: int) -> np.ndarray:
    """Flip one bit of one entry of a float32 array."""
    words = array.copy().view(np.uint32)
    words[index] ^= np.uint32(1 << bit)
    return words.view(np.float32)


@pytest.mark.covering(4)
@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize("index", [0, 1, 999])
def test_a_fingerprint_sees_one_flipped_bit(index: int, bit: int) -> None:
    array = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    assert fingerprint(jnp.asarray(array)) != fingerprint(jnp.asarray(flip(array, index, bit)))


@pytest.mark.covering(4)
@pytest.mark.parametrize("values", [(1.0, 2.0), (0.5, -0.5), (0.0, -0.0), (1e-38, 3e38)])
@pytest.mark.parametrize("distance", [1, 2, 64, 2**15, 2**16])
def test_a_fingerprint_sees_entries_that_change_places(
    values: tuple[float, float], distance: int
) -> None:
    array = np.zeros(distance + 1, np.float32)
    array[[0, -1]] = values
    swapped = array.copy()
    swapped[[0, -1]] = values[::-1]
    assert fingerprint(jnp.asarray(array)) != fingerprint(jnp.asarray(swapped))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_a_fingerprint_is_the_same_however_it_is_computed(dtype: jnp.dtype) -> None:
    arrays = jax.random.normal(jax.random.key(0), (3, 4, 5)).astype(dtype)
    eager = [fingerprint(array) for array in arrays]
    assert eager[0].dtype == jnp.uint32 and eager[0].shape == ()
    np.testing.assert_array_equal(eager, jax.jit(jax.vmap(fingerprint))(arrays))


def test_nan_equals_nan_and_zero_is_not_minus_zero() -> None:
    nan = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
    assert not differing(nan, nan[::-1]).any()
    assert differing(f32([0.0, np.nan]), f32([-0.0, 1.0])).all()


def test_arrays_of_other_shapes_are_not_compared() -> None:
    with pytest.raises(TriglotError, match=r"float32 \(2,\) with float32 \(3,\)"):
        differing(np.zeros(2, np.float32), np.zeros(3, np.float32))


def a_trace() -> Trace:
    """Two seeds, six updates, two parameter arrays; no episode ended in the first update."""
    random = np.random.default_rng(0)
    returns = random.normal(size=(2, 6)).astype(np.float32)
    returns[:, 0] = np.nan
    names = ("actor/kernel", "critic/kernel")
    prints = {PREFIX + n: random.integers(2**32, size=(2, 6), dtype=np.uint32) for n in names}
    return Trace(
        metrics={"episode_return": returns, "loss": returns + 1, **prints},
        params={name: random.normal(size=(2, 3, 4)).astype(np.float32) for name in names},
    )


def test_equal_trainings() -> None:
    result = compare_traces({"haiku": a_trace(), "linen": a_trace()}, STEPS_PER_UPDATE)
    assert result["identical"] and result["metrics_identical"]
    assert result["first_difference"] is None and result["first_metric_difference"] is None
    assert result["groups"] == [["haiku", "linen"]]
    assert result["backends"]["linen"]["largest_difference"] == 0


def test_the_first_difference_is_found() -> None:
    traces = {name: a_trace() for name in ("haiku", "linen", "nnx", "equinox")}
    traces["equinox"].metrics[PREFIX + "critic/kernel"][1, 4:] += 1
    traces["equinox"].metrics[PREFIX + "actor/kernel"][0, 5] += 1
    traces["equinox"].params["actor/kernel"][0, 1, 2] += 0.25
    traces["nnx"].metrics[PREFIX + "actor/kernel"][0, 5] += 1
    result = compare_traces(traces, STEPS_PER_UPDATE)
    assert not result["identical"] and result["metrics_identical"]
    assert result["first_difference"] == {
        "update": 5,
        "step": 5 * STEPS_PER_UPDATE,
        "leaf": "critic/kernel",
        "num_differing": 1,
        "seed": 1,
        "backends": ["equinox"],
    }
    assert result["groups"] == [["haiku", "linen"], ["nnx"], ["equinox"]]
    assert result["backends"]["nnx"]["first_difference"]["update"] == 6
    assert result["backends"]["equinox"]["largest_difference"] == 0.25


def test_backends_that_agree_against_the_first_are_a_group() -> None:
    traces = {name: a_trace() for name in ("haiku", "linen", "nnx")}
    for name in ("linen", "nnx"):
        traces[name].metrics[PREFIX + "actor/kernel"][:, 2:] += 1
    result = compare_traces(traces, STEPS_PER_UPDATE)
    assert result["first_difference"]["backends"] == ["linen", "nnx"]
    assert result["groups"] == [["haiku"], ["linen", "nnx"]]


def test_final_parameters_count_even_if_fingerprints_agree() -> None:
    other = a_trace()
    other.params["critic/kernel"][1] = np.nextafter(other.params["critic/kernel"][1], np.float32(9))
    result = compare_traces({"haiku": a_trace(), "linen": other}, STEPS_PER_UPDATE)
    assert result["first_difference"]["update"] == 6
    assert result["first_difference"]["leaf"] == "critic/kernel"


def test_a_metric_alone_may_differ() -> None:
    other = a_trace()
    other.metrics["loss"][0, 3] = np.nan
    result = compare_traces({"haiku": a_trace(), "linen": other}, STEPS_PER_UPDATE)
    assert not result["identical"] and result["first_difference"] is None
    assert result["first_metric_difference"]["metric"] == "loss"
    assert result["first_metric_difference"]["update"] == 4


def test_the_hash_of_parameters_is_of_names_types_shapes_and_bytes() -> None:
    params = {"a": np.arange(6, dtype=np.float32), "b": np.ones(2, np.float32)}
    told = params_sha256(params)
    assert told == params_sha256(dict(reversed(params.items())))
    assert told != params_sha256({"c": params["a"], "b": params["b"]})
    assert told != params_sha256({**params, "a": params["a"].reshape(2, 3)})
    assert told != params_sha256({**params, "a": params["a"].view(np.int32)})
    assert told != params_sha256({**params, "a": flip(params["a"], 3, 0)})


def encode(codec: Codec | None) -> Any:
    """Give the names of a network's parameters, as a comparison does."""
    return codec_of(a_network(codec)).encode


def a_network(codec: Codec | None) -> Network:
    """Make a network of which only the codec is looked at."""

    def unused(*arguments: Any, **named: Any) -> Any:
        raise AssertionError

    return Network(name="one", backend="own", init=unused, apply=unused, codec=codec)


def test_the_monitor_reads_the_canonical_layout() -> None:
    kernel = jnp.arange(6.0).reshape(2, 3)
    codec = Codec.named(kernel, [Leaf.one("kernel", jnp.transpose, jnp.transpose)])
    variables = Variables(params=kernel, state=())
    learner = LearnerState(variables=variables, opt_state=(), num_gradient_steps=jnp.int32(0))
    state = {"learner": learner, "hyper": jnp.ones(2)}
    ((name, value),) = fingerprints(encode(codec))(state).items()
    assert name == f"{PREFIX}kernel"
    assert value == fingerprint(kernel.T) != fingerprint(kernel)


def test_the_learner_of_an_agent_state_is_the_one_that_is_compared() -> None:
    @pytree_dataclass
    class WithMultipliers(AgentState):
        duals: LearnerState

    def learner(value: float) -> LearnerState:
        variables = Variables(params=jnp.float32(value), state=())
        return LearnerState(variables=variables, opt_state=(), num_gradient_steps=jnp.int32(0))

    state = WithMultipliers(learner=learner(1.0), hyper=(), duals=learner(2.0))
    assert learned(state).params == 1.0
    with pytest.raises(TriglotError, match="holds 2 LearnerStates"):
        learned((learner(1.0), learner(2.0)))


def test_what_cannot_be_compared_says_why() -> None:
    with pytest.raises(TriglotError, match="no canonical names"):
        encode(None)
    monitor = fingerprints(encode(Codec.named(0.0, [Leaf.one("x")])))
    with pytest.raises(TriglotError, match="holds 0 LearnerStates"):
        monitor({"table": jnp.ones(3)})
