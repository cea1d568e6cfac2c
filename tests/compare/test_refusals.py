"""What a comparison refuses before anything starts, and how its command is written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triglot.compare.compare import command, compare
from triglot.compare.training.train import snapshot_updates
from triglot.core.errors import MissingExtra, TriglotError
from triglot.runs.jobs import local

from .in_process import OPTIONS, no_process


def test_another_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(TriglotError, match="is not empty"):
        compare(replace(OPTIONS, out=tmp_path))


def test_the_command_can_be_typed_again() -> None:
    options = replace(OPTIONS, ladder=True, envs=("probe:reach",), margin=2.0)
    words = command(options).split()
    assert words[:4] == ["triglot", "compare", "ppo", "probe:two-step"]
    assert "--ladder" in words and words[words.index("--envs") + 1] == "probe:reach"
    assert words[words.index("--margin") + 1] == "2.0"
    assert "--open" not in words and "--network" not in words


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backends": ("haiku", "linnen")}, "did you mean 'linen'"),
        ({"backends": ("haiku",)}, "at least two backends"),
        ({"backends": ("haiku", "haiku")}, "each named once; got haiku haiku"),
        ({"algorithm": "pppo"}, "did you mean 'ppo'"),
        ({"env": "probe:two-stop"}, "did you mean 'two-step'"),
        ({"envs": ("probe:two-step",)}, "each environment is given once"),
        ({"arithmetic": "canonicle"}, "did you mean 'canonical'"),
        ({"num_seeds": 0}, "num_seeds must be at least 1, got 0"),
        ({"total_steps": 0}, "total_steps must be at least 1"),
        ({"eval_episodes": 0}, "eval_episodes must be at least 1"),
        ({"repetitions": -1}, "repetitions must be at least 0, got -1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"margin": 0.0}, "margin must be a positive return, got 0.0"),
        ({"fail_on": "diferent"}, "did you mean 'different'"),
        ({"mapping": Path("names.json")}, "--mapping has no effect"),
        ({"against": Path("missing.json")}, "missing.json: No such file"),
        ({"config": {"num_env": 4}}, "did you mean 'num_envs'"),
        (
            {"config": {"cell": "gru"}, "backends": ("haiku", "linen", "equinox")},
            r"actor/cell/recurrent/n/bias.*: --backends linen equinox\.",
        ),
        ({"hyper": {"learn_rate": 1.0}}, "did you mean 'learning_rate'"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_starts(
    change: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "JobProcess", no_process)
    with pytest.raises(TriglotError, match=message):
        compare(replace(OPTIONS, out=tmp_path / "out", **change))
    assert not (tmp_path / "out").exists()


def test_a_missing_library_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs flax, .*'triglot\[flax\]'"):
        compare(replace(OPTIONS, out=tmp_path / "out", backends=("linen", "nnx")))


@pytest.mark.parametrize(("num_updates", "limit"), [(1, 40), (2, 3), (1000, 1), (1000, 40)])
def test_snapshots_end_with_the_last_update(num_updates: int, limit: int) -> None:
    updates = snapshot_updates(num_updates, limit)
    assert updates[0] == 1 and updates[-1] == num_updates
    assert updates == sorted(set(updates)) and len(updates) <= max(limit, 3)
