"""`triglot watch`: what it shows of a run in each state, and that it only reads."""

import io
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.printed import unwrapped
from tests.runs.storage import fake_wandb
from triglot.cli import main as cli
from triglot.runs.monitoring.forwarding import Forwarding
from triglot.runs.monitoring.watch import frames
from triglot.runs.options import TrainOptions, WatchOptions
from triglot.runs.plan import prepare
from triglot.runs.storage.records import locked

ENDED: dict[str, object] = {
    "num_updates": 6, "num_steps": 3072, "diverged": None, "interrupted": False, "reached": None,
    "evaluation": None,
}  # fmt: skip
EVALUATED = {"return_mean": 0.25, "return_per_seed": [0.25]}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write the `config.json` of a run of 6 updates of 512 steps."""
    out = tmp_path_factory.mktemp("runs") / "run"
    options = TrainOptions(algorithm="ppo", env="gridworld:3x3", backend="table", out=out,
                           num_seeds=2, total_steps=6 * 512)  # fmt: skip
    prepare(options).write_config([])
    return (out / "config.json").read_text()


@pytest.fixture
def run(config: str, tmp_path: Path) -> Path:
    """Make a run without metrics, which nobody trains."""
    (tmp_path / "config.json").write_text(config)
    return tmp_path


def learn(run: Path, updates: int) -> None:
    """Write the metrics of the first updates, with an evaluation in every second one."""
    lines = [
        {"update": n, "env_steps": 512 * n, "episode_return": [n / 10, n / 10 + 0.2],
         "eval_return": [None, None] if n % 2 else [n / 5, n / 5]}
        for n in range(1, updates + 1)
    ]  # fmt: skip
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def end(run: Path, **how: object) -> None:
    (run / "summary.json").write_text(json.dumps({**ENDED, **how}))


def test_the_metrics_of_a_run_are_sent_to_wandb(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = fake_wandb.install(monkeypatch)
    forwarding = Forwarding(run, ["wandb"], ["project=maze", "group=seeds"])
    forwarding.send()  # there are no metrics yet
    for updates in (2, 3, 6):
        learn(run, updates)
        forwarding.send()
    forwarding.close()
    (sent,) = begun
    assert sent.arguments["project"] == "maze" and sent.arguments["group"] == "seeds"
    assert [point["env_steps"] for point in sent.points] == [512 * n for n in range(1, 7)]
    returns = [point["seed_0/episode_return"] for point in sent.points]
    assert returns == pytest.approx([n / 10 for n in range(1, 7)])
    assert ["eval_return" in point for point in sent.points] == 3 * [False, True]
    assert sent.finished


def test_watch_logs_a_run_that_has_ended(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = fake_wandb.install(monkeypatch)
    learn(run, 6)
    end(run)
    assert cli.main(["watch", str(run), "--log", "wandb", "--wandb", "entity=lab"]) == 0
    assert begun[0].arguments["entity"] == "lab" and len(begun[0].points) == 6
    assert cli.main(["watch", str(run), "--wandb", "entity=lab"]) == 2
    config = json.loads((run / "config.json").read_text()) | {"log": ["wandb"]}
    (run / "config.json").write_text(json.dumps(config))
    capsys.readouterr()
    assert cli.main(["watch", str(run), "--log", "wandb"]) == 2
    assert "logs to wandb itself" in unwrapped(capsys, "err")
    assert len(begun) == 1


def test_a_run_is_shown_until_it_ends(run: Path) -> None:
    slept = []
    training = ExitStack()
    training.enter_context(locked(run))

    def train(seconds: float) -> None:
        slept.append(seconds)
        learn(run, 3 * len(slept))
        if len(slept) == 2:
            end(run, evaluation=EVALUATED)
            training.close()

    first, second, last = frames(WatchOptions(run=run, seconds=0.01), sleep=train)
    assert "ppo on gridworld:3x3, table, 2 seeds: running, no update yet" in first
    assert "1,536 of 3,072 steps per seed (50%)" in second
    assert "return in training 0.400 (last 5% of updates), greedy return 0.400 (last" in second
    assert "2 seeds: finished\n3,072 of 3,072" in last and "after training 0.250" in last
    assert "greedy return 1.20" in last and "summary.json" in last


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_curve_fits_the_terminal(
    run: Path, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    learn(run, 6)
    end(run)
    assert cli.main(["watch", str(run), "--metric", "eval_return"]) == 0
    lines = capsys.readouterr().out.splitlines()
    curve = [line for line in lines if " |" in line]
    assert len(curve) > 3 and curve[0].startswith("1.2 |") and curve[-1].startswith("0.4 |")
    assert columns - 4 < max(map(len, curve)) < columns


def test_an_unknown_metric_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learn(run, 2)
    end(run)
    assert cli.main(["watch", str(run), "--metric", "eval_retrun"]) == 2
    assert "did you mean 'eval_return'" in capsys.readouterr().err
    assert unwrapped(capsys) == ""


def test_a_terminal_of_unicode_shows_the_curve_in_dots(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(run, 6)
    end(run, evaluation=EVALUATED)
    shown = io.BytesIO()
    terminal = io.TextIOWrapper(shown, encoding="utf-8", write_through=True)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", terminal)
    assert cli.main(["watch", str(run)]) == 0
    text = shown.getvalue().decode()
    assert "finished" in text and any("\u2801" <= char <= "\u28ff" for char in text)
