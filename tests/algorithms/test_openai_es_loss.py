"""OpenAI-ES: fitness, ranks and the estimate by hand, and against NumPy on random returns."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot import make_agent, make_env
from triglot.algorithms.openai_es import ES, ESConfig, centered_ranks, fitness
from triglot.core.agent import PolicyInput, Trajectory
from triglot.core.errors import TriglotError
from triglot.core.evaluate import evaluate
from triglot.core.networks.heads import apply_heads
from triglot.core.rl.optimizers import sgd
from triglot.core.specs import zeros

CARTPOLE = make_env("gymnax:CartPole-v1")
SMALL = {"num_envs": 4, "rollout_length": 6, "hidden_sizes": (3,)}


def make(backend: str = "linen", env: Any = CARTPOLE, **options: Any) -> Any:
    config = {**SMALL, **options.pop("config", {})}
    return make_agent("openai_es", env, backend=backend, config=config, **options)


def rewards_of(first: Any, reward: Any, ended: Any, env: Any = CARTPOLE) -> Trajectory:
    """Lay out `[N, T]` flags and rewards as a trajectory `[T, N]`; all ends are terminations."""
    first, reward, ended = (np.asarray(rows).T for rows in (first, reward, ended))
    obs = zeros(env.obs_spec, *reward.shape)
    return Trajectory(
        obs=obs,
        first=jnp.asarray(first.astype(bool)),
        action_mask=None,
        action=zeros(env.action_spec, *reward.shape),
        reward=jnp.asarray(reward.astype(np.float32)),
        terminated=jnp.asarray(ended.astype(bool)),
        truncated=jnp.asarray(np.zeros(reward.shape, bool)),
        next_obs=obs,
        next_action_mask=None,
        extras={},
        carry=(),
    )


ROWS = rewards_of(
    first=[[0, 1, 0, 1, 0, 1], [1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]],
    reward=[[9, 1, 2, 3, 4, 8], [1, 2, 3, 4, 5, 6], [9, 9, 9, 1, 2, 3], [1, 2, 3, 4, 5, 6]],
    ended=[[1, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
)


def test_the_fitness_is_the_mean_return_of_whole_episodes() -> None:
    # Whole are 1 + 2 and 3 + 4, so that 5 is their mean. The second environment begins an episode
    # that does not end, 21; the third one too, 6. The fourth goes on with an old one, 21.
    np.testing.assert_array_equal(fitness(ROWS), [5.0, 21.0, 6.0, 21.0])
    ends = replace(ROWS, terminated=ROWS.truncated, truncated=ROWS.terminated)
    np.testing.assert_array_equal(fitness(ends), [5.0, 21.0, 6.0, 21.0])


def test_ranks_are_centered_and_shared() -> None:
    found = centered_ranks(jnp.array([3.0, 7.0, 7.0, -1.0, 9.0]))
    np.testing.assert_array_equal(found, [-0.25, 0.125, 0.125, -0.5, 0.5])
    np.testing.assert_array_equal(centered_ranks(jnp.zeros(4)), 0.0)


@dataclass(frozen=True)
class Known(ES):
    """Perturb every parameter by 2 in the first pair, and by 4 in the second."""

    def noise(self, learner: Any, key: jax.Array, num_pairs: int) -> Any:
        eps = jnp.array([2.0, 4.0])[:num_pairs]
        drawn = super().noise(learner, key, num_pairs)
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(eps.reshape(-1, *[1] * (leaf.ndim - 1)), leaf.shape),
            drawn,
        )


def test_one_update_by_hand() -> None:
    made = make(hyper={"learning_rate": 0.1, "noise_std": 0.5, "weight_decay": 0.2})
    known = Known(made.network, made.obs_spec, made.action_spec, made.config, made.hyper, sgd)
    state = jax.jit(known.init, static_argnums=1)(jax.random.key(0), 4)
    before = state.learner.variables.params
    # The fitnesses 5, 21, 6, 21 have the ranks -1/2, 1/3, -1/6, 1/3 (1/3 of two equal ones is
    # (1/6 + 1/2) / 2), so that g = ((-1/2 + 1/6) * 2 + 0 * 4) / (4 * 0.5) = -1/3, and
    # theta + 0.1 * (-1/3 - 0.2 * theta)
    after, metrics = jax.jit(known.update)(state, ROWS, jax.random.key(1))
    wanted = jax.tree.map(lambda theta: theta + 0.1 * (-1 / 3 - 0.2 * theta), before)
    jax.tree.map(
        lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6),
        after.learner.variables.params,
        wanted,
    )
    assert metrics["fitness"] == (5 + 21 + 6 + 21) / 4
    assert metrics["best_fitness"] == 21


def test_the_estimate_is_that_of_the_paper() -> None:
    agent = make(config={"num_envs": 10}, hyper={"noise_std": 0.3})
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 10)
    returns = np.random.default_rng(0).normal(size=10).astype(np.float32)
    found = agent.estimate(state, centered_ranks(jnp.asarray(returns)))
    utility = np.argsort(np.argsort(returns)) / 9 - 0.5
    named = agent.network.require_codec("").encode(state.learner.variables.params)
    for name, mean in named.items():
        eps = (np.asarray(state.members[name], np.float64) - np.asarray(mean)) / 0.3
        wanted = np.tensordot(utility, eps, axes=1) / (10 * 0.3)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(eps[:5], -eps[5:], atol=1e-5)


@pytest.mark.slow
def test_each_environment_runs_its_member_and_evaluation_the_mean() -> None:
    agent = make(hyper={"noise_std": 3.0})
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 4)
    obs = jax.random.normal(jax.random.key(1), (4, 4))
    inputs = PolicyInput(obs=obs, first=jnp.zeros(4, bool))
    variables, codec = state.learner.variables, agent.network.require_codec("")
    for explore in (True, False):
        action = jax.jit(agent.act, static_argnames="explore")(
            state, (), inputs, jax.random.key(2), explore=explore
        ).action
        for env in range(4):
            own = variables
            if explore:
                one = jax.tree.map(lambda leaf, env=env: leaf[env], state.members)
                own = replace(variables, params=codec.decode(one))
            heads, _ = apply_heads(agent.network, own, obs[env : env + 1])
            assert action[env] == jnp.argmax(heads["logits"])
    # Members are repeated where there are more environments than members.
    episodes = evaluate(agent, CARTPOLE, state, jax.random.key(3), num_episodes=6, explore=True)
    assert episodes.finished.all()


@pytest.mark.slow
def test_the_noise_is_the_same_for_every_library() -> None:
    drawn = []
    for backend in ("haiku", "equinox"):
        agent = make(backend)
        drawn.append(
            agent.noise(
                jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 4).learner,
                jax.random.key(1),
                2,
            )
        )
    jax.tree.map(np.testing.assert_array_equal, *drawn)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["none", "lstm"])
def test_recurrent_and_continuous_members_act_within_bounds(cell: str) -> None:
    env = make_env("gymnax:Pendulum-v1")
    agent = make(env=env, config={"cell": cell, "cell_size": 4, "normalize_obs": True})
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 4)
    inputs = PolicyInput(obs=zeros(env.obs_spec, 4) + 1.0, first=jnp.array([True, False] * 2))
    output = agent.act(
        state, agent.initial_carry(state, 4), inputs, jax.random.key(0), explore=True
    )
    assert output.action.shape == (4, 1)
    assert np.abs(output.action).max() <= 2.0
    assert len(np.unique(output.action)) == 4
    assert bool(jax.tree.leaves(output.carry)) == (cell == "lstm")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TriglotError, match="num_envs, the size of the population, must be even"):
        ESConfig(num_envs=7)
    with pytest.raises(TriglotError, match="noise_std must be"):
        make(hyper={"noise_std": 0.0})
    with pytest.raises(TriglotError, match="normalize_obs needs one float array"):
        make(env=make_env("gridworld:4x4"), config={"normalize_obs": True})
