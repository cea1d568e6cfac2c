"""`--eval-every`, `--stop-at` and the best checkpoint."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import chex
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.printed import unwrapped
from triglot.cli import main as cli
from triglot.runs.monitoring.evaluating import Best, best_checkpoints
from triglot.runs.storage.config import read_config
from triglot.runs.storage.journal import Journal

SMALL = "--rollout-length 8 --num-envs 2 --num-epochs 1 --num-minibatches 1 --hidden-sizes 4"
COMMAND = f"train ppo probe:two-step {SMALL} --num-seeds 2 --eval-episodes 4 --total-steps 112"
EVERY = ("--eval-every", "40")  # rounded up to 48 steps, 3 updates
UPDATES, EVALUATED = 7, (3, 6)


def train(out: Path, *more: str, expected: int = 0) -> Path:
    assert cli.main([*COMMAND.split(), "--out", str(out), *more]) == expected
    return out


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train with evaluations."""
    return train(tmp_path_factory.mktemp("runs") / "evaluated", *EVERY)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.mark.slow
def test_evaluations_change_no_number_of_the_training(evaluated: Path, tmp_path: Path) -> None:
    plain = train(tmp_path / "plain")
    expected, found = lines(plain), lines(evaluated)
    returns = [line.pop("eval_return") for line in found]
    assert found == expected
    assert {n for n, each in enumerate(returns, 1) if each != [None, None]} == set(EVALUATED)
    one, other = (triglot.load_run(folder).agent_states for folder in (plain, evaluated))
    chex.assert_trees_all_equal(one, other)
    one, other = (read(folder / "summary.json")["evaluation"] for folder in (plain, evaluated))
    assert one == other


@pytest.mark.slow
def test_a_resumed_training_evaluates_as_an_uninterrupted_one(
    evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, add_chunk = tmp_path / "stopped", Journal.add_chunk

    def add_and_press(journal: Journal, metrics: dict[str, np.ndarray]) -> None:
        add_chunk(journal, metrics)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add_chunk", add_and_press)
        train(out, *EVERY, expected=130)
    assert read_config(out)["eval_every"] == 40
    assert cli.main(["resume", str(out)]) == 0
    for name in ("metrics.jsonl", "best.json"):
        assert (out / name).read_text() == (evaluated / name).read_text()


def test_the_best_checkpoint_is_evaluated(
    evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = read(evaluated / "best.json")
    returns = {line["update"]: np.mean(line["eval_return"]) for line in lines(evaluated)
               if None not in line["eval_return"]}  # fmt: skip
    assert best["num_updates"] == max(returns, key=lambda update: returns[update])
    assert triglot.load_run(evaluated, checkpoint="best").num_updates == best["num_updates"]
    words = ["evaluate", str(evaluated), "--episodes", "4", "--checkpoint", "best"]
    assert cli.main(words) == 0
    assert f"after {best['num_updates']} of {UPDATES} updates" in unwrapped(capsys)
    assert read(evaluated / "evaluation.json")["checkpoint"] == "best"


def test_the_best_is_kept_until_a_better_one(tmp_path: Path) -> None:
    best, state = Best(tmp_path), {"params": jnp.ones(2)}
    offers = {3: [1.0, 2.0], 6: [np.nan, 9.0], 9: [1.0, 2.0], 12: [2.0, 2.0], 15: [0.0, 0.0]}
    kept = [n for n, each in offers.items() if best.offer(n, np.array(each), state)]
    assert kept == [3, 12] and best_checkpoints(tmp_path).numbers() == [12]
    assert read(tmp_path / "best.json")["return_per_seed"] == [2.0, 2.0]
    continued = Best(tmp_path)
    assert not continued.offer(18, np.array([2.0, 2.0]), state)
    # A killed training that is resumed before its best may find a better one earlier.
    assert continued.offer(9, np.array([3.0, 3.0]), state)
    assert best_checkpoints(tmp_path).numbers() == [9]


@pytest.mark.slow
def test_it_stops_at_a_return_and_continues_with_other_options(
    evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reached = np.mean(lines(evaluated)[EVALUATED[0] - 1]["eval_return"])
    out = train(tmp_path / "out", *EVERY, "--stop-at", str(reached))
    printed = unwrapped(capsys)
    assert f"stopped early after {EVALUATED[0]} updates: the greedy return" in printed
    assert "next: triglot evaluate" in printed
    assert read(out / "summary.json")["num_updates"] == EVALUATED[0]
    assert cli.main(["runs", str(tmp_path), "--where", "state=stopped"]) == 0
    for options in ([], ["--stop-at", str(reached)]):
        assert cli.main(["resume", str(out), *options]) == 2
        assert "continue with --stop-at above" in capsys.readouterr().err
    assert cli.main(["resume", str(out), "--total-steps", "112"]) == 0
    assert "stops at its last update (before: at a return of" in unwrapped(capsys)
    assert lines(out) == lines(evaluated) and read_config(out)["stop_at"] is None


@pytest.mark.slow
def test_without_evaluations_it_stops_at_the_return_of_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(tmp_path / "out", "--stop-at", "-5")
    assert "the return of training episodes" in unwrapped(capsys)
    assert read(out / "summary.json")["num_updates"] == 1


@pytest.mark.slow
def test_python_environments_are_evaluated(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    out = tmp_path / "host"
    command = f"train ppo gymnasium:CartPole-v1 {SMALL} --no-preset --total-steps 48"
    assert cli.main([*command.split(), "--eval-every", "32", "--eval-episodes", "2", "--out",
                     str(out)]) == 0  # fmt: skip
    returns = [line["eval_return"][0] for line in lines(out)]
    assert returns[0] is None and returns[1] > 0 and returns[2] is None
    assert best_checkpoints(out).numbers() == [2]
