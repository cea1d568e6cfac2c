"""`triglot train` from end to end, on the smallest of trainings."""

import json
import os
import re
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.cli import main as cli
from triglot.core.errors import TriglotError
from triglot.core.hyper import fill_schedule_horizon
from triglot.core.loop import checkpoint
from triglot.core.loop.checkpoint import Checkpoints
from triglot.core.loop.trainer import Trainer, init_seeds
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.runs import train as train_command
from triglot.runs.plots import learning_curves as plots
from triglot.runs.storage.journal import Journal

SMALL = {"rollout_length": 8, "num_envs": 2, "num_epochs": 1, "num_minibatches": 1}
STEPS_PER_UPDATE = 16
COMMAND = ["train", "ppo", "probe:two-step", "--num-seeds", "2", "--eval-episodes", "4"]
COMMAND += [word for name, n in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(n))]

TINY = "train ppo gridworld:2x2 --backend table --num-envs 1 --rollout-length 2 --num-minibatches 1"
TINY = [*TINY.split(), "--num-epochs", "1", "--total-steps", "2", "--eval-episodes", "0"]


@pytest.fixture(scope="module")
def finished(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train once for the tests that look at what it leaves."""
    out = tmp_path_factory.mktemp("runs") / "finished"
    rounded_up = ["--total-steps", "100", "--out", str(out), "--compilation-cache", str(cache)]
    assert cli.main([*COMMAND, *rounded_up]) == 0
    return out


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(), parse_constant=pytest.fail)


@pytest.mark.slow
def test_each_update_has_its_line(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == list(range(1, 8))
    assert [line["env_steps"] for line in lines] == [STEPS_PER_UPDATE * n for n in range(1, 8)]
    assert all(len(line["loss"]) == len(line["episode_return"]) == 2 for line in lines)


def test_it_trains_as_the_library_does(finished: Path) -> None:
    env = triglot.make_env("probe:two-step")
    agent = triglot.make_agent("ppo", env, config=SMALL)
    key = jax.random.key(0)
    result = triglot.train(agent, env, key=key, total_steps=100, num_seeds=2)
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    for name, values in result.metrics.items():
        written = np.asarray([line[name] for line in lines], np.float32).T
        np.testing.assert_array_equal(written, values, err_msg=name)


def test_it_writes_down_what_it_did(finished: Path) -> None:
    config, summary = read(finished / "config.json"), read(finished / "summary.json")
    assert config["command"].startswith("triglot train ppo probe:two-step --num-seeds 2")
    assert config["config"].items() >= SMALL.items()
    assert config["hyper"]["learning_rate"] == "linear(0.00025, 0, 7 updates)"
    assert config["num_updates"] == 7
    assert config["num_steps"] == 7 * STEPS_PER_UPDATE and config["total_steps"] == 100
    assert config["versions"]["jax"] == jax.__version__
    assert (summary["num_updates"], summary["interrupted"]) == (7, False)
    assert list(summary["seconds"]) == [
        "import", "init", "trace", "compile", "train", "save", "evaluate",
    ]  # fmt: skip
    evaluation = summary["evaluation"]
    assert evaluation["return_per_seed"] == [1.0, 1.0] and evaluation["share_finished"] == 1.0
    assert evaluation["return_interval95"] is None  # of 2 seeds
    assert (finished / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_checkpoint_is_the_whole_state(finished: Path) -> None:
    env = triglot.make_env("probe:two-step")
    agent = triglot.make_agent("ppo", env, config=SMALL)
    trainer = Trainer(agent, VectorEnvironment(env, agent.num_envs))
    keys = jax.random.split(jax.random.key(0), 2)
    like = init_seeds.eval_shape(trainer, keys, agent.hyper)
    with pytest.raises(TriglotError, match=r"schedules\.learning_rate.* is float32"):
        Checkpoints(finished / "checkpoints").restore(like)[1]
    hyper = fill_schedule_horizon(agent.hyper, 7)
    like = init_seeds.eval_shape(trainer, keys, hyper)
    state = Checkpoints(finished / "checkpoints").restore(like)[1]
    np.testing.assert_array_equal(state.num_updates, [7, 7])
    assert jnp.issubdtype(state.key.dtype, jax.dtypes.prng_key)
    result = triglot.train(
        agent, env, key=jax.random.key(0), total_steps=100, num_seeds=2, hyper=hyper
    )
    jax.tree.map(np.testing.assert_array_equal, *map(as_numbers, (state, result.runner_state)))


def as_numbers(state: Any) -> Any:
    def shown(leaf: jax.Array) -> jax.Array:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(leaf) if is_key else leaf

    return jax.tree.map(shown, state)


@pytest.mark.slow
def test_every_return_in_training_is_of_the_same_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    words = "train q_learning gridworld:3x3 --backend table --num-envs 2 --rollout-length 8"
    more = "--eval-every 160 --eval-episodes 2 --metrics-every 2 --num-seeds 2 --no-preset"
    train = [*words.split(), *more.split(), "--out", out, "--total-steps", "1600"]
    for command in (train, ["resume", out, "--total-steps", "3200"]):
        assert cli.main(command) == 0
        printed = capsys.readouterr()
        bar, greedy = re.findall(r"return=(\S+) \(last 5%\), greedy=(\S+)\]", printed.err)[-1]
        assert f"return in training {bar} (last 5% of updates)" in " ".join(printed.out.split())
        assert cli.main(["watch", out]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert f"return in training {bar} (last 5% of updates)" in text
        assert f"greedy return {greedy} (last evaluation)" in text
        assert cli.main(["curves", out, "--out", str(tmp_path / "curves.png")]) == 0
        assert float(capsys.readouterr().out.split()[1].strip(",")) == pytest.approx(
            float(bar), abs=0.006
        )


def test_what_is_compiled_is_kept(finished: Path, cache: Path) -> None:
    assert list(cache.glob("jit_train_seeds-*"))


@pytest.mark.slow
@pytest.mark.parametrize(("options", "early"), [(["--eval-every", "2"], True), ([], False)])
def test_an_early_evaluation_compiles_beside_the_training(
    options: list[str], early: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    asked, prepare = threading.Event(), triglot.Experiment.start_and_compile

    def prepared(*given: Any) -> Any:
        result = prepare(*given)
        assert asked.wait(60 if early else 0) is early
        return result

    monkeypatch.setattr(train_command, "compile_play", lambda *_, **__: asked.set())
    monkeypatch.setattr(triglot.Experiment, "start_and_compile", prepared)
    command = [*TINY[:-1], "1", *options, "--compilation-cache", str(cache)]
    assert cli.main([*command, "--out", str(tmp_path / "out")]) == 0
    assert asked.is_set()


def test_a_run_is_never_overwritten(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    assert cli.main([*COMMAND, "--out", str(finished), "--no-compilation-cache"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_ctrl_c_ends_the_chunk_and_keeps_everything(
    finished: Path,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    add_chunk = Journal.add_chunk

    def add_and_press(journal: Journal, metrics: dict[str, np.ndarray]) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        add_chunk(journal, metrics)

    monkeypatch.setattr(Journal, "add_chunk", add_and_press)
    out = tmp_path / "interrupted"
    options = ["--total-steps", "1000", "--out", str(out), "--compilation-cache", str(cache)]
    assert cli.main([*COMMAND, *options]) == 130
    printed = capsys.readouterr()
    assert "rollout size (16): rounded up to 1,008" in printed.out
    assert "interrupted after 1 update" in printed.out
    assert str(out) in printed.out and "stopping after this chunk" in printed.err
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 1
    summary = read(out / "summary.json")
    assert summary["interrupted"] and summary["evaluation"] is None
    assert (out / "checkpoints").is_dir() and (out / "learning_curve.png").exists()


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(
    finished: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_chunk, out = Journal.add_chunk, tmp_path / "stopped"
    common = ["--total-steps", "100", "--out", str(out), "--compilation-cache", str(cache)]

    def add_and_press(journal: Journal, metrics: dict[str, np.ndarray]) -> None:
        add_chunk(journal, metrics)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Journal, "add_chunk", add_and_press)
    assert cli.main([*COMMAND, *common]) == 130
    monkeypatch.setattr(Journal, "add_chunk", add_chunk)
    done = Checkpoints(out / "checkpoints").numbers()[-1]
    assert 1 <= done < 7
    # What a SIGKILL leaves: a line too many, half a line, half a checkpoint.
    with (out / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"update": done + 1}) + "\n" + '{"update": ')
    (out / "checkpoints" / f"{checkpoint.UNFINISHED}00000009").mkdir()
    compiled = set(cache.glob("jit_train_seeds-*-cache"))
    assert cli.main(["resume", str(out), "--compilation-cache", str(cache)]) == 0
    assert set(cache.glob("jit_train_seeds-*-cache")) == compiled
    assert (out / "metrics.jsonl").read_text() == (finished / "metrics.jsonl").read_text()
    states = []
    for folder in (finished, out):
        env = triglot.make_env("probe:two-step")
        agent = triglot.make_agent("ppo", env, config=SMALL)
        trainer = Trainer(agent, VectorEnvironment(env, agent.num_envs))
        keys = jax.random.split(jax.random.key(0), 2)
        hyper = fill_schedule_horizon(agent.hyper, 7)
        like = init_seeds.eval_shape(trainer, keys, hyper)
        states.append(Checkpoints(folder / "checkpoints").restore(like)[1])
    chex.assert_trees_all_equal(*(state.agent for state in states))
    assert read(out / "summary.json")["evaluation"] == read(finished / "summary.json")["evaluation"]


def test_nothing_is_trained_where_nothing_is_left(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    shutil.copytree(finished, out)
    assert cli.main(["resume", str(out)]) == 0
    before, after = (read(run / "summary.json") for run in (finished, out))
    assert after["evaluation"] == before["evaluation"] and after["num_updates"] == 7
    assert before["steps_per_second"] > 0 and after["steps_per_second"] is None
    assert "compile" not in after["seconds"]


def test_resuming_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").touch()
    assert cli.main(["resume", str(tmp_path)]) == 2
    assert "is not a triglot run directory" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["nans", "no-jit", "acting"])
def test_nothing_is_found_where_nothing_is_wrong(mode: str, cache: Path, tmp_path: Path) -> None:
    """No episode ends in the one rollout, so that its average return is of nothing."""
    out = tmp_path / "healthy"
    command = [*TINY, "--debug", mode, "--out", str(out), "--compilation-cache", str(cache)]
    assert cli.main(command) == 0
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 1


@pytest.mark.slow
def test_a_nan_is_traced_to_its_operation(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sick = ["--adam-eps", "0", "--out", str(tmp_path / "sick")]  # divides 0 by 0
    assert cli.main([*TINY, *sick, "--debug", "nans", "--compilation-cache", str(cache)]) == 1
    told = read(tmp_path / "sick" / "summary.json")["diverged"]
    assert re.search(r"update 1\b.*parameter \S+ is NaN.* the result of div\(0, 0\) at ", told)
    assert "`--debug nans`" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_nan_is_reported(
    finished: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--total-steps", "100", "--learning-rate", "1e38"]
    options += ["--out", str(tmp_path / "sick"), "--compilation-cache", str(cache)]
    assert cli.main([*COMMAND, *options]) == 1
    told = capsys.readouterr().out
    assert re.search(r"stopped: (loss|grad_norm) is (nan|inf) in update \d+ of seed \d", told)
    assert read(tmp_path / "sick" / "summary.json")["evaluation"] is None
    assert "null" in (tmp_path / "sick" / "metrics.jsonl").read_text()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of orbax's
def test_a_damaged_or_foreign_checkpoint_is_told(tmp_path: Path) -> None:
    state = {"key": jax.random.key(0), "weights": jnp.ones(3), "nothing": None}
    checkpoint.save(tmp_path / "saved", state)
    restored = checkpoint.restore(tmp_path / "saved", state)
    jax.tree.map(np.testing.assert_array_equal, as_numbers(restored), as_numbers(state))
    with pytest.raises(TriglotError, match="already exists"):
        checkpoint.save(tmp_path / "saved", state)
    for other, says in (
        (
            {**state, "weights": jnp.ones(4)},
            r"float32\[3\] in it, but expected float32\[4\]",
        ),
        ({**state, "weights": jnp.ones(3, int)}, r"expected int32\[3\]"),
        ({**state, "more": jnp.ones(3)}, r"more is absent in it"),
    ):
        with pytest.raises(TriglotError, match=says):
            checkpoint.restore(tmp_path / "saved", other)
    with pytest.raises(TriglotError, match="no checkpoint at"):
        checkpoint.restore(tmp_path / "nowhere", state)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TriglotError, match="not a complete checkpoint"):
        checkpoint.restore(tmp_path / "empty", state)
    for file in (tmp_path / "saved" / "d").iterdir():
        file.write_bytes(b"")
    with pytest.raises(TriglotError, match="is damaged"):
        checkpoint.restore(tmp_path / "saved", state)


@pytest.mark.parametrize("num_updates", [1, 500])
def test_curves_are_drawn_whatever_is_missing(tmp_path: Path, num_updates: int) -> None:
    curve = np.linspace(0, 1, 2 * num_updates).reshape(2, num_updates)
    curve[:, ::3] = np.nan
    env_steps = np.arange(1, num_updates + 1) * 512
    values = {"some": curve, "one seed": curve[:1], "none": np.full_like(curve, np.nan)}
    curves = {label: plots.Curve(env_steps, of_seeds) for label, of_seeds in values.items()}
    curves["five seeds"] = plots.Curve(env_steps, np.tile(curve[:1], (5, 1)))
    plots.learning_curves(tmp_path / "curves.png", curves, title="curves")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
