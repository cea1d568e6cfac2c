"""Tree search and planning on models whose best plan is known; what a planner may observe."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest
from scipy import stats

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


@pytest.mark.slow
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


def flat_search(logits: Any, mask: Any, key: jax.Array, **given: Any) -> Any:
    """Search where no action changes anything."""
    logits = jnp.asarray(logits, jnp.float32)
    zeros = jnp.zeros(len(logits))

    def node(state: Any, *_: Any) -> Node:
        return Node(
            state=state,
            logits=jnp.zeros_like(logits),
            value=zeros,
            action_mask=mask,
            reward=zeros,
            discount=zeros + 0.9,
        )

    given = {"config": SearchConfig(num_simulations=4), "hyper": SearchHyperparams(), **given}
    root = Node(state=zeros, logits=logits, value=zeros, action_mask=mask)
    return search(root, node, key, given.pop("config"), given.pop("hyper"), **given)


@pytest.fixture(scope="module")
def root_prior() -> Iterator[Any]:
    """Return the prior policy at the roots of a search by PUCT, as mctx used it."""
    used: list[Any] = []

    def noting(*given: Any, **named: Any) -> Any:
        output = policy(*given, **named)
        logits: Any = output.search_tree.children_prior_logits
        used.append(jax.nn.softmax(logits[:, 0]))
        return output

    @partial(jax.jit, static_argnames="explore")
    def prior(logits: Any, mask: Any, key: jax.Array, alpha: Any, *, explore: bool) -> Any:
        hyper = SearchHyperparams(dirichlet_fraction=0.25, dirichlet_alpha=alpha)
        flat_search(logits, mask, key, hyper=hyper, explore=explore)
        return used.pop()

    with pytest.MonkeyPatch.context() as patch:
        policy = mctx.muzero_policy
        patch.setattr(mctx, "muzero_policy", noting)
        yield prior


@pytest.mark.slow
@pytest.mark.parametrize("num_legal", [1, 2, 3, 9])
@pytest.mark.parametrize("forbidden", [-6.0, 0.0, 6.0])
@pytest.mark.parametrize("alpha", [0.03, 0.3, 1.5])
def test_the_root_s_noise_is_dirichlet_s_over_the_allowed_actions(
    root_prior: Any, num_legal: int, forbidden: float, alpha: float
) -> None:
    """The logits of forbidden actions, which nothing trains, change nothing."""
    number, rng = 4096, np.random.default_rng(num_legal)
    legal = np.sort(rng.permutation(9)[:num_legal])
    mask = np.isin(np.arange(9), legal)
    policy = rng.dirichlet(np.ones(num_legal))
    logits = np.full(9, forbidden, np.float32)
    logits[legal] = np.log(policy)
    rows = (np.broadcast_to(each, (number, 9)) for each in (logits, mask))
    prior = root_prior(*rows, jax.random.key(1), jnp.float32(alpha), explore=True)
    prior = np.asarray(prior)
    assert prior[:, ~mask].max(initial=0.0) < 1e-30
    if num_legal == 1:
        np.testing.assert_allclose(prior[:, mask], 1.0, rtol=1e-5)
        return
    noise = (prior[:, mask] - 0.75 * policy) / 0.25
    expected = rng.dirichlet([alpha] * num_legal, number)
    for one, other in zip(noise.T, expected.T, strict=True):
        # Rounded, since a small alpha gives many numbers that are 0 but for their rounding.
        compared: Any = stats.ks_2samp(one.round(3) + 0.0, other.round(3) + 0.0)
        assert compared.pvalue > 1e-3
    error = np.sqrt(2 * expected.var(axis=0) / number)
    np.testing.assert_array_less(abs(noise.mean(axis=0) - expected.mean(axis=0)), 5 * error)


@pytest.mark.slow
def test_the_masked_prior_has_no_noise_without_exploration(root_prior: Any) -> None:
    mask, logits = np.array([[True, False, True]]), np.log([[1.0, 99.0, 3.0]]).astype(np.float32)
    prior = root_prior(logits, mask, jax.random.key(0), jnp.float32(0.3), explore=False)
    np.testing.assert_allclose(prior, [[0.25, 0.0, 0.75]], atol=1e-6)


@partial(jax.jit, static_argnames="config")
def drawn(logits: Any, temperature: Any, key: jax.Array, config: Any, moves: Any = None) -> Any:
    hyper = SearchHyperparams(dirichlet_fraction=0.0, temperature=temperature)
    return flat_search(logits, None, key, config=config, hyper=hyper, explore=True, moves=moves)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.25, 1.0, 50.0])
def test_actions_are_drawn_by_visits_and_temperature(temperature: float) -> None:
    """At a high temperature too, nothing is drawn that was not visited."""
    logits = np.tile(np.log(np.array([0.5, 0.3, 0.2, 1e-9], np.float32)), (20_000, 1))
    given = logits, jnp.float32(temperature), jax.random.key(2)
    found = drawn(*given, config=SearchConfig(num_simulations=4))
    visits = np.asarray(found.probs[0])
    np.testing.assert_array_equal(found.probs, np.broadcast_to(visits, logits.shape))
    assert visits[3] == 0.0
    expected = visits ** (1 / temperature) * (visits > 0)
    share = np.bincount(found.action, minlength=4) / len(logits)
    np.testing.assert_allclose(share, expected / expected.sum(), atol=0.015)
    assert share[3] == 0.0


@pytest.mark.slow
def test_the_first_moves_are_drawn_and_the_later_ones_are_the_most_visited() -> None:
    logits = np.tile(np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32)), (20_000, 1))
    config = SearchConfig(num_simulations=4, num_sampling_moves=3)
    moves = np.arange(len(logits), dtype=np.int32) % 6
    found = drawn(logits, jnp.float32(1.0), jax.random.key(2), config=config, moves=moves)
    np.testing.assert_array_equal(found.action[moves >= 3], 0)
    assert len(np.unique(found.action[moves < 3])) > 1


def test_the_moves_of_each_episode_are_counted() -> None:
    """Moves are drawn at the start of every episode, and counted anew after its end."""
    config = {**SMALL, "num_simulations": 8, "num_sampling_moves": 2}
    agent: Any = triglot.make_agent("alphazero", Ladder(), config=config)
    first = jnp.array([False, True])
    inputs = PolicyInput(obs=jnp.zeros((2, 1)), first=first, env_state=jnp.array([0, 0]))

    @jax.jit
    def carries(key: jax.Array) -> Any:
        state = jax.jit(agent.init, static_argnums=1)(key, 2)
        output = jax.jit(agent.act, static_argnames="explore")(
            state, jnp.array([5, 7]), inputs, key, explore=True
        )
        return agent.initial_carry(state, 2), output.carry

    before, after = carries(jax.random.key(0))
    np.testing.assert_array_equal(before, [0, 0])
    np.testing.assert_array_equal(after, [6, 1])
    trainer: Any = make_trainer(agent, Ladder())
    shapes = jax.eval_shape(trainer.init, jax.random.key(0))
    after, _ = jax.eval_shape(trainer.update, shapes)
    assert jax.tree.structure(after) == jax.tree.structure(shapes)


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
        state = jax.eval_shape(lambda: jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 2))  # noqa: B023
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
