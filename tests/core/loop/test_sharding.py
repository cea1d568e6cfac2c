"""Choosing devices and what is divided among them; the rest needs devices, see test_devices."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import triglot
from triglot.core.errors import TriglotError
from triglot.core.loop.sharding import choose_shard, make_sharding
from triglot.core.loop.trainer import init_seeds, train_seeds
from triglot.core.trainers import make_trainer
from triglot.core.types import by_path

ENV = triglot.make_env("probe:two-step")


@functools.cache
def agent() -> Any:
    config = {"num_envs": 2, "rollout_length": 4, "num_minibatches": 2, "hidden_sizes": (5,)}
    return triglot.make_agent("ppo", ENV, config=config)


def train(**how: Any) -> Any:
    return triglot.train(agent(), ENV, key=jax.random.key(0), total_steps=24, num_seeds=2, **how)


@pytest.mark.parametrize(
    "devices, shard, chosen",
    [(2, None, "seeds"), (3, None, "seeds"), (6, None, "envs"), (2, "envs", "envs")],
)
def test_seeds_are_divided_if_there_are_enough(devices: int, shard: Any, chosen: str) -> None:
    assert choose_shard(devices, shard, num_seeds=4, num_envs=6) == chosen


@pytest.mark.parametrize(
    "devices, shard, says",
    [
        (5, None, "devices must be at most num_seeds, 4, or divide num_envs, 6; got 5."),
        (5, "seeds", "devices must be at most num_seeds, 4; got 5."),
        (4, "envs", "devices must divide num_envs, 6; got 4."),
        (2, "seed", "unknown shard 'seed'; did you mean 'seeds'?"),
        (0, None, "devices must be"),
        (2, None, "2 devices were asked for, and JAX has 1 (cpu): `triglot train --devices 2`"),
    ],
)
def test_what_cannot_be_divided_is_refused(devices: int, shard: Any, says: str) -> None:
    with pytest.raises(TriglotError) as error:
        make_sharding(devices, shard, num_seeds=4, num_envs=6)
    assert says in str(error.value)


def test_a_mesh_has_one_axis() -> None:
    mesh = Mesh(np.array(jax.devices()[:1])[None], ("a", "b"))
    with pytest.raises(TriglotError, match="a mesh with one axis, got one of shape"):
        make_sharding(mesh, num_seeds=1, num_envs=1)


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["seeds", "envs"])
def test_a_mesh_of_one_device_changes_no_bit(shard: Any) -> None:
    mesh = Mesh(np.array(jax.devices()[:1]), ("own",))
    alone, divided = train(), train(devices=mesh, shard=shard)
    expected, found = by_path(alone.runner_state), by_path(divided.runner_state)
    assert expected.keys() == found.keys()
    for path, leaf in expected.items():
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf, found[path] = jax.random.key_data(leaf), jax.random.key_data(found[path])
        np.testing.assert_array_equal(found[path], leaf, err_msg=path)
    for name, values in alone.metrics.items():
        np.testing.assert_array_equal(divided.metrics[name], values, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["seeds", "envs"])
def test_trained_states_are_where_they_belong(shard: Any) -> None:
    mesh = Mesh(np.array(jax.devices()[:1]), ("own",))
    sharding = make_sharding(mesh, shard, num_seeds=2, num_envs=2)
    trainer: Any = make_trainer(agent(), ENV, sharding=sharding)
    states = sharding.place(init_seeds(trainer, jax.random.split(jax.random.key(0), 2)))
    states, _ = train_seeds(trainer, states, np.int32(3))
    again = sharding.place(states)
    for path, leaf in by_path(states).items():  # not copied before every chunk
        assert by_path(again)[path] is leaf, path


def test_a_callback_in_order_needs_one_device() -> None:
    with pytest.raises(TriglotError, match="every_update is called in the order of the updates"):
        train(devices=1, every_update=lambda number, metrics: None)


def test_a_host_environment_is_not_divided() -> None:
    env = triglot.make_env("gymnasium:CartPole-v1")
    ppo = triglot.make_agent("ppo", env, config={"num_envs": 2})
    with pytest.raises(TriglotError, match=r"CartPole-v1.* is stepped in Python, by one process"):
        triglot.train(ppo, env, key=jax.random.key(0), total_steps=8, devices=1)
