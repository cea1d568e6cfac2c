"""Programs compile side by side, with the numbers of one after the other."""

from concurrent.futures import ThreadPoolExecutor

import chex
import jax
import pytest

import triglot
from tests.core.host import host_environments  # registers the Gymnasium environments
from triglot.core.loop import prepare
from triglot.core.loop.trainer import init_seeds
from triglot.core.trainers import make_trainer

assert host_environments
HOW = {"num_episodes": 2, "max_steps": 5, "explore": False}


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("gridworld:3x3", ["init", "trace", "compile"]),
        ("gymnasium:triglot/Lifted-v0,max_episode_steps=6", ["init", "compile"]),
    ],
    ids=["compiled", "host"],
)
def test_seeds_are_initialized_while_the_training_compiles(name: str, stages: list[str]) -> None:
    env = triglot.make_env(name)
    config = {"num_envs": 2, "rollout_length": 8}
    agent = triglot.make_agent("q_learning", env, backend="table", config=config)
    trainer, passed = make_trainer(agent, env), []
    keys = jax.random.split(jax.random.key(0), 2)
    program = trainer.program()
    with ThreadPoolExecutor(1) as background:
        given = (trainer, program, keys, agent.hyper, background, passed.append)
        state = prepare.initialize_and_compile(*given)
        prepare.compile_evaluation(trainer, jax.eval_shape(lambda: state), keys, **HOW)
    assert passed == stages
    chex.assert_trees_all_equal(state, init_seeds(trainer, keys, agent.hyper))
    assert trainer.evaluate_seeds(state.agent, keys, **HOW).returns.shape == (2, 2)
    state, _ = program(state, 3)
    assert state.num_updates.tolist() == [3, 3]
    program.close()
