"""`triglot resume --backend` and `--total-steps`: the undisturbed run, bit for bit."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triglot
from tests.printed import unwrapped
from triglot.cli import main as cli
from triglot.core.errors import TriglotError
from triglot.runs.options import TrainOptions
from triglot.runs.plan import prepare
from triglot.runs.resume import changing
from triglot.runs.storage.config import read_config

pytestmark = pytest.mark.packaging

SMALL = "--hidden-sizes 5 --eval-episodes 0 --num-seeds 2 --checkpoint-seconds 0"
REPLAY = "--buffer-size 64 --learning-starts 8 --batch-size 4 --num-envs 2"
PPO = "train ppo probe:two-step --num-envs 2 --rollout-length 4 --num-minibatches 2"
# Each command with the option that makes the schedule of its first part that of the whole.
COMMANDS = {
    "ppo": (PPO, "--learning-rate=linear(2.5e-4,0,48)"),
    "dqn": (f"train dqn probe:two-step --rollout-length 4 {REPLAY}", ""),
}
STEPS_PER_UPDATE, FIRST, WHOLE = 8, 3, 6


def run(words: str, out: Path, *more: str) -> int:
    return cli.main([*words.split(), "--out", str(out), *more])


def trained(name: str, out: Path, updates: int, backend: str = "haiku", *more: str) -> Path:
    command, _ = COMMANDS[name]
    steps = str(updates * STEPS_PER_UPDATE)
    assert run(f"{command} {SMALL}", out, "--backend", backend, "--total-steps", steps, *more) == 0
    return out


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train PPO with Haiku for half of the updates."""
    out = tmp_path_factory.mktemp("runs") / "first"
    return trained("ppo", out, FIRST, "haiku", *COMMANDS["ppo"][1].split())


def copied(folder: Path, out: Path) -> Path:
    shutil.copytree(folder, out)
    return out


def numbers(folder: Path) -> dict[str, np.ndarray]:
    """Read all numbers of the agent's states, by path."""
    from triglot.core.types import by_path

    states: Any = triglot.load_run(folder).agent_states
    return {path: np.asarray(leaf) for path, leaf in by_path(states).items()}


def test_a_run_continued_on_another_library_says_so(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = copied(first, tmp_path / "moved")
    words = ["resume", str(moved), "--backend", "nnx"]
    assert cli.main([*words, "--total-steps", str(WHOLE * STEPS_PER_UPDATE)]) == 0
    printed = unwrapped(capsys)
    assert "continues on nnx, with the weights and moments of haiku" in printed
    assert "extended from 24 to 48 steps" in printed
    config = read_config(moved)
    assert (config["backend"], config["num_updates"], config["total_steps"]) == ("nnx", 6, 48)
    assert [(one["num_updates"], one["option"]) for one in config["changes"]] == [
        (3, "backend"),
        (3, "total_steps"),
    ]


def test_a_native_run_is_translated_where_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = trained("ppo", tmp_path / "run", FIRST, "haiku", "--arithmetic", "native")
    before, obs = triglot.load_policy(out), np.linspace(-1, 1, 9, dtype=np.float32)[:, None]
    monkeypatch.setattr("triglot.runs.train._train_in_chunks", None)  # nothing is left to train
    assert cli.main(["resume", str(out), "--backend", "nnx"]) == 0
    found = triglot.load_run(out)
    assert found.agent.network.backend == "nnx" and found.num_updates == FIRST
    np.testing.assert_array_equal(triglot.load_policy(out)(obs), before(obs))
    assert cli.main(["evaluate", str(out), "--episodes", "2"]) == 0
    assert cli.main(["resume", str(out), "--backend", "equinox"]) == 0  # reads Haiku's once more
    assert triglot.load_run(out).agent.network.backend == "equinox"
    np.testing.assert_array_equal(triglot.load_policy(out)(obs), before(obs))


def test_a_run_that_stopped_early_continues_to_fewer_steps_than_it_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = trained("ppo", tmp_path / "run", WHOLE, "haiku", "--stop-at", "-1000")
    assert cli.main(["resume", str(out), "--total-steps", "16"]) == 0
    printed = unwrapped(capsys)
    assert "shortened from 48 to 16 steps; schedules continue unchanged" in printed
    assert "stops at its last update (before: at a return of -1000)" in printed
    assert read_config(out)["total_steps"] == 16


def test_an_extended_run_with_a_constant_rate_is_the_longer_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    constant = ["--learning-rate", "2.5e-4"]
    whole = trained("ppo", tmp_path / "whole", WHOLE, "haiku", *constant)
    out = trained("ppo", tmp_path / "run", FIRST, "haiku", *constant)
    assert cli.main(["resume", str(out), "--total-steps", "48"]) == 0
    assert "extended from 24 to 48 steps" in unwrapped(capsys)
    expected, found = numbers(whole), numbers(out)
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)


def test_the_schedule_of_an_extended_run_is_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = trained("ppo", tmp_path / "run", FIRST)
    before = (out / "config.json").read_bytes()
    assert cli.main(["resume", str(out), "--total-steps", "40"]) == 2
    told = capsys.readouterr().err
    assert "follows linear(0.00025, 0, 3 updates), and 40 steps are 5 updates" in told
    assert 'add --learning-rate, such as "linear(0.00025, 0)"' in told
    assert (out / "config.json").read_bytes() == before
    words = ["resume", str(out), "--total-steps", "40", "--learning-rate"]
    assert cli.main([*words, "linear(2.5e-4, 0, 4 updates)"]) == 2
    assert "follows linear(0.00025, 0, 4 updates)" in capsys.readouterr().err
    assert cli.main([*words, "linear(2.5e-4, 0)"]) == 0
    assert (
        "the learning rate is now linear(0.00025, 0, 5 updates) (before: "
        "linear(0.00025, 0, 3 updates))"
    ) in unwrapped(capsys)
    assert rates(out) == pytest.approx([1, 2 / 3, 1 / 3, 1 - 3 / 5, 1 - 4 / 5], rel=1e-5)
    assert read_config(out)["hyper"]["learning_rate"] == "linear(0.00025, 0, 5 updates)"
    # From a schedule to a number, and back.
    assert cli.main(["resume", str(out), "--total-steps", "48", "--learning-rate", "1e-4"]) == 0
    assert "the learning rate is now 0.0001 (before: linear" in unwrapped(capsys)
    assert rates(out)[5:] == pytest.approx([0.4])
    assert cli.main(["evaluate", str(out), "--episodes", "2"]) == 0
    assert cli.main(["resume", str(out), "--total-steps", "56"]) == 0
    words = ["resume", str(out), "--total-steps", "64", "--learning-rate", "cosine(1e-4, 1e-5)"]
    assert cli.main(words) == 0
    assert cli.main(["resume", str(out), "--total-steps", "72"]) == 0


def rates(folder: Path) -> list[float]:
    """Read the learning rate of each update, divided by 2.5e-4."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["learning_rate"][0] / 2.5e-4 for line in lines]


def test_a_changed_rate_is_followed_from_an_earlier_checkpoint(tmp_path: Path) -> None:
    """The first checkpoint after the change is lost, as when the machine stops."""
    out = trained("ppo", tmp_path / "run", FIRST)
    before = copied(out / "checkpoints", tmp_path / "before")
    words = ["resume", str(out), "--total-steps", "48", "--learning-rate", "1e-4"]
    assert cli.main(words) == 0
    expected = numbers(out)
    for folder in (out / "checkpoints").iterdir():
        shutil.rmtree(folder)
    for folder in before.iterdir():
        shutil.copytree(folder, out / "checkpoints" / folder.name)
    assert cli.main(["resume", str(out)]) == 0
    for path, array in expected.items():
        np.testing.assert_array_equal(numbers(out)[path], array, err_msg=path)


@pytest.mark.parametrize(
    "words, says",
    [
        ("--total-steps 16", "has done 24 steps already: give --total-steps above that, got 16"),
        ("--total-steps 0", "total_steps must be at least 1, got 0"),
        ("--backend haikoo", "unknown backend 'haikoo'; did you mean 'haiku'?"),
        ("--backend table", "the backend 'table' builds lookup tables only"),
        ("--learning-rate 9", "give --total-steps too"),
        ("--total-steps 48 --learning-rate -1", "learning_rate must be"),
        ("--decay-updates 9", "learning_rate is a number or a schedule"),
    ],
)
def test_a_change_that_is_not_possible_is_refused(
    words: str, says: str, first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = copied(first, tmp_path / "run")
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != ".holder.json"}
    assert cli.main(["resume", str(out), *words.split()]) == 2
    assert says in capsys.readouterr().err
    after = {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != ".holder.json"}
    assert after.items() >= before.items()


def test_a_run_without_a_checkpoint_is_not_moved(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = copied(first, tmp_path / "run")
    shutil.rmtree(out / "checkpoints")
    (out / "progress.json").unlink()
    assert cli.main(["resume", str(out), "--backend", "nnx"]) == 2
    assert "has no checkpoint whose weights --backend nnx could continue" in capsys.readouterr().err


def test_the_writer_of_each_checkpoint_is_found() -> None:
    changes = [
        {"num_updates": 5, "option": "backend", "from": "haiku", "to": "nnx"},
        {"num_updates": 7, "option": "total_steps", "from": 1, "to": 2},
        {"num_updates": 9, "option": "backend", "from": "nnx", "to": "linen"},
    ]
    config = {"backend": "linen", "changes": changes}
    found = [changing.writer_of(config, number) for number in (4, 5, 6, 9, 10)]
    assert found == ["haiku", "haiku", "nnx", "nnx", "linen"]
    assert changing.writer_of({"backend": "table"}, 3) == "table"


def test_a_cell_that_computes_another_function_is_refused(tmp_path: Path) -> None:
    config = {"cell": "gru", "num_envs": 4}
    options = TrainOptions(
        algorithm="ppo", env="probe:two-step", backend="haiku", config=config, out=tmp_path / "run"
    )
    prepare(options).write_config([])
    plan = prepare(replace(options, backend="nnx"), folder=tmp_path / "run")
    with pytest.raises(TriglotError, match="They compute different functions"):
        changing.Translation(plan, None).like(0)  # pyright: ignore
