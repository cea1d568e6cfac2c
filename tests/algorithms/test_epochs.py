"""`epochs`, a hyperparameter, takes a part of the `num_epochs` that are compiled."""

from typing import Any

import jax
import numpy as np
import pytest

import triglot

CONFIG = {"num_envs": 4, "rollout_length": 8, "num_minibatches": 2, "hidden_sizes": (8,)}
ALGORITHMS = ("ppo", "impala", "pqn", "vmpo")


def train(algorithm: str, num_epochs: int, epochs: float | None, **how: Any) -> Any:
    env = triglot.make_env("gymnax:CartPole-v1")
    config = {**CONFIG, "num_epochs": num_epochs}
    agent = triglot.make_agent(algorithm, env, config=config, hyper={"epochs": epochs})
    return triglot.train(agent, env, key=jax.random.key(0), total_steps=96, **how)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_of_the_epochs_are_what_none_is(algorithm: str) -> None:
    part, whole = train(algorithm, 2, 2.0), train(algorithm, 2, None)
    for name, values in whole.metrics.items():
        np.testing.assert_allclose(part.metrics[name], values, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_steps_that_are_left_out_change_nothing(algorithm: str) -> None:
    """With a tiny part one minibatch is learned from, whatever follows it; the decay is as long."""
    few, many = (train(algorithm, number, 0.1) for number in (2, 3))
    learner, same = (one.runner_state.agent.learner for one in (few, many))
    assert int(learner.num_gradient_steps[0]) == 3 * 2 * 2
    assert int(same.num_gradient_steps[0]) == 3 * 3 * 2
    count = [leaf for leaf in jax.tree.leaves(learner.opt_state) if leaf.dtype == np.int32]
    assert count and all(int(leaf[0]) == 3 for leaf in count), "Adam's own count"
    np.testing.assert_array_equal(few.metrics["learning_rate"], many.metrics["learning_rate"])


@pytest.mark.slow
def test_a_population_searches_the_epochs() -> None:
    how: Any = {"size": 4, "exploit_every": 1, "perturb": ("epochs=1..3",)}
    metrics = train("ppo", 3, None, population=triglot.Population(**how)).metrics
    values = np.asarray(metrics["epochs"])
    assert len(np.unique(values[:, 0])) == 4 and values.min() >= 1.0 and values.max() <= 3.0


def test_more_than_all_is_refused() -> None:
    with pytest.raises(triglot.TriglotError, match="PPO's epochs must be above 0 and at most 2"):
        train("ppo", 2, 2.5)
    with pytest.raises(triglot.TriglotError, match="above 0 and at most 2, got 0"):
        train("ppo", 2, 0)
