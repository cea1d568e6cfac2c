"""`triglot evaluate` and `triglot render` on a run, and a disk that takes no more of it."""

import errno
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import triglot
from triglot.cli import main as cli
from triglot.core.agent import PolicyInput
from triglot.core.errors import TriglotError
from triglot.core.loop import checkpoint
from triglot.core.loop.checkpoint import Checkpoints
from triglot.core.loop.episode import Episodes, play_episode
from triglot.core.wrappers.ends import TimeLimit
from triglot.runs import render as rendering
from triglot.runs import summary
from triglot.runs.storage.journal import Journal

INTERVALS = [
    (1, "return 5.00 (95% interval over episodes -7.42 to 17.4): 1 x 3 episodes"),
    (4, "return 3.50 (seeds 2.00 to 5.00): 4 x 3 episodes"),
    (5, "return 3.00 (95% interval over seeds 1.04 to 4.96): 5 x 3 episodes"),
]


@pytest.mark.parametrize("num_seeds, says", INTERVALS)
def test_there_is_an_interval_over_seeds_from_five_on(num_seeds: int, says: str) -> None:
    # Seeds have mean returns of 5, 4, 3, ...; a seed's episodes are 5 apart.
    returns = np.arange(5, 0, -1)[:num_seeds, None] + np.array([-5.0, 0.0, 5.0])
    lengths, finished = jnp.ones(returns.shape, int), jnp.ones(returns.shape, bool)
    episodes = Episodes(returns=jnp.asarray(returns), lengths=lengths, finished=finished)
    lines = summary.describe_evaluation(summary.evaluation(episodes))
    assert lines == [f"greedy {says}"]


TRAIN = "train q_learning gridworld:3x4 --backend table --num-seeds 2 --total-steps 20000"
TRAIN = [*TRAIN.split(), "--eval-episodes", "0"]


@pytest.fixture(scope="module")
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learn the way on a small grid."""
    out = tmp_path_factory.mktemp("runs") / "finished"
    assert cli.main([*TRAIN, "--compilation-cache", str(cache), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def interrupted(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stop after the first chunk, which leaves a checkpoint."""
    out, add_chunk = tmp_path_factory.mktemp("runs") / "interrupted", Journal.add_chunk

    def add_and_press(journal: Journal, metrics: dict[str, np.ndarray]) -> None:
        add_chunk(journal, metrics)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "add_chunk", add_and_press)
        assert cli.main([*TRAIN, "--compilation-cache", str(cache), "--out", str(out)]) == 130
    return out


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(), parse_constant=pytest.fail)


def test_an_evaluation(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", str(run), "--episodes", "40"]) == 0
    told, found = capsys.readouterr().out, read(run / "evaluation.json")
    assert "greedy return 1.00 (seeds 1.00 to 1.00): 2 x 40 episodes" in told
    assert "lengths 5 to 5 steps" in told and "were cut" not in told
    assert np.shape(found["returns"]) == np.shape(found["lengths"]) == (2, 40)
    assert np.unique(found["lengths"]) == 5 and found["return_per_seed"] == [1.0, 1.0]
    assert found["num_updates"] == read(run / "summary.json")["num_updates"]
    assert (found["sampled"], found["share_finished"]) == (False, 1.0)


def test_another_environment_with_the_same_specs(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = "gridworld:3x4,max_steps=4"  # the way to the goal has 5
    assert cli.main(["evaluate", str(run), "--env", limited, "--episodes", "3"]) == 0
    assert f"q_learning on {limited}" in capsys.readouterr().out
    found = read(run / "evaluation.json")
    assert found["env"] == limited and found["share_finished"] == 1.0
    assert np.unique(found["lengths"]) == 4 and found["return_per_seed"] == [0.0, 0.0]


def test_episodes_that_do_not_end_are_counted(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--episodes", "3", "--max-steps", "4", "--sampled", "--seed", "1"]
    assert cli.main(["evaluate", str(run), *options]) == 0
    told = capsys.readouterr().out
    assert "sampled return 0.000" in told
    assert "6 of these 6 episodes were cut at the maximum number of steps" in told
    assert read(run / "evaluation.json")["share_finished"] == 0.0


def test_an_episode_is_drawn(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["render", str(run), "--seed-index", "1", "--episodes", "2"]) == 0
    assert "episode 2: return 1.00 in 5 steps\n" in capsys.readouterr().out
    with Image.open(run / "episode.gif") as picture:
        assert picture.n_frames == 12  # two episodes of six states  # pyright: ignore
        assert picture.size == (4 * 24 + 1, 3 * 24 + 1)
        first, last = np.asarray(picture.convert("RGB")), None
        picture.seek(11)
        last = np.asarray(picture.convert("RGB"))
    blue, green = np.array([0, 114, 178]), np.array([120, 200, 120])

    def shows(frame: np.ndarray, row: int, column: int, colour: np.ndarray) -> bool:
        pixel = frame[row * 24 + 12, column * 24 + 12].astype(int)
        return bool(np.abs(pixel - colour).max() < 12)

    assert shows(first, 2, 3, blue) and shows(first, 0, 0, green) and shows(last, 0, 0, blue)


@pytest.mark.parametrize(
    "command, says",
    [
        ("evaluate RUN --episodes 0", "episodes must be at least 1, got 0"),
        ("evaluate RUN --max-steps 0", "max_steps must be at least 1"),
        ("evaluate RUN --seed -1", "seed must be at least 0"),
        (
            "evaluate RUN --env gridworld:4x4",
            "--env gridworld:4x4 has other observations than gridworld:3x4, in which the run was "
            "trained: Discrete(num_values=16",
        ),
        ("evaluate RUN --smapled", "did you mean --sampled?"),
        ("evaluate nowhere", "nowhere is not a triglot run directory"),
        ("evaluate EMPTY", "there is no checkpoint in"),
        (
            "render RUN --seed-index 2",
            "less than the run's number of seeds, 2; got 2",
        ),
        ("render RUN --out episode.html", "is rendered as .gif; got --out episode.html"),
        ("render RUN --out file/e.gif", "file/e.gif cannot be written: "),
        ("render nowhere", "nowhere is not a triglot run directory"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    command: str,
    says: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "EMPTY").mkdir()
    shutil.copy(run / "config.json", tmp_path / "EMPTY")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert cli.main([word.replace("RUN", str(run)) for word in command.split()]) == 2
    told = capsys.readouterr().err
    assert told.startswith("triglot: error: ") and told.count("\n") == 1 and says in told
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_what_a_suite_has_no_picture_of_is_refused_before_an_episode() -> None:
    pytest.importorskip("gymnax")
    drawn, undrawn = map(triglot.make_env, ("gymnax:Catch-bsuite", "gymnax:MemoryChain-bsuite"))
    assert rendering.can_render(TimeLimit(drawn, 3)) and not rendering.can_render(undrawn)
    with pytest.raises(TriglotError, match="MemoryChain-bsuite cannot be rendered: gymnax has no"):
        rendering.draw(TimeLimit(undrawn, 3), None, Path("never.gif"))
    ends = (summary.next_commands(Path("run"), renders=renders) for renders in (True, False))
    assert ["triglot render run" in text for text in ends] == [True, False]


def test_what_cannot_be_drawn_says_how_to_mend_it() -> None:
    env = triglot.make_env("probe:two-step")
    with pytest.raises(TriglotError, match=r"cannot be rendered: add `draw_suffix"):
        rendering.draw(TimeLimit(env, 3), None, Path("never.gif"))
    assert not Path("never.gif").exists()


def test_a_time_limit_is_drawn_as_what_is_in_it(tmp_path: Path) -> None:
    env = TimeLimit(triglot.make_env("gridworld:3x4"), 2)
    agent = triglot.make_agent("q_learning", env, backend="table")
    state = agent.init(jax.random.key(0), agent.num_envs)
    episode = play_episode(agent, env, state, jax.random.key(1), max_steps=9, explore=True)
    assert (int(episode.length), bool(episode.finished)) == (2, True)
    assert episode.played().time.tolist() == [0, 1, 2]
    rendering.draw(env, episode.played(), tmp_path / "limited.gif")
    assert (tmp_path / "limited.gif").read_bytes().startswith(b"GIF89a")


def failing(real: Any, name: str) -> Any:
    """Let a function find the disk full where what it is given contains `name`."""

    def function(first: Any, *args: Any, **options: Any) -> Any:
        if name in f"{first} {args}":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(first, *args, **options)

    return function


@pytest.mark.covering(4)
@pytest.mark.parametrize(
    "owner, function, name",
    [
        (os, "posix_fallocate", ""),  # of a checkpoint, before it is written
        (os, "rename", checkpoint.UNFINISHED),  # of a checkpoint, when it is whole
        (Path, "open", "metrics.jsonl ('ab',"),
        (Path, "open", "summary.json ('x',"),
    ],
)
def test_a_full_disk_costs_one_sentence_and_no_checkpoint(
    owner: Any,
    function: str,
    name: str,
    interrupted: Path,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "stopped"
    shutil.copytree(interrupted, out)
    before = {p: p.read_bytes() for p in (out / "checkpoints").rglob("*") if p.is_file()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, function, failing(getattr(owner, function), name))
        assert cli.main(["resume", str(out)]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("triglot: error: ") and "No space left on device" in told
    assert str(out) in told and f"`triglot resume {out}` continues from the last one" in told
    kept = {p: p.read_bytes() for p in (out / "checkpoints").rglob("*") if p.is_file()}
    assert kept.items() >= before.items()
    assert not list((out / "checkpoints").glob(f"{checkpoint.UNFINISHED}*"))
    if owner is os:
        assert cli.main(["resume", str(out)]) == 0
        assert (out / "metrics.jsonl").read_text() == (run / "metrics.jsonl").read_text()


def test_a_folder_that_is_none_takes_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").touch()
    with pytest.raises(TriglotError, match=r"checkpoints cannot be read: Not a directory\."):
        Checkpoints(tmp_path / "checkpoints").save(1, {"x": np.ones(3)})


def test_what_the_system_said_is_found_in_a_long_message() -> None:
    error = ValueError("RESOURCE_EXHAUSTED: Error writing ... [os_error_code='28'] [source ...]")
    assert checkpoint._cause(error) == "No space left on device"
    assert checkpoint._cause(RuntimeError("odd")) == "RuntimeError: odd"


@pytest.mark.slow
def test_a_run_is_read_back_in_python(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = "train ppo probe:two-step --total-steps 64 --rollout-length 8 --hidden-sizes 8"
    assert (
        cli.main([*words.split(), "--num-seeds", "2", "--eval-episodes", "4", "--out", str(out)])
        == 0
    )
    found = triglot.load_run(out)
    assert found.env.name == "probe:two-step"
    assert found.num_updates == 2
    states = found.agent_states
    assert int(states.learner.num_gradient_steps[1]) == 2 * 4 * 4
    inputs = PolicyInput(obs=jnp.zeros((3, 1)), first=jnp.ones(3, bool))
    state = jax.tree.map(lambda leaf: leaf[0], states)
    output = found.agent.act(state, (), inputs, jax.random.key(0), explore=False)
    assert output.action.shape == (3,)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(TriglotError, match="is not a triglot run directory"):
        triglot.load_run(tmp_path)
