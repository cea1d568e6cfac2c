"""Logs as the libraries that they are for read them: TensorBoard, and Weights & Biases offline."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from triglot.runs.storage.logs import TensorBoard, WeightsAndBiases

pytestmark = pytest.mark.packaging

CONFIG = {
    **{"algorithm": "ppo", "env": "probe:two-step", "backend": "linen", "arithmetic": "native"},
    **{"optimizer": "adam", "num_seeds": 2, "seed": 0, "total_steps": 48, "eval_every": 16},
    **{"config": {"num_envs": 2}, "hyper": {"learning_rate": 1e-3}},
    "wandb": ("project=maze", "entity=lab", "group=seeds", "resume=allow"),
}
BLOCK, HEADER = 32768, 7  # of the log of records that W&B writes, in bytes


@pytest.fixture
def episode(tmp_path: Path) -> Path:
    """Draw a GIF of two frames."""
    frames = [Image.new("L", (8, 6), shade) for shade in (0, 255)]
    frames[0].save(tmp_path / "episode.gif", save_all=True, append_images=frames[1:])
    return tmp_path / "episode.gif"


def write(log: Any, steps: range, episode: Path) -> None:
    for step in steps:
        log.add(step, {"loss": np.array([1.0, 3.0]) * step, "eval_return": np.array([np.nan, 5.0])})
    log.add_video(steps[-1], episode)
    log.close()


def test_tensorboard_reads_the_curves_of_a_resumed_training(tmp_path: Path, episode: Path) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed",
    )
    pytest.importorskip("tensorboardX")
    write(TensorBoard(tmp_path, CONFIG, 0), range(16, 80, 16), episode)
    write(TensorBoard(tmp_path, CONFIG, 32), range(48, 112, 16), episode)  # killed after 32 steps

    def read(curve: str) -> Any:
        accumulator = reader.EventAccumulator(str(tmp_path / "tensorboard" / curve), {"images": 0})
        return accumulator.Reload()

    for curve, factor in (("seed_0", 1), ("seed_1", 3), ("mean", 2)):
        points = [(each.step, each.value) for each in read(curve).Scalars("loss")]
        assert points == [(step, factor * step) for step in range(16, 112, 16)]
    assert "eval_return" not in read("seed_0").Tags()["scalars"]  # nothing was measured
    assert [each.value for each in read("mean").Scalars("eval_return")] == [5.0] * 6
    videos = read("seed_0").Images("episode")
    assert videos[-1].step == 96 and videos[-1].encoded_image_string == episode.read_bytes()
    assert (videos[-1].width, videos[-1].height) == (8, 6)
    kinds = read("mean").summary_metadata
    assert kinds["_hparams_/session_start_info"].plugin_data.plugin_name == "hparams"


def records(path: Path, proto: Any) -> Iterator[Any]:
    """Read the records of an offline run: LevelDB's log format after a header of 7 bytes."""
    content, at, text = path.read_bytes(), HEADER, b""
    while at + HEADER <= len(content):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK  # padding
            continue
        _, size, kind = struct.unpack("<IHB", content[at : at + HEADER])
        text += content[at + HEADER : at + HEADER + size]
        at += HEADER + size
        if kind in (1, 4):  # whole, or its last part
            yield proto.Record.FromString(text)
            text = b""


def test_wandb_stores_a_run_offline(
    tmp_path: Path, episode: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    proto = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    for name in ("PROJECT", "ENTITY", "RUN_GROUP", "RUN_ID", "RESUME"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = tmp_path / "first"
    folder.mkdir()
    log = WeightsAndBiases(folder, CONFIG, 0)
    assert log._run.settings.resume == "allow"
    write(log, range(16, 48, 16), episode)
    time.sleep(1.1)  # the folder of an offline run is named by its second
    write(WeightsAndBiases(folder, CONFIG, 32), range(48, 80, 16), episode)
    wandb.teardown()

    stored = [
        list(records(path, proto)) for path in sorted(folder.glob("wandb/offline-*/run-*.wandb"))
    ]
    assert len(stored) == 2
    history: list[dict[str, str]] = []
    for kept in stored:
        (run,) = (each.run for each in kept if each.WhichOneof("record_type") == "run")
        assert (run.project, run.entity, run.run_group) == ("maze", "lab", "seeds")
        assert run.display_name == "first"
        assert run.run_id in (folder / "wandb.json").read_text()
        config = {each.key: each.value_json for each in run.config.update}
        assert config["algorithm"] == '"ppo"' and config["hyper"] == '{"learning_rate":0.001}'
        (metric,) = (each.metric for each in kept if each.WhichOneof("record_type") == "metric")
        assert (metric.glob_name, metric.step_metric) == ("*", "env_steps")
        history += [
            {item.key or ".".join(item.nested_key): item.value_json for item in each.history.item}
            for each in kept
            if each.WhichOneof("record_type") == "history"
        ]
    points = [point for point in history if "loss" in point]
    assert [(int(each["env_steps"]), float(each["loss"])) for each in points] == [
        (step, 2 * step) for step in range(16, 80, 16)
    ]
    assert float(points[0]["seed_1/loss"]) == 48 and "seed_0/eval_return" not in points[0]
    videos = [point for point in history if "episode.path" in point]
    assert [int(each["env_steps"]) for each in videos] == [32, 64]
    assert [
        path.read_bytes() for path in folder.glob("wandb/offline-*/files/media/videos/*.gif")
    ] == [episode.read_bytes()] * 2
