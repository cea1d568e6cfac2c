"""Schedules of hyperparameters: their values, their text, and how a training follows them."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import triglot
from triglot.algorithms.dqn import DQN
from triglot.algorithms.ppo import PPO
from triglot.algorithms.rainbow import Rainbow
from triglot.core.errors import TriglotError
from triglot.core.hyper import (
    as_float32,
    check_config,
    check_hyperparams,
    fill_schedule_horizon,
    for_environment,
    per_seed,
    with_schedules,
)
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.rl.schedules import Schedule, schedule

# By hand, at 0, 1, 2 and 8 updates of 10 steps each.
GOLDEN = {
    "linear(4, 0, 40)": [4.0, 3.0, 2.0, 0.0],
    "linear(1, 3, 4 updates)": [1.0, 1.5, 2.0, 3.0],
    "cosine(2, 0, 4 updates)": [2.0, 1 + math.sqrt(0.5), 1.0, 0.0],
    "exponential(16, 1, 40 steps)": [16.0, 8.0, 4.0, 1.0],
    "piecewise(0: 5, 20: 3, 80: 1)": [5.0, 5.0, 3.0, 1.0],
    "piecewise(0: 5, 1 updates: 3)": [5.0, 3.0, 3.0, 3.0],
    "interpolate(0: 0, 20: 1, 40: 0.5)": [0.0, 0.5, 1.0, 0.5],
}


def at_updates(given: Schedule) -> list[float]:
    return [float(given.at(jnp.int32(n), jnp.float32(10 * n))) for n in (0, 1, 2, 8)]


@pytest.mark.parametrize("text", GOLDEN)
def test_values_are_those_computed_by_hand(text: str) -> None:
    np.testing.assert_allclose(at_updates(schedule(text)), GOLDEN[text], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("text", GOLDEN)
def test_text_is_read_back(text: str) -> None:
    assert schedule(str(schedule(text))) == schedule(text)


def test_without_a_span_it_lasts_the_whole_run() -> None:
    hyper = PPO.Hyperparams(learning_rate=with_text("linear(8, 0)"))
    filled = fill_schedule_horizon(hyper, 8)
    assert str(filled.learning_rate) == "linear(8, 0, 8 updates)"
    assert at_updates(filled.learning_rate) == [8.0, 7.0, 6.0, 0.0]  # pyright: ignore


def test_an_optax_schedule_counts_updates() -> None:
    given = schedule(optax.linear_schedule(1.0, 0.0, 4))
    assert at_updates(given) == [1.0, 0.75, 0.5, 0.0]


def with_text(text: str) -> Any:
    return schedule(text)


WRONG = {
    "liner(1, 0)": "did you mean 'linear'",
    "(1, 0)": "unknown schedule ''",
    "linear(1)": "write linear(START, END)",
    "linear(1, 0, 2, 3)": "write linear(START, END)",
    "linear()": "write linear(START, END)",
    "linear(1, 0": "has the form NAME(...)",
    "linear(1, x)": "has 'x' in place of a number",
    "linear(1, nan)": "are finite, got nan",
    "cosine(inf, 0)": "are finite, got inf",
    "linear(1, 0, -5)": "above 0, such as 100_000, or 500 updates; got -5 in",
    "linear(1, 0, 0 updates)": "or 500 updates; got 0 updates in",
    "linear(1, 0, 5 days)": "unknown unit 'days' of a schedule",
    "exponential(1, 0)": "starts and ends above 0",
    "piecewise(0: 1)": "write piecewise(0: VALUE, COUNT: VALUE, ...)",
    "piecewise(1, 2)": "write piecewise(0: VALUE, COUNT: VALUE, ...)",
    "piecewise(5: 1, 10: 2)": "begin at 0 and increase",
    "interpolate(0: 1, 10: 2, 10: 3)": "begin at 0 and increase",
    "piecewise(0: 1, 10: 2, 20 updates: 3)": "have one unit",
}


@pytest.mark.parametrize("text", WRONG)
def test_another_text_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(TriglotError) as error:
        schedule(text)
    assert WRONG[text] in str(error.value) and len(str(error.value)) < 250


OUT_OF_RANGE: dict[str, tuple[Any, dict[str, Any], str]] = {
    "start": (PPO, {"discount": "linear(1.5, 0.9)"}, "discount must be within [0, 1], got 1.5 in"),
    "end": (PPO, {"discount": "linear(0.9, -1)"}, "got -1.0 in linear(0.9, -1)"),
    "table": (DQN, {"epsilon": "piecewise(0: 1, 10: 2, 20: 0)"}, "within [0, 1], got 2.0 in"),
    "optax": (PPO, {"learning_rate": optax.constant_schedule(-1.0)}, "got -1.0"),
    "part": (PPO, {"epochs": "linear(4, 5)"}, "epochs must be above 0 and at most 4, got 5"),
    "below": (Rainbow, {"v_min": "linear(-10, 20)"}, "v_min must be below v_max"),
    "annealed": (
        Rainbow,
        {"importance_sampling_exponent": "linear(0.4, 1)"},
        "importance_sampling_exponent_end anneals importance_sampling_exponent, which is a "
        "schedule, linear(0.4, 1): set importance_sampling_exponent_end to None",
    ),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_values_out_of_range_are_refused(name: str) -> None:
    algorithm, given, says = OUT_OF_RANGE[name]
    config = for_environment(algorithm.Config(), ())
    with pytest.raises(TriglotError) as error:
        check_hyperparams("A", with_schedules(algorithm.Hyperparams(**given)), config)
    assert says in str(error.value)


def test_configuration_has_no_schedules() -> None:
    with pytest.raises(TriglotError, match="num_envs is fixed when the training compiles"):
        check_config("PPO", PPO.Config(num_envs=with_text("linear(1, 8)")))


def test_an_agent_gets_the_first_value_and_each_seed_its_own_schedule() -> None:
    hyper = PPO.Hyperparams(learning_rate=with_text("linear(4, 0, 40)"))
    assert as_float32(hyper).learning_rate == 4.0
    rate: Any = per_seed(PPO.Hyperparams(learning_rate=stacked()), 2).learning_rate
    values = jax.vmap(lambda one: one.at(jnp.int32(1), jnp.float32(10)))(rate)
    np.testing.assert_allclose(values, [3.0, 6.0])


def stacked() -> Any:
    pair = schedule("linear(4, 0, 40)"), schedule("linear(8, 0, 40)")
    return jax.tree.map(lambda *numbers: jnp.array(numbers), *pair)


SMALL = {"num_envs": 2, "rollout_length": 4, "num_minibatches": 1, "hidden_sizes": (4,)}


def trained(
    algorithm: str, hyper: Any, config: Any, env: str = "probe:two-step", **more: Any
) -> Any:
    built = triglot.make_env(env)
    agent = triglot.make_agent(algorithm, built, config=config, hyper=hyper, **more)
    steps = 4 * agent.num_envs * agent.rollout_length
    return triglot.train(agent, built, key=jax.random.key(3), total_steps=steps)


@pytest.mark.slow
def test_a_training_follows_its_schedules() -> None:
    hyper = {"learning_rate": "linear(0.25, 0)", "gae_lambda": "linear(1, 0.5, 16)"}
    metrics = trained("ppo", hyper, SMALL).metrics
    np.testing.assert_array_equal(metrics["learning_rate"], [[0.25, 0.1875, 0.125, 0.0625]])
    np.testing.assert_array_equal(metrics["gae_lambda"], [[1.0, 0.75, 0.5, 0.5]])


@pytest.mark.parametrize("num_steps", [0, 1, 77, 99, 100, 2**24 + 4])
@pytest.mark.parametrize(("start", "end"), [(1.0, 0.05), (0.7, 0.3), (0.3, 0.0)])
def test_steps_and_updates_keep_their_arithmetic(start: float, end: float, num_steps: int) -> None:
    """Epsilon over steps and PPO's rate over updates have had these bits since version 0.1."""
    count, one = jnp.float32(num_steps), jnp.float32(1)
    share = jnp.minimum(count / jnp.float32(100), one)
    start_, end_ = jnp.float32(start), jnp.float32(end)
    steps = schedule(f"linear({start}, {end}, 100)").at(jnp.int32(0), count)
    assert steps == start_ + share * (end_ - start_)
    updates = schedule(f"linear({start}, 0, 100 updates)").at(jnp.int32(num_steps), one)
    assert updates == start_ * jnp.maximum(one - count / jnp.float32(100), jnp.float32(0))


def test_an_online_agent_follows_a_schedule_from_step_to_step() -> None:
    env = triglot.make_env("gridworld:2x2")
    config, hyper = {"rollout_length": 4}, {"epsilon": "linear(1, 0, 8)"}
    agent = triglot.make_agent("q_learning", env, backend="table", config=config, hyper=hyper)
    trainer = Trainer(agent, VectorEnvironment(env, agent.num_envs))
    state, metrics = jax.jit(trainer.update)(trainer.init(jax.random.key(0)))
    assert metrics["epsilon"] == 1.0  # at the rollout's start
    assert state.agent.hyper.epsilon == 1.0 - 3 / 8  # at its fourth step


@pytest.mark.slow
def test_a_host_environment_follows_a_schedule_too() -> None:
    hyper = {"entropy_coef": "linear(0.25, 0)"}
    result = trained("ppo", hyper, SMALL, env="gymnasium:CartPole-v1")
    np.testing.assert_array_equal(result.metrics["entropy_coef"], [[0.25, 0.1875, 0.125, 0.0625]])


def test_an_agent_without_hyperparameters_in_its_state_is_refused() -> None:
    env = triglot.make_env("probe:two-step")
    agent = triglot.make_agent("ppo", env, config=SMALL, hyper={"discount": "linear(0.5, 1)"})

    class Stateless(PPO):
        def init(self, key: Any, num_envs: int, hyper: Any = None) -> Any:
            return {"learner": super().init(key, num_envs, hyper).learner}

    other = Stateless(agent.network, agent.obs_spec, agent.action_spec, agent.config, agent.hyper)
    with pytest.raises(TriglotError, match=r"cannot follow the schedule of .*discount"):
        jax.eval_shape(Trainer(other, VectorEnvironment(env, 2)).init, jax.random.key(0))
