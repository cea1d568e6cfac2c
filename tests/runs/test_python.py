"""Trainings in Python write the folders of the command, and are read back, continued and drawn."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import triglot
from triglot.cli import main as cli
from triglot.core.errors import TriglotError
from triglot.export import export
from triglot.rl import Box, Discrete, TimeStep, first_step

KEY = jax.random.key(3)
SMALL = {"num_envs": 2, "rollout_length": 4, "hidden_sizes": (8,), "num_minibatches": 2}
PER_UPDATE = 8
NAME = "probe:two-step"


@pytest.fixture(scope="module")
def agent() -> Any:
    return triglot.make_agent("ppo", triglot.make_env(NAME), config=SMALL)


@pytest.fixture(scope="module")
def env() -> Any:
    return triglot.make_env(NAME)


@pytest.fixture(scope="module")
def result(agent: Any, env: Any) -> triglot.TrainResult:
    return triglot.train(agent, env, key=KEY, total_steps=6 * PER_UPDATE, num_seeds=2)


@pytest.fixture(scope="module")
def folder(agent: Any, env: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "x"
    triglot.train(agent, env, key=KEY, total_steps=6 * PER_UPDATE, num_seeds=2, out=out)
    return out


def contents(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def same(one: triglot.TrainResult, other: triglot.TrainResult) -> None:
    """Assert that two results have the same states and metrics."""
    chex.assert_trees_all_equal(one.agent_states, other.agent_states)
    assert one.num_updates == other.num_updates
    for name, values in one.metrics.items():
        np.testing.assert_array_equal(values, other.metrics[name], err_msg=name)


def test_it_writes_what_the_command_writes(
    folder: Path, result: triglot.TrainResult, tmp_path: Path
) -> None:
    same(triglot.load_run(folder), result)
    words = f"train ppo {NAME} --seed 3 --num-seeds 2 --total-steps 48 --num-envs 2"
    words += " --rollout-length 4 --hidden-sizes 8 --num-minibatches 2 --no-preset --out"
    assert cli.main([*words.split(), str(tmp_path / "run")]) == 0
    same(triglot.load_run(tmp_path / "run"), result)
    there = {path.name for path in (tmp_path / "run").iterdir()}
    assert {path.name for path in folder.iterdir()} == there
    ours, theirs = contents(folder), contents(tmp_path / "run")
    assert {n for n in theirs if ours[n] != theirs[n]} <= {"command", "started", "no_preset"}
    returns = [json.loads((run / "summary.json").read_text()) for run in (folder, tmp_path / "run")]
    assert returns[0]["evaluation"] == returns[1]["evaluation"]


@pytest.mark.slow
def test_what_is_saved_afterwards_is_read_by_commands(
    result: triglot.TrainResult, tmp_path: Path
) -> None:
    result.save(tmp_path / "saved")
    same(triglot.load_run(tmp_path / "saved"), result)
    assert cli.main(["evaluate", str(tmp_path / "saved"), "--episodes", "2"]) == 0
    assert cli.main(["resume", str(tmp_path / "saved")]) == 0
    with pytest.raises(TriglotError, match="saved"):
        result.save(tmp_path / "saved")  # not empty


@pytest.mark.slow
def test_it_continues_from_a_folder_as_from_memory(
    folder: Path, result: triglot.TrainResult, agent: Any, env: Any, tmp_path: Path
) -> None:
    memory = triglot.train(agent, env, total_steps=48, continue_from=result)
    loaded = triglot.load_run(folder)
    out = tmp_path / "longer"
    longer = triglot.train(loaded.agent, loaded.env, total_steps=48, continue_from=loaded, out=out)
    same(longer, memory)
    assert (longer.metrics["learning_rate"] > 0).all()
    again = triglot.load_run(out)
    same(again, memory)
    assert again.env_steps.tolist() == [PER_UPDATE * update for update in range(7, 13)]
    assert str(again.hyper.learning_rate) == "linear(0.00025, 0, 12 updates)"
    third = triglot.train(again.agent, again.env, total_steps=8, continue_from=again)
    assert third.num_updates == 13 and (third.metrics["learning_rate"] > 0).all()
    assert cli.main(["resume", str(out)]) == 0  # the metrics before it are not missed


@pytest.mark.slow
def test_an_agent_that_is_changed_changes_the_training(
    result: triglot.TrainResult, env: Any
) -> None:
    trained: Any = result.agent
    other: Any = replace(trained, hyper=replace(trained.hyper, learning_rate=1e-3))
    longer = triglot.train(other, env, total_steps=16, continue_from=result)
    np.testing.assert_allclose(longer.metrics["learning_rate"], 1e-3, rtol=1e-6)


@pytest.mark.slow
def test_hyperparameters_of_each_seed_and_any_key_are_kept(
    agent: Any, env: Any, tmp_path: Path
) -> None:
    key, rates = jax.random.fold_in(KEY, 7), jnp.array([1e-3, 1e-2], jnp.float32)
    swept = triglot.train(
        agent,
        env,
        key=key,
        total_steps=16,
        num_seeds=2,
        hyper={"learning_rate": rates},
        out=tmp_path / "swept",
    )
    loaded = triglot.load_run(tmp_path / "swept")
    same(loaded, swept)
    np.testing.assert_array_equal(loaded.hyper.learning_rate, rates)
    chex.assert_trees_all_equal(loaded.evaluate(3), swept.evaluate(3))
    words = ["resume", str(tmp_path / "swept"), "--total-steps", "32"]
    assert cli.main(words) == 0
    assert cli.main([*words[:3], "48", "--learning-rate", "1e-3"]) == 2
    np.testing.assert_array_equal(triglot.load_run(tmp_path / "swept").hyper.learning_rate, rates)


@pytest.mark.slow
def test_components_without_a_name_are_given_again(
    env: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def optimizer(hyper: Any) -> optax.GradientTransformation:
        return optax.sgd(1e-3)

    agent = triglot.make_agent("ppo", env, config=SMALL, optimizer=optimizer)
    result = triglot.train(agent, env, key=KEY, total_steps=8, out=tmp_path / "own")
    assert "learning_rate" not in result.metrics
    with pytest.raises(TriglotError, match=r"no name \(optimizer\).*agent=agent"):
        triglot.load_run(tmp_path / "own")
    assert cli.main(["evaluate", str(tmp_path / "own")]) == 2
    same(triglot.load_run(tmp_path / "own", agent=agent), result)
    other = triglot.make_agent("ppo", env, config={**SMALL, "hidden_sizes": (4,)})
    with pytest.raises(TriglotError, match=r"hidden_sizes is \(4,\).*\(8,\)"):
        triglot.load_run(tmp_path / "own", agent=other)
    longer = triglot.train(agent, env, total_steps=8, continue_from=result)  # at no rate of 0
    assert longer.num_updates == 2


@pytest.mark.slow
def test_a_callback_ends_the_training(agent: Any, env: Any, tmp_path: Path) -> None:
    answers = iter([None, True, np.bool_(False)])
    train: Any = {"key": KEY, "total_steps": 300 * PER_UPDATE}
    ended = triglot.train(agent, env, callback=lambda done, metrics: next(answers), **train)
    assert ended.num_updates == 3 * 64
    out = tmp_path / "ended"
    ended = triglot.train(agent, env, callback=lambda *_: False, out=out, **train)
    assert ended.num_updates == triglot.load_run(out).num_updates == 1
    assert json.loads((out / "summary.json").read_text())["interrupted"] is True


@pytest.mark.slow
def test_a_divergence_has_the_result_before_it(agent: Any, env: Any, tmp_path: Path) -> None:
    with pytest.raises(triglot.Diverged, match=r"loss|grad_norm|parameter") as caught:
        triglot.train(
            agent,
            env,
            key=KEY,
            total_steps=20 * PER_UPDATE,
            hyper={"learning_rate": 1e38},
            out=tmp_path / "sick",
        )
    params = jax.tree.leaves(caught.value.result.agent_states.learner.variables.params)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in params)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"out": 3}, "out must be a path"),
        ({"out": "."}, "not empty|holds|is in use"),
        ({"out": "new", "stop_if_diverged": False}, "ends where it diverges"),
    ],
)
def test_a_folder_is_checked_before_anything_compiles(
    agent: Any,
    env: Any,
    given: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(TriglotError, match=message):
        triglot.train(agent, env, key=KEY, total_steps=8, **given)
    assert not (tmp_path / "new").exists()


def test_a_state_without_its_key_writes_no_folder(
    result: triglot.TrainResult, tmp_path: Path
) -> None:
    with pytest.raises(TriglotError, match="whose key is not known"):
        triglot.train(
            result.agent,
            result.env,
            total_steps=8,
            continue_from=result.runner_state,
            out=tmp_path / "new",
        )


def test_a_result_acts_evaluates_and_exports(
    result: triglot.TrainResult, env: Any, tmp_path: Path
) -> None:
    assert repr(result) == "TrainResult(PPO on probe:two-step, 2 x 48 steps, 6 updates)"
    step = env.reset(KEY)
    action = result.policy(1)(np.asarray(step.obs))
    assert action.shape == () and isinstance(action, np.ndarray)
    assert result.evaluate(3, key=KEY).returns.shape == (2, 3)
    assert result.variables(1).params.keys() == result.agent.network.init(KEY).params.keys()
    for call in (result.policy, result.variables, result.agent_state):
        with pytest.raises(TriglotError, match="less than the number of seeds, 2; got 2"):
            call(2)
    written = export(result, tmp_path / "weights", format="safetensors", seed_index=1)
    assert [path.name for path in written] == ["weights.safetensors"]
    with pytest.raises(TriglotError, match="unknown format 'onx'; did you mean 'onnx'"):
        export(result, tmp_path / "more", format="onx")


def test_curves_are_one_figure(result: triglot.TrainResult, folder: Path, tmp_path: Path) -> None:
    figure = triglot.curves({"memory": result, "folder": folder}, metric="loss")
    figure.savefig(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 5_000
    with pytest.raises(TriglotError, match="unknown metric 'los' of the training"):
        triglot.curves(result, metric="los")
    with pytest.raises(TriglotError, match="curves takes the result"):
        triglot.curves(3)  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_a_notebook_shows_a_video(tmp_path: Path) -> None:
    env = triglot.make_env("gridworld:3x3")
    walked = triglot.train(triglot.make_agent("q_learning", env), env, key=KEY, total_steps=64)
    video: Any = walked.render(tmp_path / "walk.gif", max_steps=4)
    assert (tmp_path / "walk.gif").read_bytes() == video.content
    assert video._repr_html_().startswith('<img src="data:image/gif;base64,')
    with pytest.raises(TriglotError, match=r"rendered as .gif or .mp4, got .*walk.png"):
        walked.render(tmp_path / "walk.png")


@dataclass(frozen=True)
class Weak:
    """An environment whose rewards are Python's numbers."""

    name = "weak"
    obs_spec = Box((1,))
    action_spec = Discrete(2)

    def reset(self, key: jax.Array) -> TimeStep:
        return first_step(jnp.zeros((), jnp.int32), jnp.zeros(1))

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        done = state >= 3
        return TimeStep(
            state=state + 1,
            obs=jnp.zeros(1),
            reward=jnp.where(done, 1, 0),  # a weakly typed integer
            terminated=done,
            truncated=jnp.zeros((), bool),
        )


@pytest.mark.slow
def test_weakly_typed_rewards_are_cast() -> None:
    env = triglot.make_env(Weak)
    agent = triglot.make_agent("ppo", env, config=SMALL)
    trained = triglot.train(agent, env, key=KEY, total_steps=64)
    assert np.nanmax(trained.metrics["episode_return"]) == 1.0
    assert triglot.check_environment(env).passed
