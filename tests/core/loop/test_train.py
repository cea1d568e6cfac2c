"""The compiled chunk: vmapped over seeds and hyperparameters, compiled once, repeatable."""

from dataclasses import replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.algorithms.ppo import PPO, PPOConfig, PPOHyperparams
from triglot.backends import build
from triglot.core.environment import Environment
from triglot.core.errors import TriglotError
from triglot.core.evaluate import evaluate
from triglot.core.hyper import fill_schedule_horizon
from triglot.core.loop.state import update_keys
from triglot.core.loop.trainer import Trainer, init_seeds, train_seeds, updates_for
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.rl.schedules import schedule
from triglot.envs import gymnax, probes
from triglot.runs.training import train

CONFIG = PPOConfig(rollout_length=32, num_epochs=2, num_minibatches=2, hidden_sizes=(16,))
ENV = gymnax.make("CartPole-v1")


def make_agent(config: PPOConfig = CONFIG, env: Environment = ENV) -> PPO:
    network = build("linen", PPO.networks(env.obs_spec, env.action_spec, config))
    return PPO(network, env.obs_spec, env.action_spec, config)


def make_trainer(agent: PPO, chunk_size: int = 4) -> Trainer:
    return Trainer(agent, VectorEnvironment(ENV, agent.num_envs), chunk_size=chunk_size)


def programs() -> int:
    """Count what `train_seeds` was compiled for."""
    return train_seeds.num_programs()


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return make_trainer(make_agent())


@pytest.mark.slow
def test_seeds_differ_and_each_equals_its_run_alone(trainer: Trainer) -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    together, metrics = train_seeds(trainer, init_seeds(trainer, keys), 4)
    kernels = [x for x in jax.tree.leaves(together.agent.learner.variables.params) if x.ndim > 2]
    for kernel in kernels:
        assert all((kernel[i] != kernel[j]).any() for i, j in [(0, 1), (0, 2), (1, 2)])
    run_alone = jax.jit(lambda key: trainer.train_chunk(trainer.init(key)))
    for seed in range(3):
        alone, _ = run_alone(keys[seed])
        # A gradient under vmap differs from one alone in the last bits, and Adam magnifies it.
        chex.assert_trees_all_close(
            alone.agent.learner.variables.params,
            jax.tree.map(lambda x, s=seed: x[s], together.agent.learner.variables.params),
            atol=2e-4,
        )
        np.testing.assert_array_equal(alone.env.obs.shape, together.env.obs[seed].shape)
    assert metrics["loss"].shape == (3, 4)


@pytest.mark.slow
def test_a_sweep_over_learning_rates_is_one_compilation(trainer: Trainer) -> None:
    rates = jnp.array([1e-4, 1e-3, 1e-2])
    key = jax.random.key(0)
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def sweep(rates: jax.Array) -> tuple:
        hypers = replace(PPOHyperparams(), learning_rate=rates)
        axes = replace(jax.tree.map(lambda _: None, PPOHyperparams()), learning_rate=0)
        starts = jax.vmap(lambda h: trainer.init(key, h), in_axes=(axes,))(hypers)
        return jax.vmap(trainer.train_chunk)(starts)

    states, metrics = sweep(rates)
    sweep(rates * 2)
    np.testing.assert_allclose(metrics["learning_rate"][:, 0], rates, rtol=1e-6)
    run_alone = jax.jit(lambda hyper: trainer.train_chunk(trainer.init(key, hyper)))
    for index in range(3):
        alone, _ = run_alone(replace(PPOHyperparams(), learning_rate=rates[index]))
        chex.assert_trees_all_close(
            alone.agent.learner.variables.params,
            jax.tree.map(lambda x, i=index: x[i], states.agent.learner.variables.params),
            atol=2e-3,
        )


def test_chunks_of_any_length_share_one_program(trainer: Trainer) -> None:
    compiled = programs()
    keys = jax.random.split(jax.random.key(5), 2)
    state = init_seeds(trainer, keys)
    for count in (4, 3, 1):
        state, _ = train_seeds(trainer, state, count)
    assert programs() == compiled + 1
    assert state.num_updates.tolist() == [8, 8]
    equal = make_trainer(trainer.agent)  # pyright: ignore[reportArgumentType]
    train_seeds(equal, init_seeds(equal, keys), 2)
    assert programs() == compiled + 1


@pytest.mark.slow
def test_how_training_is_cut_into_chunks_changes_nothing(trainer: Trainer) -> None:
    keys = jax.random.split(jax.random.key(0), 1)
    whole, _ = train_seeds(trainer, init_seeds(trainer, keys), 4)
    parts = init_seeds(trainer, keys)
    for count in (1, 3):
        parts, _ = train_seeds(trainer, parts, count)
    chex.assert_trees_all_equal(
        whole.agent.learner.variables.params, parts.agent.learner.variables.params
    )
    assert (jax.random.key_data(whole.key) == jax.random.key_data(parts.key)).all()


@pytest.mark.slow
def test_a_run_repeats_and_another_key_gives_another() -> None:
    agent = make_agent()
    first, second, other = (
        train(agent, ENV, key=jax.random.key(seed), total_steps=256) for seed in (0, 0, 1)
    )
    for name, metric in first.metrics.items():
        np.testing.assert_array_equal(metric, second.metrics[name])
    assert (first.metrics["loss"] != other.metrics["loss"]).all()


@pytest.mark.slow
def test_a_total_is_rounded_up_to_whole_rollouts() -> None:
    agent, seen = make_agent(), []
    result = train(
        agent,
        ENV,
        key=jax.random.key(0),
        total_steps=129,
        num_seeds=2,
        callback=lambda done, metrics: seen.append((done, metrics["loss"].shape)),
    )
    assert (result.num_updates, result.num_steps) == (2, 256)
    assert seen == [(2, (2, 2))]


@pytest.mark.parametrize("number", [{"total_steps": 0}, {"num_seeds": 0}])
def test_nothing_to_train_is_refused(number: dict[str, int]) -> None:
    options: dict[str, Any] = {"total_steps": 128, "num_seeds": 1, **number}
    with pytest.raises(TriglotError, match="at least 1"):
        train(make_agent(), ENV, key=jax.random.key(0), **options)


@pytest.mark.slow
def test_the_budget_sets_the_schedule_and_leaves_a_stated_one() -> None:
    rates = {"linear(1, 0)": "linear(1, 0, 7 updates)", "linear(1, 0, 9)": "linear(1, 0, 9 steps)"}
    for rate, filled in rates.items():
        hyper = PPOHyperparams(learning_rate=schedule(rate))  # pyright: ignore
        assert str(fill_schedule_horizon(hyper, 7).learning_rate) == filled
    assert fill_schedule_horizon({"any": 1.0}, 7) == {"any": 1.0}
    result = train(make_agent(), ENV, key=jax.random.key(0), total_steps=4 * 128)
    rates = result.metrics["learning_rate"][0]
    np.testing.assert_allclose(rates, 2.5e-4 * np.array([1, 0.75, 0.5, 0.25]), rtol=1e-5)


def test_updates_cover_the_steps(trainer: Trainer) -> None:
    assert trainer.steps_per_update == 128
    assert [updates_for(trainer.steps_per_update, steps) for steps in (1, 128, 129)] == [1, 1, 2]


def test_the_key_of_training_is_never_reused(trainer: Trainer) -> None:
    """A published DQN rebound its key to `PRNGKey(0)`, and every seed was the same."""
    state = trainer.init(jax.random.key(0))
    keys = [state.key]
    update = jax.jit(trainer.update)
    for _ in range(3):
        keys += update_keys(state.key, state.num_updates)
        state, _ = update(state)
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == 13


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most_drawn", "impl"),
    [(0, "threefry2x32"), (2**26, "threefry2x32"), (2**26, "unsafe_rbg")],
    ids=["one by one", "at once", "another generator"],
)
def test_short_updates_are_the_same_however_their_numbers_are_drawn(
    most_drawn: int, impl: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triglot.core.loop.trainer._MAX_DRAWN_BYTES", most_drawn)
    sizes = {"num_envs": 2, "rollout_length": 1, "batch_size": 4, "buffer_size": 32}
    env = gymnax.make("Catch-bsuite")  # random starts, exact arithmetic
    agent = triglot.make_agent("dqn", env, config={**sizes, "learning_starts": 4})
    trainer = Trainer(agent, VectorEnvironment(env, 2), chunk_size=8)
    start = trainer.init(jax.random.key(0, impl=impl))
    state, update = start, jax.jit(trainer.update)
    for _ in range(8):
        state, _ = update(state)
    in_one, _ = jax.jit(trainer.train_chunk)(start)
    assert int(in_one.agent.learner.num_gradient_steps) > 0
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        in_one.agent.learner.variables.params,
        state.agent.learner.variables.params,
    )
    np.testing.assert_array_equal(in_one.env.obs, state.env.obs)


@pytest.mark.slow
def test_a_monitor_adds_its_metrics_after_each_update() -> None:
    def monitor(state) -> dict[str, jax.Array]:
        return {"steps_seen": state.learner.num_gradient_steps}

    trainer = replace(make_trainer(make_agent()), monitor=monitor)
    _, metrics = jax.jit(trainer.train_chunk)(trainer.init(jax.random.key(0)))
    assert metrics["steps_seen"].tolist() == [4, 8, 12, 16]


def test_episode_statistics_count_what_ended() -> None:
    env = probes.make("truncating", max_steps=4)
    config = replace(CONFIG, rollout_length=8)
    result = train(make_agent(config, env=env), env, key=jax.random.key(0), total_steps=64)
    np.testing.assert_array_equal(result.metrics["num_episodes"], [[8.0, 8.0]])
    np.testing.assert_array_equal(result.metrics["episode_return"], [[4.0, 4.0]])
    np.testing.assert_array_equal(result.metrics["episode_length"], [[4.0, 4.0]])


def test_evaluation_plays_whole_episodes_and_stops_at_max_steps() -> None:
    env = probes.make("truncating", max_steps=6)
    agent = make_agent(env=env)
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 4)
    episodes = evaluate(agent, env, state, jax.random.key(1), num_episodes=5)
    assert episodes.returns.tolist() == [6.0] * 5
    assert episodes.lengths.tolist() == [6] * 5
    assert episodes.finished.all()
    cut = evaluate(agent, env, state, jax.random.key(1), num_episodes=5, max_steps=4)
    assert cut.returns.tolist() == [4.0] * 5
    assert not cut.finished.any()


@pytest.mark.slow
def test_evaluation_works_under_vmap_over_seeds() -> None:
    agent = make_agent()
    keys = jax.random.split(jax.random.key(0), 3)
    states = jax.vmap(lambda key: jax.jit(agent.init, static_argnums=1)(key, 4))(keys)
    episodes = jax.vmap(lambda s, k: evaluate(agent, ENV, s, k, num_episodes=6))(states, keys)
    assert episodes.returns.shape == (3, 6)
    np.testing.assert_array_equal(episodes.returns, episodes.lengths.astype(np.float32))


@pytest.mark.slow
def test_each_seed_may_have_its_own_hyperparameters(trainer: Trainer) -> None:
    agent, key = trainer.agent, jax.random.key(3)
    hyper = PPOHyperparams(learning_rate=jnp.array([1e-2, 0.0]))
    swept = train(agent, ENV, key=key, total_steps=256, num_seeds=2, hyper=hyper)
    rates = swept.metrics["learning_rate"]
    assert rates[0, 0] == np.float32(1e-2) and (rates[1] == 0.0).all()
    hyper = PPOHyperparams(learning_rate=1e-2)
    same = train(agent, ENV, key=key, total_steps=256, num_seeds=2, hyper=hyper)
    for name, values in same.metrics.items():
        np.testing.assert_array_equal(swept.metrics[name][0], values[0], err_msg=name)
    start = init_seeds(trainer, jax.random.split(key, 2))
    before, after = (
        jax.tree.map(lambda leaf: leaf[1], state.agent.learner.variables.params)
        for state in (start, swept.runner_state)
    )
    chex.assert_trees_all_equal(before, after)


def test_hyperparameters_of_another_number_of_seeds_are_refused(trainer: Trainer) -> None:
    hyper = PPOHyperparams(discount=jnp.array([0.9, 0.95, 0.99]))
    with pytest.raises(TriglotError, match=r"hyper.discount has shape \[3\], expected .* = \[2\]"):
        train(trainer.agent, ENV, key=jax.random.key(0), total_steps=64, num_seeds=2, hyper=hyper)
