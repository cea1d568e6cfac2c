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
from triglot.core.specs import Box, Discrete
from triglot.core.wrappers.games import against, game_in
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


def trainer_of(env: Any, algorithm: str = "ppo", **config: Any) -> Trainer:
    agent = triglot.make_agent(algorithm, env, config={"hidden_sizes": (4,), **config})
    return Trainer(agent, VectorEnvironment(env, agent.num_envs))


SMALL: dict[str, Any] = {"num_envs": 2, "rollout_length": 4, "num_epochs": 1, "num_minibatches": 1}


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
        (Echo(copy_period=1), "alphazero", {}, "plans with the environment's state"),
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
