"""A random policy's return and observations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.compare.training.random_policy import RandomPolicy, random_observations, random_return
from triglot.core.agent import PolicyInput
from triglot.core.errors import TriglotError
from triglot.core.specs import Discrete
from triglot.runs.registry.bounds import return_bounds
from triglot.runs.registry.environments import make_env

NUM_ENVS = 2000


def test_allowed_actions_are_equally_likely() -> None:
    mask = jnp.tile(jnp.array([True, False, True, True]), (NUM_ENVS, 1))
    inputs = PolicyInput(obs=(), first=jnp.zeros(NUM_ENVS, bool), action_mask=mask)
    policy = RandomPolicy(Discrete(4))
    action = policy.act((), (), inputs, jax.random.key(0), explore=True).action
    shares = np.bincount(np.asarray(action), minlength=4) / NUM_ENVS
    assert shares[1] == 0
    # Five standard deviations of a share of 1/3.
    np.testing.assert_allclose(shares[[0, 2, 3]], 1 / 3, atol=5 * np.sqrt(2 / 9 / NUM_ENVS))


def test_the_return_of_random_actions() -> None:
    """CartPole's is known to be about 22."""
    env = make_env("gymnax:CartPole-v1")
    assert 19 < random_return(env, jax.random.key(0), num_episodes=512) < 26


def test_observations_are_of_many_steps() -> None:
    env = make_env("gymnax:CartPole-v1")
    obs = random_observations(env, jax.random.key(0), count=34)
    assert obs.shape == (34, 4)
    first, later = np.abs(obs[::17]), np.abs(obs[14::17])
    assert first.max() <= 0.05 < later.max(), "a reset is within 0.05, later steps are not"
    np.testing.assert_array_equal(obs, random_observations(env, jax.random.key(0), count=34))


class Bounded:
    """An environment that states its bounds."""

    name, obs_spec, action_spec = "bounded", Discrete(2), Discrete(2)

    def __init__(self, bounds: object) -> None:
        self.return_bounds = bounds


def test_bounds_of_the_return() -> None:
    assert return_bounds(object(), "gymnax:CartPole-v1") == (0, 500)
    longer = "gymnax:CartPole-v1,max_steps_in_episode=1000"
    assert return_bounds(object(), longer) == (-np.inf, np.inf), "an option may change the rules"
    limited = make_env("gridworld:4x4,max_steps=10")
    assert return_bounds(limited, "gridworld:4x4,max_steps=10") == (0, 1)
    assert return_bounds(object(), "my_file:env") == (-np.inf, np.inf)
    assert return_bounds(Bounded((-1, 2.5)), "my_file:env") == (-1, 2.5)


@pytest.mark.parametrize("bounds", [3, (1, 0), ("low", "high"), (0, 1, 2)])
def test_wrong_bounds_are_refused(bounds: object) -> None:
    with pytest.raises(TriglotError, match=r"must be \(lowest, highest\) return"):
        return_bounds(Bounded(bounds), "my_file:env")
