"""The parts that are timed are those of the training."""

import time
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from triglot.compare.cost.session import MIN_SECONDS, CostSession
from triglot.compare.options import CompareOptions
from triglot.compare.training.library import LibraryExperiment
from triglot.core.loop.state import update_keys
from triglot.core.loop.trainer import CompiledProgram
from triglot.core.tracing.hoist import vmap_seeds

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("haiku", {"hidden_sizes": [4], "num_envs": 2, "rollout_length": 4, "num_epochs": 1,
        "num_minibatches": 1}),
    "dqn": ("equinox", {"num_envs": 2, "rollout_length": 4, "batch_size": 4, "buffer_size": 64,
        "hidden_sizes": [4], "learning_starts": 30}),
}  # fmt: skip


def initialized(algorithm: str, num_seeds: int) -> CostSession:
    """Build a small session and initialize its seeds."""
    backend, config = CASES[algorithm]
    options = CompareOptions(
        algorithm=algorithm,
        env="probe:two-step",
        num_seeds=num_seeds,
        seed=0,
        total_steps=64,
        config=config,
        eval_episodes=3,
    )
    library = LibraryExperiment.build(options, backend)
    return CostSession(library, CompiledProgram(library.trainer), library.experiment.start())


@pytest.mark.slow
def test_a_rollout_and_its_update_are_one_update_of_the_training() -> None:
    session = initialized("ppo", num_seeds=2)
    before, library = session.state, session.library

    @jax.jit
    def in_parts(states: Any) -> Any:
        trajectories = vmap_seeds(session._collect, states)
        keys = jax.vmap(update_keys)(states.key, states.num_updates).learn
        given = (states.agent, trajectories, keys)
        return vmap_seeds(lambda each: library.agent.update(*each), given)[0]

    update = library.trainer.update
    after = jax.jit(lambda states: vmap_seeds(update, states))(before)[0]
    expected = library.named_params(after)
    for name, array in library.named_params(replace(before, agent=in_parts(before))).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)
    initial = library.named_params(before)
    assert any((initial[name] != array).any() for name, array in expected.items())


@pytest.mark.slow
def test_a_replay_agent_learns_before_its_updates_are_timed() -> None:
    session = initialized("dqn", num_seeds=1)
    parts = session.prepare()
    assert set(parts) == {"rollout", "update", "evaluation", "training"}
    for part in parts:
        assert 0 < session.time(part) < 10
    assert len(session.dispatch(calls=3)) == 3
    library = session.library
    steps = int(session.state.num_updates[0]) * library.experiment.steps_per_update
    assert steps > library.agent.learning_starts


def test_calls_are_repeated_by_their_own_time() -> None:
    session = initialized("ppo", num_seeds=1)
    called = 0

    def run() -> float:
        nonlocal called
        called += 1
        time.sleep(MIN_SECONDS / 2 + 0.001)
        return 1e-6  # of one step of many, as an evaluation returns

    assert session._number_of_calls(run) in (1, 2) and called == 2
