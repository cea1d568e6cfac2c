"""A training continues from its result, as if it had not ended; its schedules last for both."""

from typing import Any

import jax
import numpy as np
import pytest

from triglot import TriglotError, make_agent, make_env, train

ENV = make_env("probe:two-step")
CONFIG = {
    "num_envs": 2, "rollout_length": 4, "num_minibatches": 1, "num_epochs": 1, "hidden_sizes": (4,),
}  # fmt: skip
KEY = jax.random.key(0)
STEPS = 80  # ten updates


def agent(**hyper: Any) -> Any:
    return make_agent("ppo", ENV, backend="jax", config=CONFIG, hyper=hyper)


def data(leaf: Any) -> np.ndarray:
    is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def rates(result: Any) -> Any:
    return result.metrics["learning_rate"][0]


def test_two_halves_are_the_whole() -> None:
    own = agent(learning_rate=2.5e-4)
    whole = train(own, ENV, key=KEY, total_steps=2 * STEPS, num_seeds=2)
    first = train(own, ENV, key=KEY, total_steps=STEPS, num_seeds=2)
    second = train(own, ENV, total_steps=STEPS, continue_from=first)
    pairs = zip(*map(jax.tree.leaves, (whole.runner_state, second.runner_state)), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(data(one), data(other))
    assert (second.num_updates, second.num_steps) == (20, 2 * STEPS)
    assert second.metrics["loss"].shape == (2, 10)
    leaves: Any = jax.tree.leaves(first.runner_state)
    assert not any(leaf.is_deleted() for leaf in leaves), "the first result can still be used"


@pytest.mark.slow
@pytest.mark.parametrize("rate", [{}, {"learning_rate": "linear(2.5e-4, 0)"}])
def test_a_rate_that_has_fallen_goes_on_from_where_it_would_be(rate: dict[str, Any]) -> None:
    own = agent(**rate)
    first = train(own, ENV, key=KEY, total_steps=STEPS)
    second = train(own, ENV, total_steps=STEPS, continue_from=first.runner_state)
    np.testing.assert_allclose(
        rates(first), 2.5e-4 * np.linspace(1, 0, 10, endpoint=False), rtol=1e-5
    )
    np.testing.assert_allclose(
        rates(second), 2.5e-4 * np.linspace(0.5, 0, 10, endpoint=False), rtol=1e-5
    )


@pytest.mark.slow
def test_a_rate_that_ended_by_choice_is_refused_until_it_is_changed() -> None:
    own = agent(learning_rate="linear(2.5e-4, 0, 5 updates)")
    first = train(own, ENV, key=KEY, total_steps=STEPS)
    with pytest.raises(TriglotError, match="is 0 after 5 updates"):
        train(own, ENV, total_steps=STEPS, continue_from=first)
    changed = train(
        own, ENV, total_steps=STEPS, continue_from=first,
        hyper={"learning_rate": "linear(1e-3, 1e-4)"},
    )  # fmt: skip
    expected = np.linspace(1e-3, 1e-4, 20, endpoint=False)[10:]
    np.testing.assert_allclose(rates(changed), expected, rtol=1e-5)


@pytest.mark.slow
def test_the_state_must_be_of_this_training() -> None:
    own = agent()
    first = train(own, ENV, key=KEY, total_steps=STEPS)
    with pytest.raises(TriglotError, match="key has no effect"):
        train(own, ENV, key=KEY, total_steps=STEPS, continue_from=first)
    with pytest.raises(TriglotError, match="1 seed, got num_seeds=3"):
        train(own, ENV, total_steps=STEPS, num_seeds=3, continue_from=first)
    other = make_agent("dqn", ENV, backend="jax", config={"num_envs": 2, "hidden_sizes": (4,)})
    with pytest.raises(TriglotError, match=r"the same agent: agent\.learner.*absent"):
        train(other, ENV, total_steps=STEPS, continue_from=first)
