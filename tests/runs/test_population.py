"""`triglot train --population`: what a run keeps, and that it is resumed bit for bit."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import triglot
from tests.runs.refused import assert_refused
from triglot.cli import main as cli
from triglot.runs.options import TrainOptions
from triglot.runs.plan import prepare
from triglot.runs.plots.population import lineage
from triglot.runs.population import chosen_seed_index
from triglot.runs.storage.journal import read_metrics

WORDS = "train ppo probe:two-step --num-envs 2 --rollout-length 4 --num-minibatches 2"
TRAIN = [*WORDS.split(), "--hidden-sizes", "4", "--checkpoint-seconds", "0"]
POPULATION = ["--population", "4", "--exploit-every", "3", "--eval-episodes", "2"]
PERTURB = ["--perturb", "learning_rate=log:1e-3..1e-1,entropy_coef"]
UPDATES, STEPS_PER_UPDATE = 8, 8


def run(out: Path, *words: str, updates: int = UPDATES) -> int:
    steps = str(updates * STEPS_PER_UPDATE)
    return cli.main([*TRAIN, "--total-steps", steps, "--out", str(out), *words])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "finished"
    assert run(out, *POPULATION, *PERTURB, "--learning-rate", "1e-3") == 0
    return out


@pytest.mark.slow
def test_a_run_keeps_lineage_and_hyperparameters(finished: Path) -> None:
    _, metrics = read_metrics(finished)
    assert {"parent", "learning_rate", "entropy_coef"} <= metrics.keys()
    own = np.arange(4.0)
    for update in range(UPDATES):
        if (update + 1) % 3:
            np.testing.assert_array_equal(metrics["parent"][:, update], own)
    assert (finished / "population.png").stat().st_size > 0
    summary = json.loads((finished / "summary.json").read_text())
    found, returns = summary["population"], summary["evaluation"]["return_per_seed"]
    assert returns[found["best_member"]] == max(returns) == found["fitness"]
    assert sorted(found["ranking"]) == [0, 1, 2, 3]
    assert found["hyper"].keys() == {"learning_rate", "entropy_coef"}


@pytest.mark.slow
def test_the_best_member_is_the_policy(finished: Path) -> None:
    best = chosen_seed_index(finished, None, 4)
    policy, chosen = triglot.load_policy(finished), triglot.load_policy(finished, best)
    same: Any = jax.tree.map(np.array_equal, policy._acting.arrays, chosen._acting.arrays)
    assert jax.tree.all(same)


@pytest.mark.slow
def test_the_best_member_is_exported(finished: Path, tmp_path: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    best, given = tmp_path / "best", tmp_path / "given"
    words = ["export", str(finished), "--format", "safetensors", "--out"]
    assert cli.main([*words, str(best)]) == 0
    index = str(summary["population"]["best_member"])
    assert cli.main([*words, str(given), "--seed-index", index]) == 0
    (one,), (other,) = (map(load_file, out.glob("*.safetensors")) for out in (best, given))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_run_stopped_between_generations_is_resumed_bit_for_bit(
    finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "first"
    assert run(out, *POPULATION, *PERTURB, "--learning-rate", "1e-3", updates=4) == 0
    steps = str(UPDATES * STEPS_PER_UPDATE)
    assert cli.main(["resume", str(out), "--total-steps", steps]) == 0
    whole, resumed = read_metrics(finished)[1], read_metrics(out)[1]
    for name, values in whole.items():
        np.testing.assert_array_equal(values, resumed[name])
    states = [triglot.load_run(folder).agent_states for folder in (finished, out)]
    jax.tree.map(np.testing.assert_array_equal, *states)


def test_the_plan_knows_what_its_population_perturbs() -> None:
    options = TrainOptions(
        algorithm="ppo",
        env="probe:two-step",
        total_steps=20_480,
        population=4,
        perturb=("learning_rate=log:1e-3..1e-1,entropy_coef",),
        hyper={"learning_rate": 1e-3},
    )
    plan = prepare(options)
    assert plan.population is not None
    assert [each.name for each in plan.population.perturbed] == ["learning_rate", "entropy_coef"]
    assert "can copy better ones and change learning_rate, entropy_coef" in plan.announcement()


def test_a_lineage_follows_copies_backwards() -> None:
    # After update 1, member 0 copies 2; after update 3, member 1 copies 0.
    parents = np.array([[0, 2, 0, 0], [1, 1, 1, 0], [2, 2, 2, 2]])
    assert lineage(parents, 1).tolist() == [2, 2, 0, 0]
    assert lineage(parents, 2).tolist() == [2, 2, 2, 2]


WRONG = {
    "--population 1 --perturb learning_rate": "population must be at least 2, got 1",
    "--population 4": "a population needs hyperparameters to perturb",
    "--perturb learning_rate": "--perturb needs a population",
    "--population 4 --perturb learning_rte": "did you mean 'learning_rate'?",
    "--population 4 --perturb num_epochs": "num_epochs is fixed when the training compiles",
    "--population 4 --perturb discount --exploit-every 0": "exploit_every must be at least 1",
    "--population 4 --perturb discount --exploit-every 9": "at most the updates of the training, 8",
    "--population 4 --perturb discount --num-seeds 3": "leave --num-seeds out, or give 4; got 3",
    "--population 4 --perturb discount --metrics-every 3": "must divide --exploit-every, 20",
    "--population 4 --perturb discount --selection best": "unknown selection 'best'",
    "--population 4 --perturb discount --exploit-fraction 0.7": "at most 0.5, got 0.7",
}


@pytest.mark.parametrize("words", WRONG)
def test_bad_input_is_refused_in_a_sentence(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert_refused(run(out, *words.split()), WRONG[words], out, capsys)
