"""A training that goes wrong is stopped, named, and leaves the last good checkpoint."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.printed import unwrapped
from triglot import make_agent, make_env, train
from triglot.cli.main import main
from triglot.core.errors import TriglotError
from triglot.core.loop.checkpoint import Checkpoints
from triglot.core.loop.divergence import divergence, largest_parameter
from triglot.core.loop.trainer import init_seeds
from triglot.core.trainers import make_trainer

# An environment that fails in its own way from the 20th step of its first episode on.
SOURCE = """
from dataclasses import dataclass

import jax.numpy as jnp

from triglot.core.environment import TimeStep, first_step
from triglot.core.specs import Box, Discrete


@dataclass(frozen=True)
class Failing:
    way: str
    name = "failing"
    obs_spec = Box((1,))
    action_spec = Discrete(2)

    def reset(self, key):
        return first_step(jnp.zeros((), jnp.int32), jnp.zeros((1,)))

    def step(self, state, action, key):
        late = state >= 20
        nan = jnp.where(late, jnp.nan, 0.0)
        obs = jnp.zeros((2,)) if self.way == "shape" else jnp.zeros((1,))
        return TimeStep(
            state=state + 1,
            obs=obs + nan if self.way == "obs" else obs,
            reward=nan if self.way == "reward" else jnp.ones(()),
            terminated=jnp.zeros((), bool),
            truncated=jnp.zeros((), bool),
        )


obs, reward, shape = Failing("obs"), Failing("reward"), Failing("shape")
"""
SMALL = "--rollout-length 8 --num-envs 2 --num-minibatches 2 --hidden-sizes 8 --eval-episodes 0"


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_env.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)


def run(env: str, out: Path, more: str = "") -> int:
    seconds = "--checkpoint-seconds 0.000001"
    words = f"train ppo {env} {SMALL} {seconds} --total-steps 160 --out {out} {more}"
    return main(words.split())


@pytest.mark.covering(2)
@pytest.mark.parametrize(("way", "what"), [("obs", "observations"), ("reward", "rewards")])
def test_an_environment_that_gives_nan_is_named(
    way: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(f"failing_env:{way}", out) == 1
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    summary = json.loads((out / "summary.json").read_text())
    # Steps 1 to 16 are sound: the third update sees the first NaN.
    assert "loss is nan in update 3 of seed 0" in summary["diverged"]
    assert f"failing returned NaN or infinite {what}" in summary["diverged"]
    assert summary["diverged"] in " ".join(said.out.split())
    assert Checkpoints(out / "checkpoints").numbers()[-1] < 3


@pytest.mark.slow
def test_a_training_that_diverges_by_itself_blames_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run("probe:two-step", out, "--learning-rate 1e38") == 1
    diverged = json.loads((out / "summary.json").read_text())["diverged"]
    assert "in update 1 of seed 0" in diverged or "after update" in diverged
    assert "returned" not in diverged


def test_an_environment_that_changes_its_shapes_is_refused_before_it_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run("failing_env:shape", out) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("triglot: error: ")
    words = (
        "the environment failing changes its shapes: obs is float32[1] after reset and float32[2]"
    )
    assert words in said
    assert not out.exists()


def test_python_is_told_the_same() -> None:
    env = make_env("failing_env:shape")
    agent = make_agent("ppo", env, config={"hidden_sizes": (8,)})
    with pytest.raises(TriglotError, match="failing changes its shapes: obs"):
        train(agent, env, key=jax.random.key(0), total_steps=1)


def sick_state() -> Any:
    env = make_env("probe:two-step")
    agent = make_agent("ppo", env, config={"hidden_sizes": (4,)})
    state = init_seeds(make_trainer(agent, env), jax.random.split(jax.random.key(0), 2))
    nan = jax.tree.map(lambda leaf: leaf * jnp.nan, state.agent.learner.variables.params)
    learner = state.agent.learner
    sick = replace(learner, variables=replace(learner.variables, params=nan))
    return replace(state, agent=replace(state.agent, learner=sick))


NAN = float("nan")


@pytest.mark.parametrize(
    ("losses", "done", "empty", "says"),
    [
        # Before the replay is filled there is no loss.
        ([[NAN, NAN, 0.1, 0.2, NAN, NAN]] * 2, 10, 12, "loss is nan in update 15 of seed 0"),
        ([[NAN, NAN, 0.1, 0.2], [NAN, NAN, NAN, NAN]], 10, 12, "in update 13 of seed 1"),
        ([[NAN] * 4] * 2, 0, 2, "in update 3 of seed 0"),
        ([[NAN] * 4] * 2, 10, 2, "in update 11 of seed 0"),
        ([[0.1, 0.2]] * 2, 10, 0, "a parameter is NaN or infinite after update 12"),
        ([[NAN] * 2] * 2, 0, 2, "a parameter is NaN or infinite after update 2"),
    ],
)
def test_the_first_bad_update_is_not_an_empty_one(
    losses: list[list[float]], done: int, empty: int, says: str
) -> None:
    loss = np.array(losses, np.float32)
    metrics = {"loss": loss, "episode_return": loss * 0, "num_episodes": np.ones_like(loss)}
    found = divergence("two-step", sick_state(), metrics, done, empty)
    assert found is not None and says in found


@pytest.mark.slow
@pytest.mark.parametrize("env", ["failing_env:obs", "failing_env:reward"])
def test_python_stops_with_the_same_cause_and_keeps_what_was_learned(env: str) -> None:
    made = make_env(env)
    config = {"num_envs": 2, "rollout_length": 8, "num_minibatches": 2, "hidden_sizes": (8,)}
    agent = make_agent("ppo", made, backend="jax", config=config)
    with pytest.raises(triglot.Diverged, match="failing returned NaN or infinite") as caught:
        train(agent, made, key=jax.random.key(0), total_steps=160, num_seeds=2)
    # Steps 1 to 16 are sound: the third update sees the first NaN.
    assert "loss is nan in update 3 of seed 0" in caught.value.cause
    result = caught.value.result
    assert np.isfinite(largest_parameter(result.runner_state))
    assert result.num_updates == int(result.runner_state.num_updates[0]) < 3
    assert result.num_steps == 16 * result.num_updates
    assert np.isnan(result.metrics["loss"][0, 2:]).all()


@pytest.mark.slow
def test_python_may_go_on_with_a_seed_that_diverged() -> None:
    env = make_env("probe:two-step")
    config = {"num_envs": 2, "rollout_length": 8, "num_minibatches": 2, "hidden_sizes": (8,)}
    agent = make_agent("ppo", env, backend="jax", config=config)
    how: Any = {"key": jax.random.key(0), "total_steps": 160, "num_seeds": 2}
    how["hyper"] = {"learning_rate": jnp.array([1e-3, 1e38])}
    with pytest.raises(triglot.Diverged, match="of seed 1"):
        train(agent, env, **how)
    loss = train(agent, env, **how, stop_if_diverged=False).metrics["loss"]
    assert np.isfinite(loss[0]).all() and np.isnan(loss[1, -1])


@pytest.mark.slow
def test_a_replay_is_not_copied_and_what_is_kept_acts() -> None:
    env = make_env("probe:two-step")
    config = {"num_envs": 2, "hidden_sizes": (4,), "learning_starts": 8, "batch_size": 4}
    config |= {"buffer_size": 64}
    agent = make_agent("dqn", env, backend="jax", config=config, hyper={"learning_rate": 1e38})
    with pytest.raises(triglot.Diverged) as caught:
        train(agent, env, key=jax.random.key(0), total_steps=800)
    state: Any = jax.tree.map(lambda leaf: leaf[0], caught.value.result.runner_state.agent)
    assert int(state.replay.num_added) > 0, "as it was at the end"
    episodes = triglot.evaluate(agent, env, state, jax.random.key(1), num_episodes=2)
    assert np.isfinite(episodes.returns).all()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_finite_nonsense_is_reported(
    algorithm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {
        "ppo": "--num-envs 2 --rollout-length 8 --num-minibatches 2",
        "dqn": "--num-envs 2 --buffer-size 64 --learning-starts 16 --batch-size 4",
    }
    words = f"train {algorithm} probe:two-step {sizes[algorithm]} --hidden-sizes 4"
    out = tmp_path / "run"
    assert (
        main([*words.split(), *f"--total-steps 320 --learning-rate 1e10 --out {out}".split()]) == 0
    )
    assert "has probably diverged: try a lower learning rate" in unwrapped(capsys)
    assert "has grown to" in json.loads((out / "summary.json").read_text())["warning"]


@pytest.mark.slow
def test_nothing_is_said_of_a_checkpoint_that_does_not_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"train ppo failing_env:reward {SMALL} --total-steps 160 --out {tmp_path / 'run'}"
    assert main(words.split()) == 1
    said = unwrapped(capsys)
    assert "Nothing was saved" in said and "checkpoint after" not in said
