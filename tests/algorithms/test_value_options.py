"""Options of the agents that learn action values: layer normalization, and the replay's sizes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.algorithms.dqn import DQN, DQNConfig
from triglot.backends import build
from triglot.core.errors import TriglotError
from triglot.core.hyper import for_environment
from triglot.core.networks.architecture import Table
from triglot.core.rl.optimizers import sgd
from triglot.core.specs import Box, Dict, Discrete
from triglot.runs.registry.algorithms import find_algorithm

VECTOR, ACTIONS = Box((3,)), Discrete(2)
IMAGE = Box((10, 10, 4), "bool", 0, 1)
REPLAYED = ("dqn", "c51", "qr_dqn", "iqn", "rainbow", "r2d2")


def described(name: str, obs_spec: Any, **config: Any) -> dict[str, Any]:
    found = find_algorithm(name)
    return dict(found.networks(obs_spec, ACTIONS, found.Config(**config)))


@pytest.mark.parametrize("name", [*REPLAYED, "pqn"])
@pytest.mark.parametrize("obs_spec", [VECTOR, IMAGE], ids=["vector", "image"])
def test_every_layer_of_the_torso_is_normalized(name: str, obs_spec: Any) -> None:
    specs = described(name, obs_spec, normalization="layer", hidden_sizes=(5, 4))
    (name_of,) = specs.keys() & {"q_network", "obs_features"}
    torso = specs[name_of].torso
    assert torso.normalization == "layer"
    plain = described(name, obs_spec, normalization="none", hidden_sizes=(5, 4))
    assert "none" in {spec.torso.normalization for spec in plain.values()}


def test_a_layers_outputs_are_normalized_before_the_activation() -> None:
    network = build("linen", described("dqn", VECTOR, normalization="layer", hidden_sizes=(5,)))
    variables = network.init(jax.random.key(0))
    assert network.codec is not None
    p = {name: np.asarray(one) for name, one in network.codec.encode(variables.params).items()}
    obs = np.asarray(jax.random.normal(jax.random.key(1), (4, 3)))
    found, _ = network.apply(variables, obs)
    x = obs @ p["q_network/torso/0/kernel"] + p["q_network/torso/0/bias"]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    expected = np.maximum(x, 0.0) @ p["q_network/head/q/kernel"] + p["q_network/head/q/bias"]
    np.testing.assert_allclose(found["q_network"]["q"], expected, rtol=1e-4, atol=1e-5)


def test_a_table_stays_a_table() -> None:
    (spec,) = described("dqn", Discrete(4), normalization="layer").values()
    assert isinstance(spec.torso, Table)


def make(obs_spec: Any, **config: Any) -> DQN:
    given = DQNConfig(hidden_sizes=(4,), **config)
    return DQN(build("jax", DQN.networks(obs_spec, ACTIONS, given)), obs_spec, ACTIONS, given)


@pytest.mark.parametrize(
    ("obs_spec", "given", "sizes"),
    [
        (VECTOR, {}, (10_000, 10_000)),
        (Discrete(4), {}, (10_000, 10_000)),
        (IMAGE, {}, (100_000, 20_000)),
        (Dict({"eye": IMAGE, "speed": VECTOR}), {}, (100_000, 20_000)),
        (IMAGE, {"buffer_size": 50_000}, (50_000, 20_000)),
        (IMAGE, {"learning_starts": 10_000}, (100_000, 10_000)),
        (VECTOR, {"buffer_size": 50_000}, (50_000, 10_000)),
    ],
)
def test_the_replay_is_larger_for_images(obs_spec: Any, given: Any, sizes: Any) -> None:
    config = make(obs_spec, **given).config
    assert (config.buffer_size, config.learning_starts) == sizes
    assert config.capacity == sizes[0]


@pytest.mark.parametrize("name", REPLAYED)
def test_all_of_the_family_choose_by_observation(name: str) -> None:
    config = find_algorithm(name).Config()
    found = for_environment(config, ["images"])
    assert (found.buffer_size, found.learning_starts) == (100_000, 20_000)
    assert for_environment(config, []).learning_starts == 10_000


def test_make_agent_fills_them_in() -> None:
    env = triglot.make_env("gymnax:Breakout-MinAtar")
    agent = triglot.make_agent("dqn", env, config={"hidden_sizes": (4,)})
    assert agent.config.buffer_size == 100_000
    assert agent.learning_starts == 20_000
    size = jax.eval_shape(agent.replay.init).steps.reward.size  # pyright: ignore
    assert size == 100_000


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"buffer_size": 0}, "DQN's buffer_size must be at least 1, got 0"),
        ({"buffer_size": 2.5}, "DQN's buffer_size must be an integer, got 2.5"),
        ({"buffer_size": 64}, "learning_starts <= buffer_size"),
        ({"learning_starts": 20_000}, "learning_starts <= buffer_size"),
        ({"buffer_size": 64, "learning_starts": 128}, "learning_starts <= buffer_size"),
        ({"normalization": "batch"}, "batch"),
    ],
)
def test_other_sizes_are_refused(given: Any, words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        make(VECTOR, **given)


def test_gradients_are_clipped_by_their_global_norm() -> None:
    """Of a gradient (30, 40), of norm 50, a fifth is left at the default of 10."""
    agent = make(VECTOR)
    optimizer = sgd(agent.hyper)
    updates: Any
    updates, _ = optimizer.update(jnp.array([30.0, 40.0]), optimizer.init(jnp.zeros(2)))
    rate = float(agent.hyper.learning_rate)
    np.testing.assert_allclose(updates, [-6.0 * rate, -8.0 * rate], rtol=1e-6)
