"""`make_agent` with custom networks: the zoo's networks are not built, nor checked."""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.core.environment import TimeStep, first_step
from triglot.core.errors import TriglotError

TINY = {"num_envs": 2, "rollout_length": 4, "num_epochs": 1, "num_minibatches": 2}


@dataclass(frozen=True)
class Camera:
    """One step: action 1 is rewarded; observations are an image and a speed."""

    name = "camera"
    obs_spec = triglot.Dict(
        {"image": triglot.Box((2, 2, 1)), "speed": triglot.Box((3,), low=-1.0, high=1.0)}
    )
    action_spec = triglot.Discrete(2)

    def reset(self, key: jax.Array) -> TimeStep:
        speed = jax.random.uniform(key, (3,), minval=-1.0)
        return first_step(key, {"image": jnp.ones((2, 2, 1)), "speed": speed})

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        obs = {"image": jnp.zeros((2, 2, 1)), "speed": jnp.zeros((3,))}
        return TimeStep(
            state=state,
            obs=obs,
            reward=action.astype(jnp.float32),
            terminated=jnp.ones((), bool),
            truncated=jnp.zeros((), bool),
        )


class TwoInputs(nn.Module):
    @nn.compact
    def __call__(self, obs: dict[str, jax.Array]) -> dict[str, Any]:
        image = obs["image"].reshape((len(obs["image"]), -1))
        features = nn.tanh(nn.Dense(8)(jnp.concatenate([image, obs["speed"]], axis=-1)))
        return {"logits": nn.Dense(2)(features), "value": nn.Dense(1)(features)[:, 0]}


@pytest.mark.slow
@pytest.mark.parametrize("by_name", [False, True])
def test_a_custom_network_reads_dictionary_observations(by_name: bool) -> None:
    env = Camera()
    own: Any = triglot.from_linen(TwoInputs(), env.obs_spec)
    config = {**TINY, "shared_torso": by_name}
    networks = {"actor_critic": own} if by_name else own
    agent = triglot.make_agent("ppo", env, networks=networks, config=config)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=16)
    assert np.isfinite(result.metrics["loss"]).all()


def test_the_zoo_says_that_their_images_are_too_small() -> None:
    with pytest.raises(TriglotError, match=r"on camera: convolutions .* \(2, 2\) of 'image'"):
        triglot.make_agent("ppo", Camera(), backend="linen", config={**TINY, "channels": (3,)})


@pytest.mark.parametrize(
    ("config", "hyper", "optimizer", "says"),
    [
        ({"channels": (8,)}, {}, None, "channels=.* has no effect: the networks"),
        ({"initial_std": 0.5}, {}, None, "initial_std=0.5 has no effect"),
        ({}, {"rmsprop_eps": 0.1}, None, "rmsprop_eps=0.1 has no effect: the optimizer adam"),
        ({}, {"adam_eps": 0.1}, "sgd", "adam_eps=0.1 has no effect: the optimizer sgd"),
    ],
)
def test_a_value_without_an_effect_is_refused(
    config: dict[str, Any], hyper: dict[str, Any], optimizer: str | None, says: str
) -> None:
    env = triglot.make_env("probe:two-step")
    options: Any = {"backend": "jax", "config": config, "hyper": hyper, "optimizer": optimizer}
    with pytest.raises(triglot.TriglotError, match=says):
        triglot.make_agent("ppo", env, **options)


def test_a_value_that_needs_a_switch_is_refused_without_it() -> None:
    env, hyper = triglot.make_env("probe:two-step"), {"munchausen_coef": 0.5}
    with pytest.raises(triglot.TriglotError, match="it needs munchausen"):
        triglot.make_agent("dqn", env, backend="jax", hyper=hyper)
    triglot.make_agent("dqn", env, backend="jax", config={"munchausen": True}, hyper=hyper)
    triglot.make_agent("ppo", env, optimizer="rmsprop", hyper={"rmsprop_eps": 0.1})


@pytest.mark.covering(3)
@pytest.mark.parametrize("backend", ["haiku", "linen", "nnx", "equinox", "keras", "jax"])
def test_an_agent_that_is_made_again_shares_its_compiled_training(backend: str) -> None:
    env = triglot.make_env("probe:two-step")
    sizes = {"num_envs": 2, "rollout_length": 4, "num_epochs": 1, "num_minibatches": 1}

    def make(**changes: Any) -> Any:
        config = {**sizes, "hidden_sizes": (4,), **changes}
        return triglot.make_agent("ppo", env, backend=backend, config=config)

    first, again, other = make(), make(), make(hidden_sizes=(5,))
    assert first == again != other
    assert hash(first) == hash(again)
    experiments = [
        triglot.Experiment(agent, env, key=jax.random.key(seed), total_steps=8)
        for seed, agent in enumerate((first, again))
    ]
    assert experiments[0].trainer == experiments[1].trainer
