"""Logs beside the JSON lines, and a function that is called from inside the compiled program."""

import importlib
import importlib.util
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import triglot
from tests.printed import unwrapped
from tests.runs.storage import fake_wandb
from triglot.cli import main as cli
from triglot.core.errors import MissingExtra, TriglotError
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.runs.storage import logs
from triglot.runs.storage.logs import Logs, TensorBoard, WeightsAndBiases

SMALL = {"rollout_length": 8, "num_envs": 2, "num_epochs": 1, "num_minibatches": 1}


class Kept:
    """A log that keeps its points."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []

    def add(self, env_steps: int, metrics: Any) -> None:
        self.points.append((env_steps, float(metrics["loss"][0])))

    def add_video(self, env_steps: int, path: Path) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_short_training_is_logged_update_by_update() -> None:
    kept, loss = Kept(), np.arange(7.0)[None]
    all_of_it = Logs([kept], num_updates=7, steps_per_update=16)
    for part in np.split(loss, [1, 3], axis=1):
        all_of_it.add_chunk({"loss": part})
    assert kept.points == [(16 * (n + 1), float(n)) for n in range(7)]


def test_a_long_training_is_averaged_and_goes_on_as_if_it_had_not_stopped() -> None:
    loss = np.random.default_rng(0).normal(size=(2, 2500))
    loss[0, 30:33] = np.nan
    whole, parts = Kept(), Kept()
    Logs([whole], num_updates=2500, steps_per_update=16).add_chunk({"loss": loss})
    assert len(whole.points) == 833  # three updates to a point
    assert whole.points[0] == (48, pytest.approx(loss[0, :3].mean()))
    assert np.isnan(whole.points[10][1])
    before = Logs([parts], num_updates=2500, steps_per_update=16)
    before.add_chunk({"loss": loss[:, :400]})
    after = Logs([parts], num_updates=2500, steps_per_update=16)
    assert after.begun_after(400) == 399
    after.resume_after(400, {"loss": loss[:, 399:400]})
    after.add_chunk({"loss": loss[:, 400:401]})
    after.add_chunk({"loss": loss[:, 401:]})
    np.testing.assert_array_equal(parts.points, whole.points)
    damaged = Kept()
    lossy = Logs([damaged], num_updates=2500, steps_per_update=16)
    lossy.resume_after(401, {"loss": loss[:, 400:401]})  # one of the two is lost
    lossy.add_chunk({"loss": loss[:, 401:404]})
    assert damaged.points == [(402 * 16, pytest.approx(loss[0, 400:402].mean()))]


def events(folder: Path) -> Iterator[Any]:
    """Read event files: a length, its checksum, the event, its checksum."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    for file in sorted(folder.glob("events*")):
        content = file.read_bytes()
        while content:
            (size,) = struct.unpack("<Q", content[:8])
            yield event_pb2.Event.FromString(content[12 : 12 + size])
            content = content[16 + size :]


def test_tensorboard_gets_each_seed_and_the_mean(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    log = TensorBoard(tmp_path, {}, 0)
    log.add(16, {"loss": np.array([1.0, 3.0]), "episode_return": np.array([np.nan, 5.0])})
    log.close()
    later = TensorBoard(tmp_path, {}, 16)
    later.add(32, {"loss": np.array([2.0, 4.0])})
    later.close()
    read = {
        (folder.name, value.tag, event.step): value.simple_value
        for folder in (tmp_path / "tensorboard").iterdir()
        for event in events(folder)
        for value in event.summary.value
    }
    assert read == {
        ("seed_0", "loss", 16): 1.0,
        ("seed_1", "loss", 16): 3.0,
        ("mean", "loss", 16): 2.0,
        ("seed_1", "episode_return", 16): 5.0,
        ("mean", "episode_return", 16): 5.0,
        ("seed_0", "loss", 32): 2.0,
        ("seed_1", "loss", 32): 4.0,
        ("mean", "loss", 32): 3.0,
    }
    # TensorBoard drops from older files what a resumed training says again.
    started = [e.step for e in events(tmp_path / "tensorboard" / "mean") if e.session_log.status]
    assert started == [17]


@pytest.mark.slow
def test_tensorboard_gets_hyperparameters_and_videos(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    plugin = importlib.import_module("tensorboardX.proto.plugin_hparams_pb2").HParamsPluginData
    small = "--backend table --num-envs 1 --rollout-length 8 --num-minibatches 1 --num-epochs 1"
    command = f"train ppo gridworld:2x2 {small} --total-steps 24 --eval-every 16 --eval-episodes 2"
    out = tmp_path / "run"
    assert cli.main([*command.split(), "--log", "tensorboard", "--out", str(out)]) == 0
    written = [
        (event.step, value)
        for event in events(out / "tensorboard" / "seed_0")
        for value in event.summary.value
    ]
    stored = {
        value.tag: plugin.FromString(value.metadata.plugin_data.content)
        for _, value in written
        if value.metadata.plugin_data.plugin_name == "hparams"
    }
    chosen = stored["_hparams_/session_start_info"].session_start_info.hparams
    assert chosen["env"].string_value == "gridworld:2x2" and chosen["discount"].number_value == 0.99
    assert chosen["clip_value"].bool_value and chosen["rollout_length"].number_value == 8
    shown = [info.name.tag for info in stored["_hparams_/experiment"].experiment.metric_infos]
    assert shown == ["episode_return", "eval_return"]
    assert [step for step, value in written if value.tag == "eval_return"] == [16]
    videos = {step: value.image for step, value in written if value.tag == "episode"}
    assert set(videos) == {16, 24}  # with the evaluation, and at the end
    assert all(video.encoded_image_string.startswith(b"GIF8") for video in videos.values())
    assert (videos[16].width, videos[16].height) == (49, 49)


@pytest.mark.slow
def test_without_a_picture_the_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboardX")
    small = "--hidden-sizes 4 --num-envs 1 --rollout-length 8 --num-minibatches 1 --num-epochs 1"
    command = f"train ppo probe:two-step {small} --total-steps 16 --eval-every 8 --eval-episodes 2"
    assert cli.main([*command.split(), "--log", "tensorboard", "--out", str(tmp_path / "a")]) == 0
    assert unwrapped(capsys).count("no videos are logged: probe:two-step cannot be rendered") == 1


def test_no_log_is_no_object() -> None:
    assert logs.start((), Path("nowhere"), {"steps_per_update": 16}, 7, 0) is None


def test_a_log_that_cannot_be_had_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TriglotError, match="unknown log 'tensorbord'; did you mean 'tensorboard'"):
        logs.check(["tensorbord"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"--log wandb needs wandb.*triglot\[wandb\]"):
        logs.check(["wandb"])


CHOSEN = ("project=maze", "entity=lab", "group=seeds", "resume=never")


def test_wandb_gets_its_own_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = fake_wandb.install(monkeypatch)
    log = WeightsAndBiases(tmp_path, {"wandb": CHOSEN}, 0)
    log.add(16, {"loss": np.array([1.0, 3.0])})
    log.close()
    (first,) = runs
    for word in CHOSEN:
        name, _, value = word.partition("=")
        assert first.arguments[name] == value
    assert first.points == [{"env_steps": 16, "loss": 2.0, "seed_0/loss": 1.0, "seed_1/loss": 3.0}]
    assert first.finished
    # A resumed training continues the run that it began, though that was to be a new one.
    WeightsAndBiases(tmp_path, {"wandb": CHOSEN}, 16)
    assert runs[1].arguments["id"] == first.arguments["id"]
    assert runs[1].arguments["resume"] == "allow" and runs[1].arguments["group"] == "seeds"


def test_wandb_has_defaults_and_reads_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = fake_wandb.install(monkeypatch)
    WeightsAndBiases(tmp_path, {}, 0)
    assert runs[0].arguments["project"] == "triglot" and runs[0].arguments["resume"] == "allow"
    assert "entity" not in runs[0].arguments and "group" not in runs[0].arguments
    monkeypatch.setenv("WANDB_PROJECT", "maze")
    monkeypatch.setenv("WANDB_RESUME", "must")
    WeightsAndBiases(tmp_path, {"wandb": ("id=abc",)}, 0)
    arguments = runs[1].arguments
    assert [arguments[name] for name in ("project", "resume", "id")] == ["maze", "must", "abc"]


@pytest.mark.parametrize(
    ("names", "words", "message"),
    [
        (["wandb"], ["maze"], "NAME=VALUE, got 'maze'"),
        (["wandb"], ["project="], "NAME=VALUE, got 'project='"),
        (["wandb"], ["groop=a"], "did you mean 'group'"),
        (["wandb"], ["resume=alow"], "did you mean 'allow'"),
        (["wandb"], ["group=a", "group=b"], "group once, got a and b"),
        (["tensorboard"], ["group=a"], "--wandb has no effect without --log wandb"),
    ],
)
def test_wrong_arguments_of_wandb_are_refused(
    names: list[str], words: list[str], message: str
) -> None:
    with pytest.raises(TriglotError, match=message):
        logs.check(names, words)


@pytest.mark.covering(2)
@pytest.mark.parametrize("num_seeds", [1, 3])
def test_each_update_is_heard_once_and_in_order(num_seeds: int) -> None:
    env = triglot.make_env("probe:two-step")
    agent = triglot.make_agent("ppo", env, config=SMALL)
    heard: list[tuple[int, dict[str, np.ndarray]]] = []
    result = triglot.train(
        agent,
        env,
        key=jax.random.key(0),
        total_steps=70 * 16,  # more than one chunk
        num_seeds=num_seeds,
        every_update=lambda done, metrics: heard.append((done, metrics)),
    )
    assert [done for done, _ in heard] == list(range(1, 71))
    for name, values in result.metrics.items():
        told = np.stack([metrics[name] for _, metrics in heard], axis=1)
        np.testing.assert_array_equal(told, values, err_msg=name)


def test_nobody_listening_costs_nothing() -> None:
    env = triglot.make_env("probe:two-step")
    agent = triglot.make_agent("ppo", env, config=SMALL)
    programs = []
    for listener in (None, lambda done, metrics: None):
        trainer = Trainer(agent, VectorEnvironment(env, agent.num_envs), every_update=listener)
        state = jax.eval_shape(trainer.init, jax.random.key(0))
        programs.append(str(jax.make_jaxpr(trainer.train_chunk)(state)))
    assert "callback" not in programs[0] and "custom_vmap" not in programs[0]
    assert "debug_callback" in programs[1]
