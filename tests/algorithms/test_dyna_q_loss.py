"""Dyna-Q against planning worked out by hand, and against NumPy with the same draws."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.dyna_q import DynaQ, DynaQConfig, DynaQHyperparams, DynaQState, Model
from triglot.backends import build
from triglot.core.agent import Trajectory
from triglot.core.errors import TriglotError
from triglot.core.specs import Box, Discrete

OBS, ACTIONS = Discrete(3), Discrete(2)
HYPER = DynaQHyperparams(learning_rate=0.5, discount=0.5, epsilon=0.2, bonus=0.1)
TABLE = jnp.array([[1.0, 2.0], [4.0, 8.0], [3.0, 5.0]])
LIBRARIES = ("haiku", "linen", "nnx", "equinox")


def make(backend: str = "table", **config: Any) -> DynaQ:
    made = DynaQConfig(**{"planning_steps": 1, **config})
    network = build(backend, DynaQ.networks(OBS, ACTIONS, made), arithmetic="canonical")
    return DynaQ(network, OBS, ACTIONS, made, HYPER)


def start(agent: DynaQ) -> DynaQState:
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), agent.num_envs)
    variables = state.learner.variables
    params = jax.tree.map(lambda leaf: TABLE.reshape(leaf.shape), variables.params)
    learner = replace(state.learner, variables=replace(variables, params=params))
    return replace(state, learner=learner)


def steps(*rows: tuple, masks: Any = None) -> Trajectory:
    """Lay out `(obs, action, reward, terminated, truncated, next_obs)` in time.

    Args:
      rows: of one environment each; a row of lists has one entry for each environment.
      masks: the masks before and after the steps.
    """
    columns = [jnp.asarray(column) for column in zip(*rows, strict=True)]
    columns = [column if column.ndim == 2 else column[:, None] for column in columns]
    obs, action, reward, terminated, truncated, next_obs = columns
    before, after = masks or (None, None)
    return Trajectory(
        obs=obs,
        first=jnp.zeros(obs.shape, bool),
        action_mask=before,
        action=action,
        reward=reward.astype(jnp.float32),
        terminated=terminated,
        truncated=truncated,
        next_obs=next_obs,
        next_action_mask=after,
        extras={},
        carry=(),
    )


def after(agent: DynaQ, *trajectories: Trajectory) -> DynaQState:
    state = start(agent)
    for number, trajectory in enumerate(trajectories):
        state, _ = jax.jit(agent.update)(state, trajectory, jax.random.key(number))
    return state


def table_of(state: DynaQState) -> np.ndarray:
    (table,) = jax.tree.leaves(state.learner.variables.params)
    return np.asarray(table)


def changed(row: int, column: int, value: float) -> np.ndarray:
    return np.asarray(TABLE.at[row, column].set(value))


GO = (0, 1, 1.0, False, False, 1)


def test_planning_repeats_what_was_observed() -> None:
    # The step: 2 + 0.5 (1 + 0.5 * 8 - 2) = 3.5; the plan, the same pair: 3.5 + 0.5 (5 - 3.5) = 4.25
    np.testing.assert_array_equal(table_of(after(make(), steps(GO))), changed(0, 1, 4.25))
    # Twice: 4.25 + 0.5 (5 - 4.25) = 4.625
    found = after(make(planning_steps=2), steps(GO))
    np.testing.assert_array_equal(table_of(found), changed(0, 1, 4.625))


def test_a_plan_ends_with_a_termination_and_goes_on_after_a_truncation() -> None:
    # 2 + 0.5 (1 - 2) = 1.5, then 1.5 + 0.5 (1 - 1.5) = 1.25
    ended = after(make(), steps((0, 1, 1.0, True, False, 1)))
    np.testing.assert_array_equal(table_of(ended), changed(0, 1, 1.25))
    cut = after(make(), steps((0, 1, 1.0, False, True, 1)))
    np.testing.assert_array_equal(table_of(cut), changed(0, 1, 4.25))


def test_masked_actions_have_no_value_in_a_plan() -> None:
    masks = jnp.array([[[True, True]]]), jnp.array([[[True, False]]])
    # 2 + 0.5 (1 + 0.5 * 4 - 2) = 2.5, then 2.5 + 0.5 (3 - 2.5) = 2.75
    state = after(make(), steps(GO, masks=masks))
    np.testing.assert_array_equal(table_of(state), changed(0, 1, 2.75))
    np.testing.assert_array_equal(state.model.allowed, [[True, True], [True, False], [True, True]])


def test_the_model_keeps_the_last_outcome_and_of_two_environments_the_later_one() -> None:
    agent = make(num_envs=2)
    both = ([0, 0], [1, 1], [1.0, 2.0], [False, True], [False, False], [1, 2])
    model = after(agent, steps(both)).model
    assert (model.reward[0, 1], model.next_obs[0, 1], model.terminated[0, 1]) == (2.0, 2, True)
    assert np.asarray(model.tried).sum() == 1
    one = after(make(), steps(GO), steps((0, 1, 3.0, False, False, 2))).model
    assert (one.reward[0, 1], one.next_obs[0, 1], one.last_tried[0, 1]) == (3.0, 2, 2)


def model_of(tried: list[tuple[int, int]], last_tried: int = 0) -> Model:
    made = start(make()).model
    for pair in tried:
        made = replace(
            made,
            tried=made.tried.at[pair].set(True),
            last_tried=made.last_tried.at[pair].set(last_tried),
        )
    return made


def recalled(agent: DynaQ, model: Model, now: int = 9) -> list[tuple]:
    """Draw with 12 evenly spaced numbers: observation, action, reward, next observation."""
    uniform = jnp.arange(12.0)[:, None] / 12.0
    planned = agent.recall(model, uniform, jnp.asarray(now, jnp.int32), HYPER)
    fields = (planned.obs, planned.action, planned.reward, planned.next_obs)
    columns = (np.asarray(leaf)[:, 0].tolist() for leaf in fields)
    return list(zip(*columns, strict=True))


def test_pairs_that_were_tried_are_drawn_equally_often() -> None:
    drawn = recalled(make(), model_of([(0, 1), (2, 0), (2, 1)]))
    assert [row[:2] for row in drawn] == [(0, 1)] * 4 + [(2, 0)] * 4 + [(2, 1)] * 4


def test_the_age_of_a_pair_is_the_steps_since_it_was_tried() -> None:
    """Sutton and Barto's tau: 0 for the pair of this step, and all steps so far for one never."""
    agent = make(plus=True)
    model, ages = start(agent).model, []
    for number, pair in enumerate([(0, 1), (2, 0), (2, 0), (0, 1)], 1):
        row = (*pair, 0.0, False, False, 0)
        one = jax.tree.map(lambda leaf: leaf[0], steps(row))
        model = agent.observe(model, one, jnp.int32(number))
        ages.append({row[:2]: (row[2] / 0.1) ** 2 for row in recalled(agent, model, number)})
    expected = [
        {(0, 0): 1, (0, 1): 0},
        {(0, 0): 2, (0, 1): 1, (2, 0): 0, (2, 1): 2},
        {(0, 0): 3, (0, 1): 2, (2, 0): 0, (2, 1): 3},
        {(0, 0): 4, (0, 1): 0, (2, 0): 1, (2, 1): 4},
    ]
    for found, right in zip(ages, expected, strict=True):
        assert found.keys() == right.keys()
        np.testing.assert_allclose(list(found.values()), list(right.values()), atol=1e-5)


def test_a_pair_just_tried_has_no_bonus_in_the_plan_after_it() -> None:
    """The other action of state 0 is forbidden, so that the plan is the step again."""
    mask = jnp.array([[[False, True]]])
    state = after(make(plus=True), steps((0, 1, 1.0, True, False, 0), masks=(mask, mask)))
    # The step: 2 + 0.5 (1 - 2) = 1.5; the plan: 1.5 + 0.5 (1 - 1.5)
    np.testing.assert_array_equal(table_of(state), changed(0, 1, 1.25))


def test_plus_adds_a_bonus_and_plans_with_actions_that_were_never_tried() -> None:
    agent = make(plus=True)
    model = replace(model_of([(0, 1)], last_tried=5), reward=jnp.ones((3, 2)))
    model = replace(model, reward=model.reward.at[0, 0].set(0.0))
    drawn = recalled(agent, model)
    # Never tried: 0.1 * sqrt(9 - 0), and it stays; tried 4 steps ago: 1 + 0.1 * sqrt(4)
    assert [row[:2] for row in drawn] == [(0, 0)] * 6 + [(0, 1)] * 6
    np.testing.assert_allclose([row[2] for row in drawn], [0.3] * 6 + [1.2] * 6, rtol=1e-6)
    assert drawn[0][3] == 0
    forbidden = replace(model, allowed=model.allowed.at[0, 0].set(False))
    assert {row[:2] for row in recalled(agent, forbidden)} == {(0, 1)}


def random_rollout(num_steps: int) -> Trajectory:
    rng = np.random.default_rng(0)
    obs, following = rng.integers(0, 3, (2, num_steps)).astype(np.int32)
    action = rng.integers(0, 2, num_steps).astype(np.int32)
    reward, ended = rng.normal(size=num_steps), rng.random(num_steps) < 0.2
    return steps(*zip(obs, action, reward, ended, ended & False, following, strict=True))


def by_numpy(trajectory: Trajectory, num_plans: int, plus: bool, key: jax.Array) -> np.ndarray:
    """Do what the book's box says, with the draws of `DynaQ.learn`."""
    values = np.array(TABLE, np.float64)
    model: dict[tuple[int, int], tuple[float, bool, int, int]] = {}
    fields = (trajectory.obs, trajectory.action, trajectory.reward, trajectory.terminated)
    columns = [np.asarray(leaf)[:, 0] for leaf in (*fields, trajectory.next_obs)]

    def move(pair: tuple[int, int], reward: float, ended: bool, following: int) -> None:
        target = reward + 0.5 * (0.0 if ended else values[following].max())
        values[pair] += 0.5 * (target - values[pair])

    keys = jax.random.split(key, len(columns[0]))
    for now, (obs, action, reward, ended, following) in enumerate(zip(*columns, strict=True)):
        move((obs, action), reward, ended, following)
        model[obs, action] = (float(reward), bool(ended), int(following), now + 1)
        candidates = sorted(model)
        if plus:
            candidates = [(seen, a) for seen in sorted({one for one, _ in model}) for a in (0, 1)]
        draw_key = jax.random.split(keys[now], 3)[1]
        for number in np.asarray(jax.random.uniform(draw_key, (num_plans, 1)))[:, 0]:
            pair = candidates[int(number * np.float32(len(candidates)))]
            outcome = model.get(pair, (0.0, False, pair[0], 0))
            bonus = 0.1 * np.sqrt(now + 1 - outcome[3]) if plus else 0.0
            move(pair, outcome[0] + bonus, *outcome[1:3])
    return values


@pytest.mark.parametrize("plus", [False, True])
def test_it_learns_what_numpy_learns_with_the_same_draws(plus: bool) -> None:
    trajectory, key = random_rollout(60), jax.random.key(0)
    found = table_of(after(make(planning_steps=3, plus=plus), trajectory))
    np.testing.assert_allclose(found, by_numpy(trajectory, 3, plus, key), rtol=1e-4)


@pytest.mark.covering(4)
@pytest.mark.parametrize("backend", LIBRARIES)
def test_every_library_learns_the_same_table(backend: str) -> None:
    trajectory = random_rollout(40)
    found, wanted = (table_of(after(make(one), trajectory)) for one in (backend, "table"))
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TriglotError, match="Dyna-Q needs Discrete actions"):
        DynaQ.networks(Discrete(2), Box((1,)))
    with pytest.raises(TriglotError, match="planning_steps must be at least 1"):
        DynaQConfig(planning_steps=0)
