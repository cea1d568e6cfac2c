"""Both kinds of environment are trained, evaluated and compiled through one interface."""

from concurrent.futures import ThreadPoolExecutor

import chex
import jax
import numpy as np
import pytest

import triglot
from tests.core.host import host_environments  # registers the Gymnasium environments
from triglot.core.errors import TriglotError
from triglot.core.host.trainer import HostTrainer
from triglot.core.loop.chunks import run_chunk
from triglot.core.loop.trainer import Trainer, init_seeds
from triglot.core.trainers import make_trainer

assert host_environments
CONFIG = {"num_envs": 2, "rollout_length": 8}


@pytest.mark.covering(2)
@pytest.mark.parametrize(
    ("name", "kind", "stages"),
    [
        ("gridworld:3x3", Trainer, ["trace", "compile"]),
        ("gymnasium:triglot/Lifted-v0,max_episode_steps=6", HostTrainer, ["compile"]),
    ],
    ids=["compiled", "host"],
)
def test_one_interface_serves_both(name: str, kind: type, stages: list[str]) -> None:
    env = triglot.make_env(name)
    agent = triglot.make_agent("q_learning", env, backend="table", config=CONFIG)
    trainer = make_trainer(agent, env)
    assert type(trainer) is kind and trainer.single_env == env
    assert trainer.steps_on_host == (kind is HostTrainer)
    assert trainer.steps_per_update == 16
    trainer.check()
    keys = jax.random.split(jax.random.key(0), 2)
    states, passed = init_seeds(trainer, keys), []
    program = trainer.program()
    program.compile(states, passed.append)
    assert passed == stages
    chunk = run_chunk(program, states, 3)
    program.close()
    assert chunk.runner_states.num_updates.tolist() == [3, 3]
    assert {values.shape for values in chunk.metrics.values()} == {(2, 3)}
    how = {"num_episodes": 4, "max_steps": 5, "explore": True}
    agents = chunk.runner_states.agent
    together = trainer.evaluate_seeds(agents, keys, **how)
    assert together.returns.shape == (2, 4)
    alone = trainer.evaluate(jax.tree.map(lambda leaf: leaf[1], agents), keys[1], **how)
    np.testing.assert_array_equal(together.lengths[1], alone.lengths)


@pytest.mark.covering(2)
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
    agent = triglot.make_agent("q_learning", env, backend="table", config=CONFIG)
    experiment = triglot.Experiment(agent, env, key=jax.random.key(0), total_steps=48, num_seeds=2)
    passed: list[str] = []
    program = experiment.program()
    with ThreadPoolExecutor(1) as background:
        state = experiment.start_and_compile(program, background, passed.append)
        experiment.compile_evaluation(jax.eval_shape(lambda: state), num_episodes=2)
    assert passed == stages
    chex.assert_trees_all_equal(state, experiment.start())
    assert experiment.evaluate(state, num_episodes=2, max_steps=5).returns.shape == (2, 2)
    state, _ = program(state, 3)
    assert state.num_updates.tolist() == [3, 3]
    program.close()


def test_a_monitor_is_not_dropped_in_python() -> None:
    env = triglot.make_env("gymnasium:triglot/Lifted-v0,max_episode_steps=6")
    agent = triglot.make_agent("q_learning", env, backend="table", config=CONFIG)
    with pytest.raises(TriglotError, match="monitor computes nothing"):
        make_trainer(agent, env, monitor=lambda _: {})
