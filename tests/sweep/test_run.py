"""A small sweep from end to end: equal to the library's own training, also after interruptions."""

import csv
import json
import os
import shlex
import signal
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.sweep.small import ENV, OVER, SETTINGS, SMALL, STEPS_PER_UPDATE, arrays, killed, options
from triglot.cli import main as cli
from triglot.core.errors import TriglotError
from triglot.core.hyper import as_float32
from triglot.core.loop import checkpoint
from triglot.core.loop.chunks import run_chunks
from triglot.core.loop.trainer import init_seeds
from triglot.core.trainers import make_trainer
from triglot.runs.jobs.ledger import Ledger
from triglot.runs.registry.overrides import overrides_of
from triglot.sweep import report, training
from triglot.sweep.learning import Learning
from triglot.sweep.options import SweepCommandOptions
from triglot.sweep.run import sweep
from triglot.sweep.settings import algorithms_of, train_options

pytestmark = [pytest.mark.packaging, pytest.mark.usefixtures("no_pages")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the sweep once, in one batch."""
    out = tmp_path_factory.mktemp("sweep") / "whole"
    assert sweep(options(out))[0] == 0
    return out


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def trainer_by_hand() -> Any:
    env = triglot.make_env(ENV)
    return make_trainer(triglot.make_agent("q_learning", env, backend="table", config=SMALL), env)


Trained = tuple[Any, Learning]


def begun(settings: list[int]) -> Trained:
    """Initialize both seeds of each setting by the functions of `core`."""
    trainer = trainer_by_hand()
    keys = jnp.tile(jax.random.split(jax.random.key(0), 2), len(settings))
    columns = zip(*(SETTINGS[number] for number in settings), strict=True)
    rates, epsilons = (np.repeat(np.array(values, np.float32), 2) for values in columns)
    hyper = as_float32(replace(trainer.agent.hyper, learning_rate=rates, epsilon=epsilons))
    hyper = jax.tree.map(lambda number: jnp.broadcast_to(number, rates.shape), hyper)
    return init_seeds(trainer, keys, hyper), Learning.empty(len(rates), 16)


def continued(trained: Trained, start: int, stop: int) -> Trained:
    """Train them in one program."""
    state, learning = trained
    program = trainer_by_hand().program()
    for chunk in run_chunks(program, state, stop, 5, done=start):
        learning.add(chunk.num_updates - chunk.count, chunk.metrics)
        state = chunk.runner_states
    return state, learning


def test_it_trains_as_the_library_does(whole: Path) -> None:
    state, learning = continued(begun([0, 1, 2, 3]), 0, 16)
    found = arrays(whole)
    np.testing.assert_array_equal(found["0-0-0/returns"], learning.returns)
    np.testing.assert_array_equal(found["0-0-0/episodes"], learning.episodes)
    keys = jnp.tile(jax.random.split(jax.random.fold_in(jax.random.key(0), 2), 2), 4)
    played = trainer_by_hand().evaluate_seeds(
        state.agent, keys, num_episodes=2, max_steps=100_000, explore=False
    )
    np.testing.assert_array_equal(found["0-0-0/final"], played.returns.mean(axis=1))


def test_one_setting_is_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = []
    monkeypatch.setattr(
        training, "finite_parameters", lambda state: states.append(state) or np.ones(2, bool)
    )
    config = {**SMALL, "num_epochs": 1, "num_minibatches": 1}
    given = {"algorithm": "ppo", "config": config, "over": ("learning_rate=1e-2",)}
    assert sweep(options(tmp_path / "one", **given))[0] == 0
    env = triglot.make_env(ENV)
    hyper = {"learning_rate": 1e-2}
    agent = triglot.make_agent("ppo", env, backend="table", config=config, hyper=hyper)
    result = triglot.train(
        agent, env, key=jax.random.key(0), total_steps=16 * STEPS_PER_UPDATE, num_seeds=2
    )
    assert_equal(states[0].agent, result.runner_state.agent)
    learning = Learning.empty(2, 16)
    learning.add(0, result.metrics)
    np.testing.assert_array_equal(arrays(tmp_path / "one")["0-0-0/returns"], learning.returns)


def assert_equal(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_settings_share_their_seeds_and_differ(whole: Path) -> None:
    episodes = arrays(whole)["0-0-0/returns"].reshape(4, 2, 16)
    np.testing.assert_array_equal(episodes[0, :, 0], episodes[3, :, 0])
    assert not np.array_equal(episodes[0], episodes[3])


def test_the_tables_have_each_training_and_each_setting(whole: Path) -> None:
    rows = read(whole / "results.csv")
    assert [(row["setting"], row["seed"]) for row in rows] == [
        (str(setting), str(seed)) for setting in range(1, 5) for seed in range(2)
    ]
    assert [(float(row["learning_rate"]), float(row["epsilon"])) for row in rows[::2]] == SETTINGS
    assert {row["status"] for row in rows} == {"finished"}
    assert {row["steps"] for row in rows} == {str(16 * STEPS_PER_UPDATE)}
    final = arrays(whole)["0-0-0/final"]
    np.testing.assert_array_equal([float(row["return"]) for row in rows], final)
    ranking = read(whole / "ranking.csv")
    assert [row["rank"] for row in ranking] == ["1", "2", "3", "4"]
    best = final.reshape(4, 2).mean(axis=1)
    assert [float(row["return"]) for row in ranking] == sorted(best, reverse=True)
    assert {row["return_low"] for row in ranking} == {""}, "two seeds give no interval"


def test_the_best_setting_is_written_whole(whole: Path) -> None:
    best = tomllib.loads((whole / "best.toml").read_text())
    result = json.loads((whole / "sweep.json").read_text())
    assert best["hyper"].items() >= result["settings"][0]["values"].items()
    assert best["config"].items() >= SMALL.items()
    assert (best["algorithm"], best["env"], best["num_seeds"]) == ("q_learning", ENV, 2)
    assert "optimizer" not in best, "None, which TOML cannot state, is the default"
    words = ["train", "--config", str(whole / "best.toml")]
    read_back = cli._parse_with_algorithm(words)
    given = options(whole)
    chosen = train_options(given, result["settings"][0]["values"], algorithms_of(given))
    assert (read_back.env, read_back.total_steps) == (chosen.env, chosen.total_steps)
    for table in ("config", "hyper"):
        assert overrides_of(getattr(read_back, table)).items() <= getattr(chosen, table).items()


def test_a_finished_sweep_is_not_run_again(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training.Runner, "run", lambda *given: pytest.fail("it was run again"))
    code, result = sweep(options(whole))
    assert code == 0 and result is not None


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the sweep in two batches, with successive halving."""
    out = tmp_path_factory.mktemp("sweep") / "halves"
    assert sweep(in_batches(out))[0] == 0
    return out


def in_batches(out: Path) -> SweepCommandOptions:
    return options(out, batch=4, halving=True, checkpoint_seconds=1e-6)


def test_halving_stops_the_worse_settings(halves: Path) -> None:
    found = arrays(halves)
    assert {name.partition("/")[0] for name in found} == {"0-0-0", "0-0-1", "1-0-0", "2-0-0"}
    scores = np.concatenate([found["0-0-0/recent"], found["0-0-1/recent"]]).reshape(4, 2).mean(1)
    best = sorted(sorted(range(4), key=lambda n: (-scores[n], n))[:2])
    result = json.loads((halves / "sweep.json").read_text())
    steps = {one["setting"] - 1: one["steps"] for one in result["settings"]}
    assert {n for n in steps if steps[n] == 4 * STEPS_PER_UPDATE} == set(range(4)) - set(best)
    assert sorted(steps.values()) == [STEPS_PER_UPDATE * n for n in (4, 4, 8, 16)]
    assert [one["status"] for one in result["settings"]] == ["finished", *["stopped"] * 3]
    assert not list(halves.glob("jobs/*/state")), "states are dropped when they were used"


def test_halving_continues_the_states_of_those_it_keeps(halves: Path) -> None:
    kept = json.loads((halves / "sweep.json").read_text())["settings"][:2]
    first, second = sorted(one["setting"] - 1 for one in kept)
    (one, some), (other, more) = (continued(begun(pair), 0, 4) for pair in ([0, 1], [2, 3]))
    rows = np.array([2 * first, 2 * first + 1, 2 * second, 2 * second + 1])
    state = jax.tree.map(lambda *parts: jnp.concatenate(parts)[rows], one, other)
    sums = (
        np.concatenate([getattr(some, name), getattr(more, name)])[rows]
        for name in ("returns", "episodes")
    )
    _, learning = continued((state, Learning(16, *sums)), 4, 8)
    found = arrays(halves)
    np.testing.assert_array_equal(found["1-0-0/returns"], learning.returns)
    np.testing.assert_array_equal(found["1-0-0/episodes"], learning.episodes)
    assert len(np.unique(learning.episodes[:, 4:8], axis=0)) > 1, "or rows could be exchanged"


KILLS = {
    "the second batch": (Learning, "add", 5),
    "its last checkpoint": (checkpoint, "save", 9),
    "the results of a rung": (training, "save_file", 1),
    "the report": (report, "write", 0),
}


@pytest.mark.covering(2)
@pytest.mark.parametrize("place", KILLS)
def test_a_killed_sweep_continues_bit_for_bit(
    place: str, halves: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "killed"
    with killed(monkeypatch, *KILLS[place]):
        sweep(in_batches(out))
    before = written(out)
    assert sweep(in_batches(out))[0] == 0
    assert_equal(arrays(out), arrays(halves))
    assert before.items() <= written(out).items(), "what is done is not run again"
    assert not list(out.glob("jobs/.*"))


def written(out: Path) -> dict[str, int]:
    files = out.glob("jobs/[!.]*/*.safetensors")
    return {path.parent.name: path.stat().st_mtime_ns for path in files}


@contextmanager
def interrupting(monkeypatch: pytest.MonkeyPatch, call: int) -> Iterator[None]:
    """Send SIGINT after a chunk."""
    original, calls = Learning.add, iter(range(1000))

    def add(learning: Learning, *given: Any) -> None:
        original(learning, *given)
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Learning, "add", add)
        yield


def test_an_interruption_says_how_to_continue(
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "interrupted"
    with interrupting(monkeypatch, 0):
        code, result = sweep(options(out))
    assert (code, result) == (130, None)
    error = capsys.readouterr().err
    assert "stopping after this chunk" in error
    said = "0 of 1 batches are done and kept, and 1 more has a checkpoint. Continue by:"
    assert said in " ".join(error.split())
    words = shlex.split(error.splitlines()[-1])
    assert words[:2] == ["triglot", "sweep"] and words[words.index("--out") + 1] == str(out)
    assert cli.main(words[1:]) == 0
    assert_equal(arrays(out), arrays(whole))


def test_an_interrupted_report_is_written_by_the_command_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(report, "write", lambda *given: os.kill(os.getpid(), signal.SIGINT))
        assert sweep(options(out)) == (130, None)
    said, _, command = capsys.readouterr().err.rstrip().rpartition("\n")
    assert said.endswith("Stopped: 1 of 1 batches are done and kept. Continue by:")
    assert cli.main(shlex.split(command)[1:]) == 0 and (out / "sweep.json").exists()


def test_a_damaged_checkpoint_begins_its_batch_again(
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "damaged"
    with interrupting(monkeypatch, 0):
        sweep(options(out))
    for path in out.glob("jobs/.*/checkpoints/*/manifest.json"):
        path.write_text("{}")
    assert sweep(options(out))[0] == 0
    assert "This batch starts again" in capsys.readouterr().out
    assert_equal(arrays(out), arrays(whole))


def test_the_folder_keeps_the_sizes_of_its_batches(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triglot.sweep.run.capacities", lambda plan: [2])
    ledger = Ledger(whole, json.loads((whole / "jobs.json").read_text())["facts"])
    assert ledger.facts["sizes"][0] > 100, "all fitted when it was begun"
    assert sweep(options(whole))[0] == 0


def test_another_sweep_needs_another_folder(whole: Path) -> None:
    with pytest.raises(
        TriglotError, match="holds a sweep with num_seeds 2, and this command has 3"
    ):
        sweep(options(whole, num_seeds=3))
    sweep(options(whole, checkpoint_seconds=5.0))


def test_values_that_change_shapes_are_programs_of_their_own(tmp_path: Path) -> None:
    over = ("num_envs=2,4", "learning_rate=0.1,0.5")
    code, result = sweep(options(tmp_path / "out", over=over, num_seeds=1))
    assert code == 0 and result is not None
    assert {name.partition("/")[0] for name in arrays(tmp_path / "out")} == {
        f"0-{group}-0" for group in range(2)
    }
    steps = {(one["values"]["num_envs"], one["steps"]) for one in result["settings"]}
    assert steps == {(2, 128), (4, 128)}


def test_a_setting_that_diverges_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diverged = np.array([True] * 2 + [False] * 2)
    monkeypatch.setattr(training, "finite_parameters", lambda state: diverged)
    code, result = sweep(options(tmp_path / "out", over=OVER[:1]))
    assert code == 0 and result is not None
    assert [one["num_diverged"] for one in result["settings"]] == [0, 2]
    rows = read(tmp_path / "out" / "results.csv")
    assert [row["status"] for row in rows] == ["finished"] * 2 + ["diverged"] * 2
    assert [row["return"] == "" for row in rows] == [False, False, True, True]


def test_parameters_that_are_not_finite_are_found() -> None:
    trainer = trainer_by_hand()
    state = init_seeds(trainer, jax.random.split(jax.random.key(0), 3), trainer.agent.hyper)
    assert training.finite_parameters(state).tolist() == [True, True, True]
    params = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), state.agent.learner.variables)
    learner = replace(state.agent.learner, variables=params)
    state = replace(state, agent=replace(state.agent, learner=learner))
    assert training.finite_parameters(state).tolist() == [True, False, True]
