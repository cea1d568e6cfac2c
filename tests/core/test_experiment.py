"""An experiment driven by hand has the numbers of `train`, also saved, restored and made longer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.core.errors import TriglotError
from triglot.core.experiment import evaluation_keys, updates_of

KEY = jax.random.key(3)
SMALL = {"num_envs": 2, "rollout_length": 4, "hidden_sizes": (8,), "num_minibatches": 2}
PER_UPDATE = 8


@pytest.fixture(scope="module")
def agent() -> Any:
    return triglot.make_agent("ppo", triglot.make_env("probe:two-step"), config=SMALL)


@pytest.fixture(scope="module")
def experiment(agent: Any) -> triglot.Experiment:
    env = triglot.make_env("probe:two-step")
    steps = 6 * PER_UPDATE - 1  # rounded up to whole rollouts
    return triglot.Experiment(agent, env, key=KEY, total_steps=steps, num_seeds=3)


def last(experiment: triglot.Experiment, *given: Any, **how: Any) -> Any:
    """Train to the end and return the last states."""
    return [chunk.runner_states for chunk in experiment.chunks(*given, **how)][-1]


def test_it_counts_seeds_updates_and_steps(experiment: triglot.Experiment) -> None:
    assert (experiment.num_updates, experiment.num_steps) == (6, 48)
    assert experiment.keys.shape == (3,) and experiment.shapes.num_updates.shape == (3,)


def test_driven_by_hand_it_is_train(experiment: triglot.Experiment) -> None:
    result = triglot.train(
        experiment.agent, experiment.env, key=KEY, total_steps=48, num_seeds=3
    ).runner_state
    chex.assert_trees_all_equal(last(experiment), result)
    chex.assert_trees_all_equal(last(experiment, experiment.start(), boundaries=[4]), result)
    half = last(experiment, until=2)
    assert updates_of(half) == 2
    chex.assert_trees_all_equal(last(experiment, half), result)


def test_what_was_saved_goes_on_to_the_same_end(
    experiment: triglot.Experiment, tmp_path: Path
) -> None:
    experiment.save(tmp_path, last(experiment, until=3))
    again = replace(experiment)  # as in another process
    chex.assert_trees_all_equal(last(again, again.restore(tmp_path)), last(experiment))


def test_a_checkpoint_at_the_end_of_a_schedule_keeps_the_schedule(
    experiment: triglot.Experiment, tmp_path: Path
) -> None:
    # It ends with the third update, also where the training is restored from there.
    rate = "linear(1e-3, 1e-4, 3 updates)"
    scheduled = replace(experiment, hyper={"learning_rate": rate})
    scheduled.save(tmp_path, last(scheduled, until=3))
    again = replace(scheduled)
    chex.assert_trees_all_equal(last(again, again.restore(tmp_path)), last(scheduled))


def test_it_starts_from_parameters(experiment: triglot.Experiment) -> None:
    drawn = experiment.start()
    params = drawn.agent.learner.variables.params
    chex.assert_trees_all_equal(experiment.start(params), drawn)
    shifted = jax.tree.map(lambda leaf: leaf + 1, params)
    started = experiment.start(shifted)
    chex.assert_trees_all_equal(started.agent.learner.variables.params, shifted)
    chex.assert_trees_all_equal((started.env, started.key), (drawn.env, drawn.key))


def test_parameters_also_start_the_target_networks() -> None:
    env = triglot.make_env("probe:two-step")
    config = {
        "num_envs": 2,
        "hidden_sizes": (8,),
        "buffer_size": 64,
        "batch_size": 4,
        "learning_starts": 8,
    }
    agent = triglot.make_agent("dqn", env, config=config)
    dqn = triglot.Experiment(agent, env, key=KEY, total_steps=64, num_seeds=2)
    params = jax.tree.map(lambda leaf: leaf + 1, dqn.start().agent.learner.variables.params)
    chex.assert_trees_all_equal(dqn.start(params).agent.target.params, params)


def test_parameters_of_another_network_are_refused(experiment: triglot.Experiment) -> None:
    params = experiment.start().agent.learner.variables.params
    for wrong in (jax.tree.map(lambda leaf: leaf[:2], params), {}):
        with pytest.raises(TriglotError, match=r"do not fit the .* network .*3 seeds"):
            experiment.start(wrong)


def test_a_checkpoint_may_have_further_files(
    experiment: triglot.Experiment, tmp_path: Path
) -> None:
    def write(folder: Path) -> None:
        (folder / "notes.txt").write_text("mine")

    experiment.save(tmp_path, experiment.start(), write_files=write)
    notes = tmp_path / "00000000" / "notes.txt"
    assert notes.read_text() == "mine"
    experiment.restore(tmp_path)
    notes.write_text("changed")
    with pytest.raises(TriglotError, match=r"notes\.txt was modified"):
        experiment.restore(tmp_path)


def test_a_longer_one_stretches_the_schedules_that_had_ended(
    experiment: triglot.Experiment, tmp_path: Path
) -> None:
    train: Any = {"agent": experiment.agent, "env": experiment.env}
    first = triglot.train(**train, key=KEY, total_steps=48, num_seeds=3)
    whole = triglot.train(**train, total_steps=48, continue_from=first)
    experiment.save(tmp_path, first.runner_state)
    longer = replace(experiment, total_steps=96)
    chex.assert_trees_all_equal(last(longer, longer.restore(tmp_path)), whole.runner_state)
    assert (whole.metrics["learning_rate"] > 0).all()


def test_another_training_is_not_restored(experiment: triglot.Experiment, tmp_path: Path) -> None:
    experiment.save(tmp_path, experiment.start())
    other = replace(experiment, num_seeds=2)
    with pytest.raises(TriglotError, match="belongs to another training"):
        other.restore(tmp_path)
    with pytest.raises(TriglotError, match="there is no checkpoint"):
        experiment.restore(tmp_path / "nothing")


@pytest.mark.slow
def test_seeds_may_have_keys_and_hyperparameters_of_their_own(
    experiment: triglot.Experiment,
) -> None:
    hyper: Any = experiment.agent.hyper
    settings = [replace(hyper, learning_rate=rate) for rate in (1e-3, 1e-2)]
    chosen = [settings[0], settings[1], settings[1]]
    keys = experiment.keys[jnp.array([2, 0, 2])]
    listed = replace(experiment, key=keys, hyper=chosen)
    arrays = replace(experiment, key=keys, hyper={"learning_rate": jnp.array([1e-3, 1e-2, 1e-2])})
    ends = last(listed), last(arrays)
    chex.assert_trees_all_equal(*ends)
    np.testing.assert_array_equal(
        jax.random.key_data(ends[0].key[0]), jax.random.key_data(ends[0].key[2])
    )
    assert not np.array_equal(*(ends[0].agent.hyper.learning_rate[i] for i in (0, 2)))


def test_it_is_evaluated_with_keys_that_the_training_does_not_use(
    experiment: triglot.Experiment,
) -> None:
    state = last(experiment)
    episodes = experiment.evaluate(state, num_episodes=5)
    assert episodes.returns.shape == (3, 5)
    keys = evaluation_keys(KEY, 3)
    again = experiment.evaluate(state, num_episodes=5, keys=keys)
    chex.assert_trees_all_equal(episodes, again)
    (returns,) = experiment.greedy_returns(state, 5)
    np.testing.assert_array_equal(returns, np.asarray(episodes.returns).mean(axis=1))
    assert not {*map(str, jax.random.key_data(keys))} & {
        *map(str, jax.random.key_data(experiment.keys))
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_steps": 0}, "total_steps must be at least 1, got 0"),
        ({"num_seeds": 0}, "num_seeds must be at least 1, got 0"),
        ({"num_seeds": 2, "key": jax.random.split(KEY, 3)}, "the keys of 3 seeds.*num_seeds=2"),
        ({"key": 0}, "key must be a random key"),
        ({"hyper": [None]}, "for 1 seed, and there are 3"),
        ({"hyper": {"learning_rat": 1e-3}}, "learning_rat"),
        ({"shard": "envs"}, "shard='envs' has no effect without devices"),
        ({"devices": 1, "shard": "rows"}, "shard.*rows"),
        ({"every_update": 3}, "every_update .*got 3"),
        ({"population": 8}, "population must be a triglot.Population, got 8"),
    ],
)
def test_mistakes_are_named_before_anything_compiles(
    experiment: triglot.Experiment, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(TriglotError, match=message):
        replace(experiment, **changes)


def test_keys_of_seeds_need_others_for_an_evaluation(experiment: triglot.Experiment) -> None:
    keyed = replace(experiment, key=experiment.keys)
    with pytest.raises(TriglotError, match="give keys="):
        keyed.evaluate(keyed.start())


def test_more_seeds_than_fit_into_memory_are_described(experiment: triglot.Experiment) -> None:
    many = replace(experiment, num_seeds=10**9)
    assert many.shapes.num_updates.shape == (10**9,)
