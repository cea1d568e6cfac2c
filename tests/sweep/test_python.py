"""`triglot.sweep.sweep`: the sweep of the command line, from Python."""

import csv
import inspect
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triglot
from tests.sweep import small
from triglot.core.errors import TriglotError
from triglot.core.rl.optimizers import OPTIMIZERS
from triglot.runs.registry.algorithms import find_algorithm
from triglot.sweep import python, run, sweep
from triglot.sweep.axes import Choices, parse_axes
from triglot.sweep.learning import Learning
from triglot.sweep.options import SweepCommandOptions, SweepOptions

pytestmark = pytest.mark.packaging

OVER: dict[str, Any] = {"learning_rate": [0.1, 0.5], "epsilon": np.array([0.3, 0.9])}


def given(out: Path, **changes: Any) -> dict[str, Any]:
    """Give the arguments of the sweep of `small.options`."""
    chosen = small.options(out)
    options = SweepOptions(
        num_seeds=chosen.num_seeds,
        total_steps=chosen.total_steps,
        eval_episodes=chosen.eval_episodes,
        backend=chosen.backend,
        out=out,
    )
    return {"over": OVER, "verbose": False, "options": options, "config": chosen.config} | changes


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> python.SweepResult:
    out = tmp_path_factory.mktemp("sweep") / "python"
    return sweep(triglot.QLearning, small.ENV, **given(out))


def test_it_is_the_sweep_of_the_command(result: python.SweepResult, tmp_path: Path) -> None:
    assert run.sweep(small.options(tmp_path / "command"))[0] == 0
    one, other = small.arrays(result.folder), small.arrays(tmp_path / "command")
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


def test_the_rows_are_those_of_the_table(result: python.SweepResult) -> None:
    with (result.folder / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(result.rows) == 8
    np.testing.assert_equal(python._rows(result.ranking[::-1]), result.rows)
    for text, row in zip(table, result.rows, strict=True):
        assert list(text) == list(row)
        for name, value in row.items():
            missing = isinstance(value, float) and np.isnan(value)
            assert text[name] == ("" if missing else value) or float(text[name]) == value, name


def test_the_best_setting_is_the_first(result: python.SweepResult) -> None:
    first = result.ranking[0]
    means = [np.mean(one["returns"]) for one in result.ranking]
    assert first["rank"] == 1 and means == sorted(means, reverse=True)
    best = result.best()
    assert best.hyper == first["values"]
    assert best == result.best(small.ENV) and best.config == small.SMALL
    env = triglot.make_env(best.env)
    agent = triglot.make_agent(best.algorithm, env, backend=best.backend, hyper=best.hyper)
    assert agent.hyper.learning_rate == best.hyper["learning_rate"]
    with pytest.raises(TriglotError, match="has no environment 'maze': it has gridworld"):
        result.best("maze")


def test_it_prints_what_the_command_prints(
    result: python.SweepResult, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep("q_learning", small.ENV, **given(result.folder))
    assert capsys.readouterr().out == ""
    sweep("q_learning", small.ENV, **given(result.folder, verbose=True))
    assert "best: learning_rate=" in capsys.readouterr().out


def test_an_interruption_is_raised_and_continued(
    result: python.SweepResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Learning.add

    def interrupt(learning: Learning, *args: Any) -> None:
        add(learning, *args)
        os.kill(os.getpid(), signal.SIGINT)

    arguments = given(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(Learning, "add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            sweep("q_learning", small.ENV, **arguments)
    rows = sweep("q_learning", small.ENV, **arguments).rows
    np.testing.assert_equal(rows, result.rows)


VALUES: dict[str, list[Any]] = {
    "learning_rate": [1.23456789e-4, np.float64(0.1), 1],
    "value_clip_range": [None, 100.0, float("inf")],
    "num_envs": [8, np.int64(16)],
    "hidden_sizes": [(64, 64), [256], None],
    "clip_value": [True, False],
    "algorithm": [triglot.PPO, "dqn"],
    "env": ["a:b,c=1,d=2", "e:f"],
    "optimizer": [OPTIMIZERS["lion"], "sgd"],
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_written_without_loss(name: str) -> None:
    (text,) = python._texts({name: VALUES[name]})
    (axis,) = parse_axes([text], {"ppo": find_algorithm("ppo")})
    lists = [tuple(one) if isinstance(one, list) else one for one in VALUES[name]]
    names = {triglot.PPO: "ppo", OPTIMIZERS["lion"]: "triglot.core.rl.optimizers:lion"}
    wanted = tuple(names.get(one, one) if callable(one) else one for one in lists)
    assert axis == Choices(name, wanted)


def test_a_range_is_a_text() -> None:
    over = {"learning_rate": "log:1e-5..1e-2"}
    assert list(python._texts(over)) == ["learning_rate=log:1e-5..1e-2"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a text": ({"over": "learning_rate=1"}, "over must be a dictionary from a name to its values"),
    "a number": ({"over": {"learning_rate": 0.1}}, "must be a list of values, or a range"),
    "no values": ({"over": {"learning_rate": []}}, "has no values"),
    "an unknown name": ({"over": {"learning_rte": [1]}}, "did you mean 'learning_rate'"),
    "a lambda": ({"optimizer": lambda hyper: None}, "optimizer .* at the top level of a module"),
    "a local class": ({"network": type("Net", (), {})}, "network .* at the top level of a module"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_arguments_are_explained(case: str, tmp_path: Path) -> None:
    changes, says = REFUSED[case]
    with pytest.raises(TriglotError, match=says):
        sweep("q_learning", small.ENV, **given(tmp_path / "out", **changes))
    assert not (tmp_path / "out").exists()


def test_every_option_of_the_command_has_an_argument() -> None:
    command_line = {"open", "compilation_cache", "no_compilation_cache", "no_preset", "preset"}
    command = set(SweepCommandOptions.__dataclass_fields__) - command_line
    shared = set(SweepOptions.__dataclass_fields__)
    own = set(inspect.signature(sweep).parameters) - {"verbose", "options"}
    assert own | shared == command and own.isdisjoint(shared)


def test_a_call_without_options_has_the_defaults_of_the_command() -> None:
    command = SweepCommandOptions(algorithm="ppo", env="gridworld:3x3")
    for name, value in vars(SweepOptions()).items():
        assert getattr(command, name) == value, name
