"""The exported ONNX model: run by onnxruntime alone, its actions are those of the agent.

jax2onnx brings much, so that `dev` leaves it out: these tests need `pip install 'triglot[onnx]'`.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.checks.sound_environments import Masks
from tests.export.alone import ALONE, MASKED, STEPS, run_alone
from tests.export.small_runs import small_run
from triglot.cli import main as cli
from triglot.core.environment import first_step
from triglot.core.errors import TriglotError
from triglot.core.specs import Box, Dict, Discrete, sample
from triglot.export import onnx
from triglot.runs.acting import Acting
from triglot.runs.load import Run
from triglot.runs.policy import Policy
from triglot.runs.registry.agents import make_agent
from triglot.shared.machine.files import write_files

pytestmark = pytest.mark.packaging

REASON = "jax2onnx is not installed: pip install 'triglot[onnx]'"
pytest.importorskip("jax2onnx", reason=REASON)

LIBRARIES = ("onnxruntime", "numpy")
BATCH = """
for name in ("seven", "one"):
    np.save(f"{sys.argv[1]}/{name}-actions.npy", load.policy(given[name]))
"""
NAMED = """
obs = {"place": given["place"], "room": given["room"].astype(np.int64)}
np.save(f"{sys.argv[1]}/actions.npy", load.policy(obs))
"""


def alone(script: str, out: Path, **arrays: np.ndarray) -> None:
    """Run a script where nothing but onnxruntime and NumPy can be imported."""
    np.savez(out / "given.npz", **arrays)  # pyright: ignore
    run_alone(ALONE + script, out, LIBRARIES, str(out), str(out / "given.npz"))


def observations(spec: Any, *leading: int) -> Any:
    draw: Any = lambda key: sample(spec, key)  # noqa: E731
    for _ in leading:
        draw = jax.vmap(draw)
    return jax.tree.map(np.asarray, draw(jax.random.split(jax.random.key(3), leading)))


@pytest.mark.parametrize(
    "kind", ["discrete", "continuous", "clipped", "multi", "images", "residual", "dueling", "twins"]
)
def test_its_actions_are_the_agents_at_any_batch_size(kind: str, tmp_path: Path) -> None:
    run = small_run(kind)
    acting = Acting.of(run, 1)
    files = onnx.onnx_files(acting, "A policy.")
    assert list(files) == ["policy.onnx", "load.py"]
    write_files(tmp_path, files)
    obs = observations(run.env.obs_spec, 7)
    alone(BATCH, tmp_path, seven=obs, one=obs[:1])
    expected = Policy(acting, 3)(obs)
    seven, one = (np.load(tmp_path / f"{name}-actions.npy") for name in ("seven", "one"))
    assert seven.dtype == expected.dtype
    exact = np.issubdtype(expected.dtype, np.integer)
    np.testing.assert_allclose(seven, expected, rtol=0 if exact else 1e-5, atol=1e-6)
    np.testing.assert_allclose(one, expected[:1], rtol=0 if exact else 1e-5, atol=1e-6)


@pytest.mark.parametrize("kind, backend", [("lstm", "linen"), ("gru", "equinox")])
def test_a_recurrent_policy_is_a_step_with_its_carry(
    kind: str, backend: str, tmp_path: Path
) -> None:
    run = small_run(kind, backend)
    acting = Acting.of(run, 0)
    write_files(tmp_path, onnx.onnx_files(acting, "A policy."))
    obs, first = observations(run.env.obs_spec, 4, 2), np.zeros((4, 2), bool)
    first[0], first[2, 1] = True, True
    alone(STEPS, tmp_path, obs=obs, first=first)
    policy = Policy(acting, 3)
    for time in range(4):
        policy.reset(first[time])
        np.testing.assert_array_equal(np.load(tmp_path / f"{time}-actions.npy"), policy(obs[time]))


def run_of(algorithm: str, env: Any, config: dict[str, Any], networks: Any = None) -> Run:
    agent = make_agent(algorithm, env, config=config, networks=networks)
    states = jax.tree.map(lambda leaf: leaf[None], agent.init(jax.random.key(0), agent.num_envs))
    return Run(agent=agent, env=env, agent_states=states, num_updates=0)


def test_a_mask_is_an_input(tmp_path: Path) -> None:
    config = {"hidden_sizes": (4,), "buffer_size": 16, "learning_starts": 4, "batch_size": 4}
    write_files(tmp_path, onnx.onnx_files(Acting.of(run_of("dqn", Masks(), config), 0), "A."))
    only = np.eye(3, dtype=bool)[[1, 0, 2, 1]]
    alone(MASKED, tmp_path, obs=np.zeros((4, 2), np.float32), mask=only)
    assert np.load(tmp_path / "actions.npy").tolist() == [1, 0, 2, 1]


class Sight(nn.Module):
    """Reads both parts of an observation."""

    @nn.compact
    def __call__(self, obs: Any) -> Any:
        room = jax.nn.one_hot(obs["room"], 3)
        x = jnp.concatenate([obs["place"], room], axis=-1)
        return {"logits": nn.Dense(2)(x), "value": nn.Dense(1)(x)[:, 0]}


@dataclass(frozen=True)
class Rooms:
    """An environment whose observation has two parts."""

    name: ClassVar = "rooms"
    obs_spec: ClassVar = Dict({"place": Box((2,)), "room": Discrete(3)})
    action_spec: ClassVar = Discrete(2)

    def reset(self, key: jax.Array) -> triglot.TimeStep:
        return first_step((), sample(self.obs_spec, key))

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> triglot.TimeStep:
        return self.reset(key)


def test_the_parts_of_an_observation_are_inputs(tmp_path: Path) -> None:
    network = triglot.from_linen(Sight(), Rooms.obs_spec)
    config = {"num_envs": 4, "rollout_length": 4}
    acting = Acting.of(run_of("ppo", Rooms(), config, network), 0)
    files = onnx.onnx_files(acting, "A policy.")
    assert b"{'obs_place': 'float32', 'obs_room': 'int32'}" in files["load.py"]
    write_files(tmp_path, files)
    obs = observations(Rooms.obs_spec, 5)
    alone(NAMED, tmp_path, **obs)
    np.testing.assert_array_equal(np.load(tmp_path / "actions.npy"), Policy(acting, 0)(obs))


def test_what_cannot_be_converted_is_refused_by_name() -> None:
    with pytest.raises(TriglotError, match=r"jax2onnx .* cannot convert .*random_bits.*stablehlo"):
        onnx.onnx_files(Acting.of(small_run("table"), 0), "A policy.")


def test_a_model_that_acts_differently_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    acting = Acting.of(small_run("continuous"), 0)
    part = onnx._needed_part

    def wrong(traced: Any) -> Any:
        function = part(traced)
        return lambda *arrays: [0.99 * one for one in function(*arrays)]

    monkeypatch.setattr(onnx, "_needed_part", wrong)
    with pytest.raises(TriglotError, match="acts differently from the run on random observations"):
        onnx.onnx_files(acting, "A policy.")


def test_a_model_that_cannot_run_is_refused() -> None:
    class Broken:
        def run(self, *_: Any) -> Any:
            raise RuntimeError("invalid expand shape")

    with pytest.raises(TriglotError, match="acts differently"):
        onnx._check(Acting.of(small_run("discrete"), 0), Broken(), 1, "jax2onnx")


def test_a_network_for_one_batch_size_is_refused() -> None:
    acting = Acting.of(small_run("discrete"), 0)

    def act(*_: Any, **__: Any) -> Any:
        raise ValueError("for batches of 4")

    agent = object.__new__(type(acting.agent))
    vars(agent).update({**vars(acting.agent), "act": act})
    with pytest.raises(TriglotError, match="cannot be exported for any batch size: ValueError"):
        onnx.onnx_files(replace(acting, agent=agent), "A policy.")


def test_a_trained_policy_plays_as_evaluate_does(tmp_path: Path) -> None:
    words = "train sac gymnax:Pendulum-v1 --total-steps 64 --num-envs 4 --rollout-length 4"
    words += " --hidden-sizes 8 --learning-starts 16 --batch-size 8 --buffer-size 64"
    words += " --normalize-obs --eval-episodes 0"
    run, out = tmp_path / "run", tmp_path / "out"
    assert cli.main([*words.split(), "--out", str(run)]) == 0
    assert cli.main(["export", str(run), "--format", "onnx", "--out", str(out)]) == 0
    policy = triglot.load_policy(run)
    obs = observations(policy.obs_spec, 200)
    alone(BATCH, out, seven=obs, one=obs[:1])
    expected = policy(obs)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(np.load(out / "seven-actions.npy"), expected, rtol=1e-5, atol=1e-5)
