"""Tree search and planning on models whose best plan is known; what a planner may observe."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.core.agent import PolicyInput
from triglot.core.environment import TimeStep, first_step
from triglot.core.errors import TriglotError
from triglot.core.loop.episode import play_episode, play_episodes
from triglot.core.loop.rollout import rollout
from triglot.core.loop.state import first_state
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.rl.planning import Planner, check_model, root_of, step_model
from triglot.core.rl.search import Node, SearchConfig, SearchHyperparams, search
from triglot.core.specs import Box, Discrete
from triglot.core.trainers import make_trainer
from triglot.core.wrappers.ends import TimeLimit

SMALL = {
    "num_envs": 2,
    "rollout_length": 4,
    "num_gradient_steps": 1,
    "batch_size": 4,
    "learning_starts": 8,
    "buffer_size": 16,
    "hidden_sizes": (4,),
    "num_simulations": 2,
}


@dataclass(frozen=True)
class Ladder:
    """Climb three rungs with action 1 for a reward of 1; action 0 ends the episode.

    Attributes:
      noise: add a random number to the observation.
    """

    noise: bool = False
    name = "ladder"
    obs_spec = Box((1,), "float32", 0.0, 4.0)
    action_spec = Discrete(2)

    def reset(self, key: jax.Array) -> TimeStep:
        del key
        return first_step(jnp.zeros((), jnp.int32), jnp.zeros((1,)))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        after = state + action
        noise = jax.random.uniform(key) if self.noise else 0.0
        return TimeStep(
            state=after,
            obs=after.astype(jnp.float32)[None] + noise,
            reward=(after == 3).astype(jnp.float32),
            terminated=(after == 3) | (action == 0),
            truncated=jnp.zeros((), bool),
        )


@pytest.mark.parametrize("gumbel", [False, True])
def test_a_search_finds_a_reward_three_steps_ahead(gumbel: bool) -> None:
    config = SearchConfig(num_simulations=24, gumbel=gumbel)

    def node_of(step: TimeStep, discount: Any = None) -> Node:
        zeros = jnp.zeros(step.reward.shape)
        return Node(
            state=step,
            logits=jnp.zeros((*zeros.shape, 2)),
            value=zeros,
            reward=step.reward,
            discount=discount,
        )

    def expand(before: TimeStep, action: jax.Array, key: jax.Array) -> Node:
        after = step_model(Ladder(), before, action, key)
        return node_of(after, jnp.where(after.terminated, 0.0, 0.5))

    @jax.jit
    def found(mask: Any, key: jax.Array) -> Any:
        seen = PolicyInput(
            obs=jnp.zeros((2, 1)),
            first=jnp.ones(2, bool),
            env_state=jnp.array([0, 2]),
        )
        root = replace(node_of(root_of(seen)), action_mask=mask)
        return search(root, expand, key, config, SearchHyperparams(), explore=False)

    key = jax.random.key(0)
    free = found(jnp.ones((2, 2), bool), key)
    np.testing.assert_array_equal(free.action, [1, 1])
    np.testing.assert_allclose(free.probs.sum(axis=-1), 1.0, rtol=1e-6)
    assert (free.probs[:, 1] > 0.5).all() and free.value[1] > free.value[0] > 0.0
    # The second environment may only step down.
    masked = found(jnp.array([[True, True], [True, False]]), key)
    np.testing.assert_array_equal(masked.action, [1, 0])
    np.testing.assert_allclose(masked.probs[1], [1.0, 0.0])


def test_a_node_whose_episode_ended_stays_and_pays_nothing() -> None:
    seen = PolicyInput(obs=jnp.zeros((2, 1)), first=jnp.ones(2, bool), env_state=jnp.array([2, 0]))
    one = step_model(Ladder(), root_of(seen), jnp.array([1, 1]), jax.random.key(0))
    np.testing.assert_array_equal(one.reward, [1.0, 0.0])
    two = step_model(Ladder(), one, jnp.array([1, 1]), jax.random.key(0))
    np.testing.assert_array_equal(two.state, [3, 2])
    np.testing.assert_array_equal(two.reward, [0.0, 0.0])
    np.testing.assert_array_equal(two.terminated, [True, False])


def test_the_model_draws_for_each_state_and_call() -> None:
    seen = PolicyInput(obs=jnp.zeros((2, 1)), first=jnp.ones(2, bool), env_state=jnp.array([0, 0]))
    root, action = root_of(seen), jnp.array([1, 1])
    drawn = [
        step_model(Ladder(noise=True), root, action, jax.random.key(seed)).obs for seed in (0, 1)
    ]
    assert len(np.unique(np.concatenate(drawn))) == 4


def test_only_a_planner_gets_the_environments_states() -> None:
    env = Ladder()
    seen: dict[str, list[Any]] = {}
    for name in ("alphazero", "ppo"):
        config = SMALL if name == "alphazero" else {"num_envs": 2, "hidden_sizes": (4,)}
        agent: Any = triglot.make_agent(name, env, config=config)
        assert isinstance(agent, Planner) == (name == "alphazero")
        noted: list[Any] = []

        class Noting:
            """The agent, which notes what it observes."""

            def __getattr__(self, attribute: str) -> Any:
                return getattr(agent, attribute)  # noqa: B023

            def act(self, state: Any, carry: Any, inputs: Any, key: Any, **options: Any) -> Any:
                noted.append(inputs.env_state)  # noqa: B023
                return agent.act(state, carry, inputs, key, **options)  # noqa: B023

        noting: Any = Noting()
        vector = VectorEnvironment(env, 2)

        def run(key: jax.Array) -> Any:
            start = first_state(noting, 2, vector.reset, key, None)  # noqa: B023
            return rollout(noting, vector, start, key)  # noqa: B023

        jax.eval_shape(run, jax.random.key(0))
        state = jax.eval_shape(lambda: agent.init(jax.random.key(0), 2))  # noqa: B023
        options = {"max_steps": 3, "explore": False}
        many = {"num_episodes": 2, **options}
        players: list[tuple[Any, Any]] = [(play_episodes, many), (play_episode, options)]
        for play, given in players:
            play.eval_shape(noting, env, state, jax.random.key(0), **given)
        seen[name] = noted
    assert len(seen["ppo"]) >= 3 and all(one is None for one in seen["ppo"])
    assert {one.shape for one in seen["alphazero"]} == {(2,), (1,)}


def test_a_planner_is_refused_where_it_cannot_plan() -> None:
    env = Ladder()
    agent: Any = triglot.make_agent("alphazero", env, config=SMALL)
    check_model(agent, Ladder(noise=True))  # of equal states
    with pytest.raises(
        TriglotError, match="AlphaZero plans with the model ladder, whose states do"
    ):
        make_trainer(agent, TimeLimit(env, 5))
    with pytest.raises(TriglotError, match="stepped in Python, where no state can be copied"):
        check_model(agent, triglot.make_env("gymnasium:CartPole-v1"))
    check_model(triglot.make_agent("ppo", env), triglot.make_env("gymnasium:CartPole-v1"))
    with pytest.raises(TriglotError, match="AlphaZero needs a model"):
        replace(agent, model=None)
