"""The exported policy: loaded in a process with JAX alone, its actions are those of the agent."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.checks.sound_environments import Masks
from tests.export.alone import ALONE, MASKED, STEPS, run_alone
from tests.export.small_runs import KINDS, seed_of, small_run
from triglot.core.agent import PolicyInput
from triglot.core.errors import TriglotError
from triglot.core.specs import sample
from triglot.export.stablehlo import stablehlo_files
from triglot.runs.acting import Acting
from triglot.runs.load import Run
from triglot.runs.registry.agents import make_agent
from triglot.shared.machine.files import write_files

pytestmark = pytest.mark.packaging

LIBRARIES = ("jax", "flatbuffers")
BATCH = """
for name in ("five", "two"):
    np.save(f"{sys.argv[1]}/{name}-actions.npy", load.policy(given[name]))
"""


def alone(script: str, out: Path, **arrays: np.ndarray) -> None:
    """Run a script where nothing but JAX can be imported."""
    np.savez(out / "given.npz", **arrays)  # pyright: ignore
    run_alone(ALONE + script, out, LIBRARIES, str(out), str(out / "given.npz"))


def observations(kind: str, *leading: int) -> np.ndarray:
    keys = jax.random.split(jax.random.key(3), leading)
    draw = lambda key: sample(small_run(kind).env.obs_spec, key)  # noqa: E731
    for _ in leading:
        draw = jax.vmap(draw)
    return np.asarray(draw(keys))


@pytest.mark.covering(2)
@pytest.mark.parametrize("kind", ["continuous", "multi", "images", "twins", "table"])
def test_its_actions_are_the_agents_at_any_batch_size(kind: str, tmp_path: Path) -> None:
    run = small_run(kind)
    files = stablehlo_files(Acting.of(run, 1), "A policy.")
    assert list(files) == ["policy.stablehlo", "load.py"]
    write_files(tmp_path, files)
    obs = observations(kind, 5)
    alone(BATCH, tmp_path, five=obs, two=obs[:2])
    inputs = PolicyInput(obs=obs, first=jnp.ones(5, bool))
    act = jax.jit(lambda s, i: run.agent.act(s, (), i, jax.random.key(0), explore=False).action)
    expected = np.asarray(act(seed_of(run, 1), inputs))
    five, two = (np.load(tmp_path / f"{name}-actions.npy") for name in ("five", "two"))
    assert five.dtype == expected.dtype
    np.testing.assert_allclose(five, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(two, expected[:2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["lstm"])
def test_a_recurrent_policy_is_a_step_with_its_carry(kind: str, tmp_path: Path) -> None:
    run, acting = small_run(kind), Acting.of(small_run(kind), 0)
    write_files(tmp_path, stablehlo_files(acting, "A policy."))
    obs, first = observations(kind, 4, 2), np.zeros((4, 2), bool)
    first[0], first[2, 1] = True, True
    alone(STEPS, tmp_path, obs=obs, first=first)
    state, key = seed_of(run, 0), jax.random.key(0)
    act = jax.jit(lambda c, i: run.agent.act(state, c, i, key, explore=False))
    carry = run.agent.initial_carry(state, 2)
    for time in range(4):
        output = act(carry, PolicyInput(obs=obs[time], first=first[time]))
        carry = output.carry
        np.testing.assert_array_equal(np.load(tmp_path / f"{time}-actions.npy"), output.action)


def test_a_mask_is_an_argument(tmp_path: Path) -> None:
    env: Any = Masks()
    config = {"hidden_sizes": (4,), "buffer_size": 16, "learning_starts": 4, "batch_size": 4}
    agent = make_agent("dqn", env, config=config)
    states = jax.tree.map(lambda leaf: leaf[None], agent.init(jax.random.key(0), 2))
    acting = Acting.of(Run(agent=agent, env=env, agent_states=states, num_updates=0), 0)
    write_files(tmp_path, stablehlo_files(acting, "A policy."))
    assert "action_mask: bool [B, 3], True where allowed" in (tmp_path / "load.py").read_text()
    only = np.eye(3, dtype=bool)[[1, 0, 2, 1]]
    alone(MASKED, tmp_path, obs=np.zeros((4, 2), np.float32), mask=only)
    assert np.load(tmp_path / "actions.npy").tolist() == [1, 0, 2, 1]


def test_a_network_for_one_batch_size_is_refused() -> None:
    from dataclasses import replace

    run = small_run("discrete")
    network = replace(run.agent.network, apply=lambda *_: 1 / 0)
    acting = Acting.of(run, 0)
    with pytest.raises(TriglotError, match="cannot be exported for any batch size: "):
        stablehlo_files(replace(acting, agent=replace_network(run, network)), "A policy.")


def replace_network(run: Run, network: object) -> object:
    """Replace an agent's network without its checks."""
    agent = object.__new__(type(run.agent))
    for name, value in {**vars(run.agent), "network": network}.items():
        object.__setattr__(agent, name, value)
    return agent


def test_the_kinds_cover_all_ways_to_act_greedily() -> None:
    found = {algorithm for algorithm, _, _ in KINDS.values()}
    assert found >= {"ppo", "dqn", "c51", "qr_dqn", "r2d2", "td3", "sac", "q_learning"}
