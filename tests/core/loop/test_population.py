"""Populations: who copies whom, what a copy holds, and that a training repeats itself."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.algorithms.ppo import PPO
from triglot.core.errors import TriglotError
from triglot.core.loop.population import (
    Member,
    Perturbed,
    Population,
    exploit,
    select,
)
from triglot.core.loop.rollout import EpisodeStats
from triglot.core.loop.state import RunnerState
from triglot.core.rl.schedules import schedule
from triglot.core.trainers import check_members_divide
from triglot.core.types import pytree_dataclass
from triglot.runs.result import TrainResult

KEY = jax.random.key(5)


@pytree_dataclass
class Hyper:
    rate: Any
    coef: Any


@pytree_dataclass
class AgentState:
    weight: Any
    hyper: Hyper


def five(fitness: list[float], **changes: Any) -> RunnerState:
    """Make five members whose weights are 0 to 4, and whose episodes gave these returns."""
    count = jnp.full(5, 2.0)
    returns = jnp.array(fitness, jnp.float32)
    index = jnp.arange(5.0)
    state = RunnerState(
        key=jax.random.split(KEY, 5),
        agent=AgentState(weight=index, hyper=Hyper(rate=1.0 + index, coef=jnp.full(5, 0.9))),
        carry=10 * index,
        env=100 * index,
        num_updates=jnp.full(5, 20, jnp.int32),
        member=Member(num_episodes=count, return_sum=2 * returns, fitness=jnp.zeros(5)),
    )
    return replace(state, **changes)


POPULATION = Population(
    size=5,
    exploit_every=20,
    perturb=["rate", "coef"],
    fraction=0.4,
    selection="rank",
    perturbed=(Perturbed("rate", 0.0, 100.0), Perturbed("coef", 0.0, 1.0)),
)


def test_a_copy_holds_everything_but_the_key_and_its_hyperparameters_are_changed() -> None:
    before = five([3.0, 1.0, 5.0, 2.0, 4.0])
    after, parent = jax.jit(lambda states: exploit(POPULATION, states))(before)
    # The worst, 1, copies the best, 2; the second worst, 3, the second best, 4.
    np.testing.assert_array_equal(parent, [0, 2, 2, 4, 4])
    np.testing.assert_array_equal(after.agent.weight, [0, 2, 2, 4, 4])
    np.testing.assert_array_equal(after.carry, [0, 20, 20, 40, 40])
    np.testing.assert_array_equal(after.env, [0, 200, 200, 400, 400])
    data = jax.random.key_data
    np.testing.assert_array_equal(data(after.key), data(before.key))
    rate, coef = np.asarray(after.agent.hyper.rate), np.asarray(after.agent.hyper.coef)
    np.testing.assert_array_equal(rate[[0, 2, 4]], [1, 3, 5])  # not copied: unchanged
    for copy, value in ((1, 3.0), (3, 5.0)):
        assert rate[copy] in (np.float32(value) * np.float32(f) for f in (0.8, 1.2))
        assert coef[copy] in (np.float32(0.9) * np.float32(0.8), 1.0)  # 1.08 is clipped
    np.testing.assert_array_equal(after.member.fitness, [3, 5, 5, 4, 4])
    np.testing.assert_array_equal(after.member.num_episodes, np.zeros(5))


def test_equal_members_copy_nobody() -> None:
    before = five([7.0] * 5)
    after, parent = exploit(POPULATION, before)
    np.testing.assert_array_equal(parent, np.arange(5))
    jax.tree.map(np.testing.assert_array_equal, after.agent, before.agent)


SELECTIONS = {
    "rank": ("rank", [3, 1, 5, 2, 4], [[0, 2, 2, 4, 4]]),
    "truncation": (
        "truncation",
        [3, 1, 5, 2, 4],
        [[0, a, 2, b, 4] for a in (2, 4) for b in (2, 4)],
    ),
    "without a return": ("rank", [3, -np.inf, 5, -np.inf, 4], [[0, 4, 2, 2, 4]]),
    "equal worst": ("rank", [1, 1, 1, 1, 2], [[0, 1, 2, 4, 4]]),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_the_worst_copy_the_best(name: str) -> None:
    how, fitness, allowed = SELECTIONS[name]
    population = replace(POPULATION, selection=how)
    for key in jax.random.split(KEY, 4):
        chosen = select(population, jnp.array(fitness, jnp.float32), key)
        assert chosen.tolist() in allowed


def test_fitness_is_the_mean_return_since_the_last_generation() -> None:
    member = Member.start()
    assert member.evaluated().fitness == -np.inf
    for count, total in ((2, 6.0), (0, 0.0), (1, 3.0)):
        given = EpisodeStats(
            count=jnp.float32(count), return_sum=jnp.float32(total), length_sum=jnp.float32(0)
        )
        member = member.add(given)
    assert member.evaluated().fitness == 3.0
    assert member.evaluated().evaluated().fitness == 3.0  # no episode ended since
    assert replace(member, return_sum=jnp.float32(np.nan)).evaluated().fitness == -np.inf


def test_a_schedule_is_multiplied_as_a_whole() -> None:
    one = schedule("linear(1, 0.5, 100)")
    stacked = jax.tree.map(lambda number: jnp.full(5, number), one)
    before = five([3.0, 1.0, 5.0, 2.0, 4.0], schedules={"rate": stacked})
    after, _ = exploit(POPULATION, before)
    start, end = after.schedules["rate"].values
    np.testing.assert_array_equal(np.asarray(start)[[0, 2, 4]], 1.0)
    assert np.asarray(start)[1] in (np.float32(0.8), np.float32(1.2))
    np.testing.assert_array_equal(end, 0.5 * np.asarray(start))


SMALL = {"num_envs": 2, "rollout_length": 4, "num_minibatches": 1, "hidden_sizes": (4,)}
RATE = {"learning_rate": 2.5e-4}
FOUR = Population(size=4, exploit_every=2, perturb=["learning_rate=log:1e-3..1e-1", "entropy_coef"])


def trained(population: Population, hyper: Any = None, **how: Any) -> TrainResult:
    env = triglot.make_env("probe:two-step")
    agent = triglot.make_agent("ppo", env, config=SMALL, hyper=hyper or RATE)
    steps = 6 * agent.num_envs * agent.rollout_length
    return triglot.train(
        agent, env, key=jax.random.key(3), total_steps=steps, population=population, **how
    )


@pytest.mark.slow
def test_a_population_trains_and_repeats_itself() -> None:
    first, second = trained(FOUR), trained(FOUR)
    jax.tree.map(np.testing.assert_array_equal, first.metrics, second.metrics)
    parent = first.metrics["parent"]
    assert parent.shape == (4, 6)
    own = np.broadcast_to(np.arange(4.0)[:, None], (4, 6))
    np.testing.assert_array_equal(parent[:, ::2], own[:, ::2])  # between generations
    rates = first.metrics["entropy_coef"]
    moved = np.where(parent != own)
    for member, update in zip(*moved, strict=True):
        if update < 5:
            source = rates[int(parent[member, update]), update]
            assert np.isclose(rates[member, update + 1] / source, [0.8, 1.2]).any()
    hyper = first.runner_state.agent.hyper.learning_rate
    assert ((hyper >= 1e-3) & (hyper <= 1e-1)).all() and len(set(hyper.tolist())) > 1


def refused(population: dict[str, Any], hyper: Any = None, algorithm: Any = "ppo") -> str:
    env = triglot.make_env("probe:two-step")
    agent = triglot.make_agent(algorithm, env, hyper=hyper or RATE)
    with pytest.raises(TriglotError) as error:
        given = {"size": 4, "perturb": ["learning_rate"], **population}
        Population(**given).for_agent(agent, num_updates=100)
    return str(error.value)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "one": ({"size": 1}, "population must be at least 2, got 1"),
    "never": ({"exploit_every": 0}, "exploit_every must be at least 1, got 0"),
    "beyond": ({"exploit_every": 101}, "must be at most the updates of the training, 100; got 101"),
    "fraction": ({"fraction": 0.6}, "above 0 and at most 0.5, got 0.6"),
    "selection": ({"selection": "truncate"}, "did you mean 'truncation'"),
    "nothing": ({"perturb": []}, "needs hyperparameters to perturb"),
    "unknown": ({"perturb": ["learning_rte"]}, "did you mean 'learning_rate'"),
    "static": ({"perturb": ["num_envs"]}, "num_envs is fixed when the training compiles"),
    "twice": ({"perturb": ["discount", "discount"]}, "has discount twice"),
    "range": ({"perturb": ["learning_rate=1e-3..1e-4"]}, "with finite bounds, the lower one first"),
    "text": ({"perturb": ["learning_rate=fast"]}, "must have the form NAME"),
    "log": ({"perturb": ["entropy_coef=log:0..1"]}, "above 0 after log"),
    "part": ({"perturb": ["epochs=1..5"]}, "epochs must be above 0 and at most 4, got 5"),
    "lost": ({"perturb": ["epochs=1e-60..2"]}, "above 0 and at most 4, got 1e-60"),
    "none": ({"perturb": ["epochs"]}, "multiplies epochs, which is None: give it a number"),
    "bounds": ({"perturb": ["discount=0.5..1.5"]}, "discount must be within [0, 1], got 1.5"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_refused_in_a_sentence(name: str) -> None:
    given, says = WRONG[name]
    message = refused(given)
    assert says in message and "\n" not in message


def test_what_cannot_be_multiplied_is_refused() -> None:
    assert "entropy_coef, which is 0" in refused(
        {"perturb": ["entropy_coef"]}, PPO.Hyperparams(entropy_coef=0)
    )
    hyper = {"learning_rate": "linear(1, 0)"}
    assert "is a schedule" in refused({"perturb": ["learning_rate=log:1e-4..1e-2"]}, hyper)
    assert "keep its order" in refused({"perturb": ["v_min"]}, algorithm="rainbow")


def test_devices_that_do_not_divide_a_population_are_refused() -> None:
    check_members_divide(FOUR, 2)
    with pytest.raises(TriglotError, match="3 devices must divide the population, 4"):
        check_members_divide(FOUR, 3)


def test_host_environments_are_refused() -> None:
    env = triglot.make_env("gymnasium:CartPole-v1")
    agent = triglot.make_agent("ppo", env, config=SMALL, hyper=RATE)
    with pytest.raises(TriglotError, match="is stepped in Python, and its state cannot be copied"):
        triglot.train(agent, env, key=KEY, total_steps=64, population=FOUR)
