"""Where training cuts episodes, and where it keeps them together with the agent's memory.

`tests/conformance/test_cuts.py` shows what each algorithm learns of a cut. Here DQN's replay says
of every seam of training whether episodes were cut there: no step without an end is followed by
another episode, and no step is truncated where nothing was cut.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import triglot
from tests.core.host import host_environments  # noqa: F401 (registers the environments)
from tests.core.loop.test_self_play import Nim
from tests.wander import Wander
from triglot.algorithms.dqn import DQN
from triglot.cli import main as cli
from triglot.core.loop.population import Population
from triglot.core.loop.trainer import Trainer, init_seeds
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.rl.replay import ReplayState
from triglot.core.trainers import make_trainer
from triglot.core.wrappers.levels import Levels

NUM_ENVS, LENGTH, NUM_UPDATES = 2, 3, 6
CONFIG = {
    "num_envs": NUM_ENVS,
    "rollout_length": LENGTH,
    "n_step": 2,
    "batch_size": 4,
    "learning_starts": 24,
    "buffer_size": 60,
    "hidden_sizes": (4,),
}


@dataclass(frozen=True)
class Restarting(DQN):
    """Begin each rollout with new episodes."""

    explores_by_parameters = True


def agent_in(env: Any, kind: Any = "dqn") -> Any:
    return triglot.make_agent(kind, env, backend="jax", config=CONFIG)


def truncations(replay: ReplayState, num_envs: int = NUM_ENVS) -> np.ndarray:
    """Check that episodes are not joined; tell which steps are truncated, bool `[T, N]`."""
    end, size = int(replay.position), int(replay.size)
    rows = np.arange(end - size, end) % replay.steps.reward.shape[0]
    steps = jax.tree.map(
        lambda leaf: np.asarray(leaf)[rows].reshape(-1, num_envs, *leaf.shape[1:]), replay.steps
    )
    goes_on = ~(steps.terminated | steps.truncated)[:-1]
    np.testing.assert_array_equal(steps.next_obs[:-1][goes_on], steps.obs[1:][goes_on])
    assert goes_on.any() and not goes_on.all()
    return steps.truncated


WANDER = Wander(truncates=False)
JAX_CASES = {
    "resets": VectorEnvironment(WANDER, NUM_ENVS),
    "pool": VectorEnvironment(WANDER, NUM_ENVS, resets="pool"),
    "levels": VectorEnvironment(Levels(WANDER, 3, sampling="learning_progress"), NUM_ENVS),
    "self-play": VectorEnvironment(Nim(), NUM_ENVS),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.slow if one != "levels" else ()) for one in JAX_CASES],
)
def test_compiled_training_cuts_nothing(name: str) -> None:
    env: Any = JAX_CASES[name]
    trainer = Trainer(agent_in(env.env), env, chunk_size=NUM_UPDATES)
    states = init_seeds(trainer, jax.random.split(jax.random.key(0), 1))
    states, _ = trainer.program()(states, np.int32(NUM_UPDATES))
    state = jax.tree.map(lambda leaf: leaf[0], states)
    assert not truncations(state.agent.replay).any()
    steps = jax.tree.map(lambda leaf: np.asarray(leaf[-NUM_ENVS:]), newest(state.agent.replay))
    np.testing.assert_array_equal(steps.terminated, state.env.first)
    goes_on = ~steps.terminated  # and the next step goes on with it
    np.testing.assert_array_equal(steps.next_obs[goes_on], state.env.obs[goes_on])


def newest(replay: ReplayState) -> Any:
    return jax.tree.map(lambda leaf: leaf[: int(replay.position)], replay.steps)


@pytest.mark.slow
def test_a_copied_member_s_replay_goes_on_with_its_environments() -> None:
    agent = agent_in(WANDER)
    population = Population(size=2, exploit_every=3, perturb=["learning_rate"], fraction=0.5)
    trainer = Trainer(
        agent,
        VectorEnvironment(WANDER, NUM_ENVS),
        chunk_size=3,
        population=population.for_agent(agent),
    )
    states, program = init_seeds(trainer, jax.random.split(jax.random.key(0), 2)), trainer.program()
    copied = False
    for _ in range(3):
        states, metrics = program(states, np.int32(3))
        copied |= bool((np.asarray(metrics["parent"])[:, -1] != np.arange(2)).any())
    assert copied
    for member in range(2):
        state = jax.tree.map(lambda leaf, m=member: leaf[m], states)
        assert not truncations(state.agent.replay).any()


@pytest.mark.covering(2)
@pytest.mark.parametrize("where", ["compiled", "host"])
def test_restarts_truncate_the_episodes_that_they_cut(where: str) -> None:
    env: Any = WANDER
    if where == "host":
        env = triglot.make_env("gymnasium:triglot/Counter-v0", length=4)
    trainer = make_trainer(agent_in(env, Restarting), env)
    states = init_seeds(trainer, jax.random.split(jax.random.key(0), 1))
    states, _ = trainer.program()(states, np.int32(NUM_UPDATES))
    state = jax.tree.map(lambda leaf: leaf[0], states)
    found, last = truncations(state.agent.replay), np.arange(NUM_UPDATES * LENGTH) % LENGTH == 2
    last[-1] = False  # what follows it is not known yet
    np.testing.assert_array_equal(found, np.broadcast_to(last[:, None], found.shape))


@pytest.mark.slow
def test_runs_on_the_host(tmp_path: Path) -> None:
    """Resume on the host, also on another library, cuts episodes; `--init-from` has none."""
    words = ["gymnasium:triglot/Counter-v0", "--no-preset", "--eval-episodes", "0"]
    for name, value in {**CONFIG, "hidden_sizes": 4}.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    first, second = tmp_path / "first", tmp_path / "second"

    def run(*command: str) -> ReplayState:
        assert cli.main([*command]) == 0
        states: Any = triglot.load_run(second if second.exists() else first).agent_states
        return jax.tree.map(lambda leaf: leaf[0], states).replay

    train = ("train", "dqn", *words, "--backend", "jax", "--total-steps")
    # An episode of 4 steps ends neither with the 15th step nor with the 9th after it.
    assert not truncations(run(*train, "30", "--out", str(first))).any()
    for more in (["--total-steps", "48"], ["--total-steps", "60", "--backend", "linen"]):
        replay = run("resume", str(first), *more)
    np.testing.assert_array_equal(np.flatnonzero(truncations(replay).all(axis=1)), [14, 23])
    assert int(truncations(replay).sum()) == 2 * NUM_ENVS
    started = run(*train, "30", "--out", str(second), "--init-from", str(first))
    assert int(started.num_added) == 30 and not truncations(started).any()
