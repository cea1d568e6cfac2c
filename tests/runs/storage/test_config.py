"""`config.json`: a round trip of all options, older schemas, and what reading it imports."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import triglot
from triglot.algorithms.ppo import PPOConfig, PPOHyperparams
from triglot.compare.options import CompareOptions
from triglot.core.errors import TriglotError
from triglot.runs.options import TrainOptions
from triglot.runs.plan import prepare
from triglot.runs.registry.overrides import from_overrides
from triglot.runs.storage.config import FIELDS, options_of_run, write_config
from triglot.runs.train import train
from triglot.shared.machine.files import plain

OPTIONS = TrainOptions(
    algorithm="ppo",
    env="probe:two-step",
    num_seeds=2,
    seed=3,
    total_steps=64,
    eval_episodes=0,
    optimizer="lion",
    backend="table",
    arithmetic="native",
    network=("actor=my_file:actor", "critic=my_file:critic"),
    checkpoint_seconds=1.5,
    log=("tensorboard", "wandb"),
    wandb=("group=seeds",),
    debug=("nans",),
    config=PPOConfig(num_envs=2, rollout_length=8, num_minibatches=1, hidden_sizes=(8, 4)),
    hyper=PPOHyperparams(learning_rate=1e-3, value_clip_range=float("inf")),
)


def write(folder: Path, options: TrainOptions = OPTIONS) -> dict[str, Any]:
    facts = {"num_updates": 4, "steps_per_update": 16, "num_steps": 64}
    write_config(folder, options, ["train"], facts)
    return json.loads((folder / "config.json").read_text(), parse_constant=pytest.fail)


def test_every_option_survives_a_round_trip(tmp_path: Path) -> None:
    assert write(tmp_path)["schema"] == 2
    assert options_of_run(tmp_path, trust=True) == OPTIONS


def test_the_recorded_command_is_not_read_back(tmp_path: Path) -> None:
    content = write(tmp_path) | {"command": "triglot train dqn gymnax:CartPole-v1 --seed 9"}
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert options_of_run(tmp_path, trust=True) == OPTIONS


def test_a_comparison_sends_its_options_to_the_workers_as_json() -> None:
    options = CompareOptions(
        algorithm="ppo",
        env="probe:two-step",
        backends=("haiku", "nnx"),
        out=Path("here"),
        config={"hidden_sizes": [8]},
        hyper={"learning_rate": 1e-3},
    )
    assert from_overrides(CompareOptions, json.loads(json.dumps(plain(vars(options))))) == options


WRONG = dict.fromkeys(FIELDS, "1") | {"num_seeds": "2"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"schema": 1}, "has schema 1, and this version of triglot reads schema 2"),
        ({"schema": 1, "versions": {"triglot": "0.2.0"}}, "use triglot 0.2.0, which wrote it"),
        ({"schema": "new"}, "has schema new"),
        ({"command": ""}, "has schema 0"),
        ({"schema": 2}, "config.json is damaged: it has no .*algorithm, env"),
        ({"schema": 2, "command": "", **WRONG}, "its num_seeds must be .*'2'"),
        ({"anything": 1}, "is not a triglot run directory: it has no valid config.json"),
        ([1], "is not a triglot run directory: .*config.json is damaged: it holds"),
    ],
)
def test_other_files_are_refused_in_one_sentence(tmp_path: Path, content: Any, says: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(TriglotError, match=says) as error:
        options_of_run(tmp_path, trust=True)
    assert "\n" not in str(error.value)
    with pytest.raises(TriglotError, match=r"config\.json is a file: give the folder of a run"):
        options_of_run(tmp_path / "config.json", trust=True)


def test_a_field_that_the_algorithm_lacks_is_refused(tmp_path: Path) -> None:
    content = write(tmp_path)
    content["config"]["num_env"] = 4
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(TriglotError, match="unknown field 'num_env' of PPOConfig"):
        options_of_run(tmp_path, trust=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train two updates."""
    out = tmp_path_factory.mktemp("runs") / "run"
    options = TrainOptions(
        algorithm="q_learning",
        env="gridworld:2x2",
        backend="table",
        total_steps=16,
        eval_episodes=0,
        out=out,
        config={"num_envs": 1, "rollout_length": 8},
    )
    assert train(options, started=0.0, arguments=["train"]) == 0
    return out


@pytest.mark.slow
def test_loading_a_run_imports_no_command_line(run: Path) -> None:
    program = f"""
import sys, triglot
found = triglot.load_run({str(run)!r})
assert found.num_updates == 2
print([name for name in sys.modules if name.startswith("triglot.cli")])
"""
    environment = os.environ | {"PYTHONPATH": str(Path(triglot.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_optimizer_reaches_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(
        "triglot.runs.plan.build_agent",
        lambda *parts, **options: given.append(options) or 1 / 0,
    )
    with pytest.raises(ZeroDivisionError):
        prepare(replace(OPTIONS, network=(), log=(), wandb=(), out=tmp_path / "run"))
    assert given[0]["optimizer"] == "lion"
