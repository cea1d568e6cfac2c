"""`triglot resume --backend` between every ordered pair of libraries."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triglot
from tests.covering import pairwise
from tests.extras import TORCH
from triglot.cli import main as cli
from triglot.core.types import by_path
from triglot.runs.identity import codec_of, learned
from triglot.runs.storage.config import read_config

LIBRARIES = ("haiku", "linen", "nnx", "equinox")
PAIRS = [
    *itertools.permutations(LIBRARIES, 2),
    *((torch, "linen") for torch in TORCH),
    *(("equinox", torch) for torch in TORCH),
]
SMALL = "--hidden-sizes 5 --eval-episodes 0 --num-seeds 2 --checkpoint-seconds 0"
REPLAY = "--buffer-size 64 --learning-starts 8 --batch-size 4 --num-envs 2"
# The schedule of the first part is that of the whole.
PPO = (
    "train ppo probe:two-step --num-envs 2 --rollout-length 4 --num-minibatches 2 "
    "--learning-rate=linear(2.5e-4,0,32)"
)
COMMANDS = {
    "ppo": PPO,
    "dqn": f"train dqn probe:two-step --rollout-length 4 {REPLAY}",
    "sac": f"train sac probe:reach --rollout-length 4 {REPLAY}",
    "lstm": f"{PPO} --cell lstm --cell-size 3",
    "gru": f"{PPO} --cell gru --cell-size 3",
}
STEPS_PER_UPDATE, FIRST, WHOLE = 8, 2, 4
RESETS_BEFORE = "haiku"  # its GRU resets before the recurrent product, the others' after it


class Trainings:
    """Trains each algorithm once in each library and arithmetic."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def first(self, name: str, arithmetic: str, library: str) -> Path:
        return self._trained(name, arithmetic, library, FIRST)

    def whole(self, name: str, arithmetic: str, library: str) -> Path:
        return self._trained(name, arithmetic, library, WHOLE)

    def _trained(self, name: str, arithmetic: str, library: str, updates: int) -> Path:
        out = self._folder / f"{name}-{arithmetic}-{library}-{updates}"
        if not out.exists():
            words = f"{COMMANDS[name]} {SMALL} --arithmetic {arithmetic} --backend {library}"
            steps = str(updates * STEPS_PER_UPDATE)
            assert cli.main([*words.split(), "--total-steps", steps, "--out", str(out)]) == 0
        return out


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the plots, half of the time of these commands."""
    monkeypatch.setattr("triglot.runs.train._draw", lambda *given: None)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    return Trainings(tmp_path_factory.mktemp("runs"))


def resumed(folder: Path, library: str, out: Path, *more: str) -> Path:
    shutil.copytree(folder, out)
    assert cli.main(["resume", str(out), "--backend", library, *more]) == 0
    return out


def to_the_end(folder: Path, library: str, out: Path) -> Path:
    return resumed(folder, library, out, "--total-steps", str(WHOLE * STEPS_PER_UPDATE))


def numbers(folder: Path) -> dict[str, np.ndarray]:
    """Read all numbers of the agent's states, by path."""
    states: Any = triglot.load_run(folder).agent_states
    return {path: np.asarray(leaf) for path, leaf in by_path(states).items()}


def weights(folder: Path) -> dict[str, np.ndarray]:
    """Read the parameters of all seeds by canonical name, in canonical layout."""
    run = triglot.load_run(folder)
    named = codec_of(run.agent.network).encode(learned(run.agent_states).params)
    return {name: np.asarray(array) for name, array in named.items()}


@pytest.mark.covering(20)
@pytest.mark.parametrize(
    ("name", "source", "target"),
    pairwise((name, *pair) for name in ("ppo", "dqn", "sac") for pair in PAIRS),
)
def test_a_canonical_run_continued_on_another_library_is_the_undisturbed_run(
    name: str, source: str, target: str, trainings: Trainings, tmp_path: Path
) -> None:
    whole = trainings.whole(name, "canonical", source)
    moved = to_the_end(trainings.first(name, "canonical", source), target, tmp_path / "run")
    expected, found = numbers(whole), numbers(moved)
    assert expected.keys() == found.keys() and triglot.load_run(moved).num_updates == WHOLE
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)
    assert (whole / "metrics.jsonl").read_text() == (moved / "metrics.jsonl").read_text()
    assert read_config(moved)["backend"] == target


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_native_run_keeps_its_weights_on_another_library(
    source: str,
    target: str,
    trainings: Trainings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = trainings.first("ppo", "native", source)
    monkeypatch.setattr("triglot.runs.train._train_in_chunks", None)  # nothing is left to train
    moved = resumed(first, target, tmp_path / "run")
    expected, found = weights(first), weights(moved)
    assert expected.keys() == found.keys()
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)


ROUNDED = [
    *((name, "native") for name in ("ppo", "dqn", "sac", "lstm", "gru")),
    *((name, "canonical") for name in ("lstm", "gru")),  # their cells are the libraries' own
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arithmetic", "source", "target"),
    pairwise((*run, *pair) for run in ROUNDED for pair in PAIRS),
)
def test_a_run_continued_on_another_library_differs_by_rounding(
    name: str,
    arithmetic: str,
    source: str,
    target: str,
    trainings: Trainings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = trainings.first(name, arithmetic, source)
    if name == "gru" and (source == RESETS_BEFORE) != (target == RESETS_BEFORE):
        out = shutil.copytree(first, tmp_path / "run")
        assert cli.main(["resume", str(out), "--backend", target]) == 2
        error = capsys.readouterr().err
        assert "They compute different functions, so no weights make them equal." in error
        assert "reset gate before" in error and "reset gate after" in error
        return
    expected = weights(trainings.whole(name, arithmetic, source))
    found = weights(to_the_end(first, target, tmp_path / "run"))
    assert expected.keys() == found.keys()
    for path, array in expected.items():
        np.testing.assert_allclose(found[path], array, rtol=0, atol=1e-5, err_msg=path)
