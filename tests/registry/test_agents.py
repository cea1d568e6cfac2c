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
