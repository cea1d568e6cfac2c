"""Monte Carlo control against returns worked out by hand, and against NumPy on whole episodes."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.monte_carlo import (
    MonteCarlo,
    MonteCarloConfig,
    MonteCarloHyperparams,
    MonteCarloState,
)
from triglot.backends import build
from triglot.core.agent import Trajectory
from triglot.core.errors import TriglotError
from triglot.core.rl.optimizers import adam
from triglot.core.specs import Box, Discrete

OBS, ACTIONS = Discrete(3), Discrete(2)
HYPER = MonteCarloHyperparams(learning_rate=0.5, discount=0.5, epsilon=0.2)
TABLE = jnp.array([[1.0, 2.0], [4.0, 8.0], [3.0, 5.0]])
LIBRARIES = ("haiku", "linen", "nnx", "equinox")


def make(backend: str = "table", optimizer: Any = None, **config: Any) -> MonteCarlo:
    made = MonteCarloConfig(**config)
    network = build(backend, MonteCarlo.networks(OBS, ACTIONS, made), arithmetic="canonical")
    given = {} if optimizer is None else {"optimizer": optimizer}
    return MonteCarlo(network, OBS, ACTIONS, made, HYPER, **given)


def start(agent: MonteCarlo) -> MonteCarloState:
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), agent.num_envs)
    variables = state.learner.variables
    params = jax.tree.map(lambda leaf: TABLE.reshape(leaf.shape), variables.params)
    learner = replace(state.learner, variables=replace(variables, params=params))
    return replace(state, learner=learner)


def steps(*rows: tuple, mask: Any = None) -> Trajectory:
    """Lay out `(obs, action, reward, terminated, truncated, next_obs)` in time, one environment."""
    columns = [jnp.asarray(column)[:, None] for column in zip(*rows, strict=True)]
    obs, action, reward, terminated, truncated, next_obs = columns
    return Trajectory(
        obs=obs,
        first=jnp.zeros(obs.shape, bool),
        action_mask=None,
        action=action,
        reward=reward.astype(jnp.float32),
        terminated=terminated,
        truncated=truncated,
        next_obs=next_obs,
        next_action_mask=mask,
        extras={},
        carry=(),
    )


def learn(agent: MonteCarlo, *trajectories: Trajectory) -> np.ndarray:
    state = start(agent)
    for trajectory in trajectories:
        state, _ = jax.jit(agent.update)(state, trajectory, jax.random.key(0))
    (table,) = jax.tree.leaves(state.learner.variables.params)
    return np.asarray(table)


# The returns are G_2 = 4, G_1 = 3 + 0.5 * 4 = 5 and G_0 = 1 + 0.5 * 5 = 3.5; the first pair is
# visited again by the last step.
ONE, TWO = (0, 1, 1.0, False, False, 1), (1, 0, 3.0, False, False, 0)
LAST = (0, 1, 4.0, True, False, 2)
EPISODE = steps(ONE, TWO, LAST)


def table(**pairs: float) -> np.ndarray:
    """Change entries of the table: `s0a1=2.5` is Q(0, 1)."""
    changed = np.array(TABLE)
    for name, value in pairs.items():
        changed[int(name[1]), int(name[3])] = value
    return changed


def test_nothing_is_learned_before_the_end() -> None:
    np.testing.assert_array_equal(learn(make(), steps(ONE, TWO)), TABLE)


def test_first_visits_move_towards_their_returns() -> None:
    # Q(0, 1) = 2 + 0.5 (3.5 - 2) = 2.75; Q(1, 0) = 4 + 0.5 (5 - 4) = 4.5
    np.testing.assert_array_equal(learn(make(), EPISODE), table(s0a1=2.75, s1a0=4.5))


def test_every_visit_counts_if_asked_for() -> None:
    # Q(0, 1) = 2 + 0.5 ((3.5 - 2) + (4 - 2)) = 3.75
    found = learn(make(visits="every"), EPISODE)
    np.testing.assert_array_equal(found, table(s0a1=3.75, s1a0=4.5))


def test_without_a_constant_step_size_values_are_averages_of_the_returns() -> None:
    averages: dict[str, Any] = {"constant_step_size": False}
    # Of first visits, 3.5 and then 10: 6.75. The table's first values do not matter.
    again = steps((0, 1, 10.0, True, False, 2))
    found = learn(make(**averages), EPISODE, again)
    np.testing.assert_allclose(found, table(s0a1=6.75, s1a0=5.0), rtol=1e-6)
    # Of every visit, (3.5 + 4 + 10) / 3
    found = learn(make(visits="every", **averages), EPISODE, again)
    np.testing.assert_allclose(found, table(s0a1=17.5 / 3, s1a0=5.0), rtol=1e-6)


def test_an_episode_runs_over_several_rollouts() -> None:
    pieces = [steps(row) for row in (ONE, TWO, LAST)]
    np.testing.assert_array_equal(learn(make(), *pieces), learn(make(), EPISODE))
    np.testing.assert_array_equal(learn(make(), *pieces, *pieces), learn(make(), EPISODE, EPISODE))


def test_a_truncated_episode_goes_on_with_the_value_of_its_true_last_observation() -> None:
    # The policy at 1 is (0.1, 0.9): 7.6, and G = 1 + 0.5 * 7.6 = 4.8; 2 + 0.5 (4.8 - 2) = 3.4
    cut = (0, 1, 1.0, False, True, 1)
    np.testing.assert_allclose(learn(make(), steps(cut)), table(s0a1=3.4), rtol=1e-6)
    # With one action allowed there: G = 1 + 0.5 * 4 = 3; 2.5
    masked = steps(cut, mask=jnp.array([[[True, False]]]))
    np.testing.assert_allclose(learn(make(), masked), table(s0a1=2.5), rtol=1e-6)
    # The next episode begins with new traces: 3.4, and then 3.4 + 0.5 (2 - 3.4) = 2.7
    both = steps(cut, (0, 1, 2.0, True, False, 1))
    np.testing.assert_allclose(learn(make(), both), table(s0a1=2.7), rtol=1e-6)


def test_a_termination_ends_the_return() -> None:
    # 2 + 0.5 (1 - 2) = 1.5, whatever the next observation is thought to be worth.
    np.testing.assert_array_equal(
        learn(make(), steps((0, 1, 1.0, True, False, 1))), table(s0a1=1.5)
    )


def random_rollout(num_steps: int, num_envs: int) -> Trajectory:
    rng = np.random.default_rng(0)
    shape = num_steps, num_envs
    obs, following = rng.integers(0, 3, (2, *shape)).astype(np.int32)
    ended = rng.random(shape) < 0.15
    zeros = np.zeros(shape, bool)
    return Trajectory(
        obs=jnp.asarray(obs),
        first=jnp.asarray(zeros),
        action_mask=None,
        action=jnp.asarray(rng.integers(0, 2, shape).astype(np.int32)),
        reward=jnp.asarray(rng.normal(size=shape).astype(np.float32)),
        terminated=jnp.asarray(ended),
        truncated=jnp.asarray(zeros),
        next_obs=jnp.asarray(following),
        next_action_mask=None,
        extras={},
        carry=(),
    )


def by_numpy(trajectory: Trajectory, visits: str, average: bool) -> np.ndarray:
    """Keep whole episodes in lists and sum their returns backwards, as the book does."""
    values, count = np.array(TABLE, np.float64), np.zeros(TABLE.shape)
    num_steps, num_envs = trajectory.reward.shape
    episodes: list[list[tuple]] = [[] for _ in range(num_envs)]
    for time in range(num_steps):
        changes: dict[tuple[int, int], list[float]] = {}
        for env in range(num_envs):
            obs, action, reward = (
                np.asarray(leaf)[time, env]
                for leaf in (trajectory.obs, trajectory.action, trajectory.reward)
            )
            episodes[env].append((int(obs), int(action), float(reward)))
            if not trajectory.terminated[time, env]:
                continue
            total = 0.0
            pairs = [row[:2] for row in episodes[env]]
            for index in reversed(range(len(pairs))):
                total = episodes[env][index][2] + 0.5 * total
                if visits == "every" or pairs[index] not in pairs[:index]:
                    changes.setdefault(pairs[index], []).append(total)
            episodes[env] = []
        for pair, returns in changes.items():
            count[pair] += len(returns)
            rate = 1 / count[pair] if average else 0.5
            values[pair] += rate * sum(one - values[pair] for one in returns)
    return values


@pytest.mark.covering(4)
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("visits", ["first", "every"])
def test_traces_are_the_returns_of_whole_episodes(visits: str, average: bool) -> None:
    trajectory = random_rollout(120, 2)
    found = learn(
        make(num_envs=2, visits=visits, constant_step_size=not average),
        *(jax.tree.map(lambda leaf, t=t: leaf[t : t + 40], trajectory) for t in (0, 40, 80)),
    )
    np.testing.assert_allclose(found, by_numpy(trajectory, visits, average), rtol=1e-4)


@pytest.mark.covering(4)
@pytest.mark.parametrize("backend", LIBRARIES)
def test_every_library_learns_the_same_table(backend: str) -> None:
    trajectory = random_rollout(40, 1)
    found, wanted = learn(make(backend), trajectory), learn(make(), trajectory)
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TriglotError, match="Monte Carlo control needs Discrete observations"):
        MonteCarlo.networks(Box((4,)), Discrete(2))
    with pytest.raises(TriglotError, match="averages of returns, which optimizer sgd computes"):
        make(optimizer=adam, constant_step_size=False)
    with pytest.raises(TriglotError, match="every"):
        MonteCarloConfig(visits="evry")  # pyright: ignore[reportArgumentType]
