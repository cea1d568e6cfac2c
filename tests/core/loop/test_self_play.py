"""Self-play: which copy of the policy plays, and when it is renewed."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.core.environment import Player, TimeStep, first_step
from triglot.core.errors import TriglotError
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.rl.planning import model_in, turn
from triglot.core.specs import Box, Discrete
from triglot.core.wrappers.games import against, game_in, moving
from triglot.core.wrappers.observations import FrameStack
from triglot.core.wrappers.rewards import ScaleReward


def always_one(obs: jax.Array, mask: Any, key: jax.Array) -> jax.Array:
    return jnp.int32(1)


@dataclass(frozen=True)
class Echo:
    """Each step pays what the other player does, 0 or 1; an episode is one step."""

    player: Player = always_one
    copy_period: int | None = None

    name = "echo"
    obs_spec = Box((1,), "float32", 0.0, 1.0)
    action_spec = Discrete(2)
    num_players = 2

    def against(self, player: Player) -> "Echo":
        return replace(self, player=player)

    def reset(self, key: jax.Array) -> TimeStep:
        return first_step(jnp.zeros(()), jnp.ones((1,)))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        other = self.player(jnp.ones((1,)), None, key)
        start = self.reset(key)
        return replace(start, reward=other.astype(jnp.float32), terminated=jnp.ones((), bool))


@dataclass(frozen=True)
class Nim:
    """Take one or two of five sticks in turn; who takes the last one wins.

    The state is the sticks that are left and the number of the player who moves.
    """

    player: Player = always_one
    copy_period: int | None = 1

    name = "nim"
    obs_spec = Box((6,), "float32", 0.0, 1.0)
    action_spec = Discrete(2)
    num_players = 2

    def against(self, player: Player) -> "Nim":
        return replace(self, player=player)

    def for_both(self) -> "NimForBoth":
        return NimForBoth()

    def reset(self, key: jax.Array) -> TimeStep:
        return first_step(jnp.array([5, 0]), one_hot(5))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        mine = taken(state, action)
        theirs = taken(mine.state, self.player(mine.obs, None, key))
        after = jax.tree.map(lambda a, b: jnp.where(mine.terminated, a, b), mine, theirs)
        return replace(after, reward=mine.reward - jnp.where(mine.terminated, 0.0, theirs.reward))


@dataclass(frozen=True)
class NimForBoth:
    alternates: bool = True
    name, obs_spec, action_spec, reset = Nim.name, Nim.obs_spec, Nim.action_spec, Nim.reset

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        return taken(state, action)

    def moving(self, state: jax.Array) -> jax.Array:
        return state[1]


def one_hot(left: Any) -> jax.Array:
    return (jnp.arange(6) == left).astype(jnp.float32)


def taken(state: jax.Array, action: jax.Array) -> TimeStep:
    left = jnp.maximum(state[0] - action - 1, 0)
    over = left == 0
    start = first_step(jnp.stack([left, 1 - state[1]]), one_hot(left))
    return replace(start, reward=over.astype(jnp.float32), terminated=over)


def trainer_of(env: Any, algorithm: str = "ppo", **config: Any) -> Trainer:
    agent = triglot.make_agent(algorithm, env, config={"hidden_sizes": (4,), **config})
    return Trainer(agent, VectorEnvironment(env, agent.num_envs))


SMALL: dict[str, Any] = {"num_envs": 2, "rollout_length": 4, "num_epochs": 1, "num_minibatches": 1}


@pytest.mark.slow
def test_a_copy_is_renewed_every_period() -> None:
    trainer = trainer_of(Echo(copy_period=2), **SMALL)
    update = jax.jit(trainer.update)
    state = trainer.init(jax.random.key(0))
    copies, kernels = [], []
    for _ in range(4):
        kernels.append(np.concatenate([np.ravel(x) for x in state.opponent]))
        state, _ = update(state)
        copies.append(np.concatenate([np.ravel(x) for x in state.opponent]))
    # Updates 0 and 2 begin with a copy; update 0's is the initial policy.
    np.testing.assert_array_equal(copies[0], kernels[0])
    np.testing.assert_array_equal(copies[1], copies[0])
    assert np.abs(copies[2] - copies[1]).max() > 0
    np.testing.assert_array_equal(copies[3], copies[2])


@pytest.mark.slow
def test_the_copy_plays_in_training_and_the_given_opponent_in_evaluations() -> None:
    env = Echo(copy_period=1)
    trainer = trainer_of(env, num_envs=2, rollout_length=64, num_epochs=1, num_minibatches=1)
    state, metrics = jax.jit(trainer.update)(trainer.init(jax.random.key(0)))
    assert 0 < float(metrics["episode_return"]) < 1  # the copy samples both actions
    played = trainer.evaluate(
        state.agent, jax.random.key(0), num_episodes=8, max_steps=5, explore=True
    )
    np.testing.assert_array_equal(played.returns, np.ones(8))


def test_without_self_play_nothing_is_copied() -> None:
    state = jax.eval_shape(trainer_of(Echo(), **SMALL).init, jax.random.key(0))
    assert state.opponent is None


def test_a_game_is_found_and_played_inside_of_wrappers() -> None:
    env = ScaleReward(Echo(copy_period=3), 5.0)
    game = game_in(env)
    assert game is env.env and game_in(triglot.make_env("probe:two-step")) is None
    for player, reward in ((always_one, 5.0), (lambda *_: jnp.int32(0), 0.0)):
        step = against(env, player).step(jnp.zeros(()), jnp.int32(0), jax.random.key(0))
        assert float(step.reward) == reward


@pytest.mark.parametrize(
    ("env", "algorithm", "config", "words"),
    [
        (Echo(copy_period=1), "ppo", {"cell": "gru"}, "recurrent"),
        (FrameStack(Echo(copy_period=1), 2), "ppo", {}, "Leave wrappers that change them out"),
        (Echo(copy_period=1), "alphazero", {}, "AlphaZero plays itself in games of 2 players"),
        (FrameStack(Nim(), 2), "alphazero", {}, "Leave wrappers that change them out"),
    ],
)
def test_a_policy_that_cannot_play_is_refused(
    env: Any, algorithm: str, config: dict[str, Any], words: str
) -> None:
    with pytest.raises(TriglotError, match=words):
        trainer_of(env, algorithm, **config)


@pytest.mark.parametrize("algorithm", ["dqn", "openai_es"])
def test_other_algorithms_play_themselves(algorithm: str) -> None:
    trainer = trainer_of(Echo(copy_period=1), algorithm, num_envs=4)
    shapes = jax.eval_shape(trainer.init, jax.random.key(0))
    after, _ = jax.eval_shape(trainer.update, shapes)
    assert jax.tree.structure(after) == jax.tree.structure(shapes)


@pytest.mark.slow
def test_a_planner_moves_for_both_players_and_learns_to_win() -> None:
    config = {"num_simulations": 8, "gumbel": True, "learning_starts": 32, "batch_size": 32}
    trainer: Any = trainer_of(Nim(), "alphazero", num_envs=8, rollout_length=8, **config)
    state = trainer.init(jax.random.key(0))
    assert state.opponent is None
    state, metrics = jax.jit(trainer.train_chunk)(state, 12)
    np.testing.assert_array_equal(metrics["episode_return"][:12], 1.0)  # the last to move wins
    # Whoever leaves three sticks wins: with 5, 4, 2 and 1 left the mover can, with 3 not.
    left = jnp.array([5, 4, 2, 1, 3])
    value = trainer.agent.value(state.agent.learner.variables, jax.vmap(one_hot)(left))
    np.testing.assert_array_equal(jnp.sign(value), [1, 1, 1, 1, -1])
    options = {"num_episodes": 4, "max_steps": 9, "explore": False}
    played = trainer.evaluate(state.agent, jax.random.key(0), **options)
    np.testing.assert_array_equal(played.returns, np.ones(4))


@pytest.mark.slow
def test_muzero_moves_for_both_players_and_learns_who_wins() -> None:
    config = {"num_simulations": 8, "learning_starts": 64, "batch_size": 64, "unroll_steps": 3}
    config |= {"hidden_sizes": (32,), "latent_size": 16, "num_envs": 8, "rollout_length": 8}
    hyper = {"learning_rate": 5e-3, "discount": 1.0, "value_coef": 1.0, "value_scale": 0.1}
    env: Any = Nim()
    agent: Any = triglot.make_agent("muzero", env, backend="jax", config=config, hyper=hyper)
    trainer: Any = Trainer(agent, VectorEnvironment(env, 8))
    assert agent.two_players
    state = trainer.init(jax.random.key(0))
    assert state.opponent is None
    state, metrics = jax.jit(trainer.train_chunk)(state, 40)
    np.testing.assert_array_equal(metrics["episode_return"][:40], 1.0)  # the last to move wins
    left = jnp.array([5, 4, 2, 1, 3])
    value = agent.value(state.agent.learner.variables, jax.vmap(one_hot)(left))
    np.testing.assert_array_equal(jnp.sign(value), [1, 1, 1, 1, -1])
    np.testing.assert_allclose(value[-2:], [1.0, -1.0], atol=0.2)
    options = {"num_episodes": 4, "max_steps": 9, "explore": False}
    played = trainer.evaluate(state.agent, jax.random.key(0), **options)
    np.testing.assert_array_equal(played.returns, np.ones(4))


@dataclass(frozen=True)
class Unordered(Nim):
    """Nim, which does not say that its players move in turn."""

    def for_both(self) -> Any:
        return replace(super().for_both(), alternates=False)


@pytest.mark.slow
def test_muzero_plays_a_copy_where_turns_are_not_known() -> None:
    """It learns no model of who moves next."""
    env, fixed = Nim(), Nim(copy_period=None)
    both = triglot.make_agent("muzero", env)
    for other in (Unordered(), fixed):
        agent: Any = triglot.make_agent("muzero", other)
        assert not agent.two_players
        with pytest.raises(TriglotError, match="two players who move in turn"):
            Trainer(both, VectorEnvironment(other, both.num_envs))
    state = jax.eval_shape(trainer_of(Unordered(), "muzero").init, jax.random.key(0))
    assert state.opponent is not None
    wrapped: Any = triglot.make_agent("muzero", ScaleReward(env, 5.0))
    assert wrapped.two_players


def test_turns_are_seen_through_wrappers() -> None:
    model, states = model_in(ScaleReward(Nim(), 5.0)), jnp.array([[5, 0], [5, 1]])
    np.testing.assert_array_equal(moving(model, states), [0, 1])
    np.testing.assert_array_equal(turn(model, states, states[::-1]), [-1.0, -1.0])
    np.testing.assert_array_equal(turn(model, states, states), [1.0, 1.0])
    assert turn(ScaleReward(Nim(), 5.0), states, states[::-1]) == 1.0
    assert model_in(Nim(copy_period=None)) == Nim(copy_period=None)
