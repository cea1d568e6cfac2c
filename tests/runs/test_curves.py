"""`triglot curves`: several runs in one picture."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triglot.cli import main as cli
from triglot.runs.plots import learning_curves as plots
from triglot.runs.plots.learning_curves import Curve, learning_curves
from triglot.runs.storage.config import FIELDS, SCHEMA
from triglot.shared.statistics.curves import finite_mean, mean_and_interval


def write_run(
    folder: Path,
    *,
    backend: str = "linen",
    algorithm: str = "ppo",
    env: str = "probe:two-step",
    num_seeds: int = 2,
    arithmetic: str | None = None,
    config: dict[str, Any] | None = None,
    hyper: dict[str, Any] | None = None,
) -> Path:
    """Write what a training of ten updates leaves; its return is the number of the update."""
    folder.mkdir(parents=True)
    described = {
        **{field: None for field, kind in FIELDS.items() if not kind.optional},
        "schema": SCHEMA,
        "optimizer": None,
        "algorithm": algorithm,
        "env": env,
        "backend": backend,
        "network": [],
        "arithmetic": arithmetic,
        "config": {"num_envs": 4, "hidden_sizes": None, **(config or {})},
        "hyper": {"discount": 0.99, "learning_rate": "linear(1, 0, 10 updates)", **(hyper or {})},
        "num_updates": 10,
        "steps_per_update": 16,
        "num_steps": 160,
        "num_seeds": num_seeds,
    }
    (folder / "config.json").write_text(json.dumps(described))
    lines = [
        {
            "update": n,
            "env_steps": 16 * n,
            "episode_return": [float(n)] * num_seeds if n > 1 else [None] * num_seeds,
            "loss": ["inf"] * num_seeds,
        }
        for n in range(1, 11)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Curve]:
    """Note what is drawn, and draw it."""
    seen: dict[str, Curve] = {}

    def note(path: Path, curves: dict[str, Curve], **options: object) -> None:
        seen.update(curves)
        learning_curves(path, curves, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(plots, "learning_curves", note)
    return seen


def test_runs_are_called_by_what_they_differ_in(tmp_path: Path, drawn: dict[str, Curve]) -> None:
    runs = [write_run(tmp_path / name, backend=name) for name in ("haiku", "linen")]
    out = tmp_path / "both.png"
    assert cli.main(["curves", *map(str, runs), "--out", str(out)]) == 0
    assert list(drawn) == ["haiku", "linen"]
    np.testing.assert_array_equal(drawn["haiku"].env_steps, np.arange(16, 161, 16))
    expected = np.array([[np.nan, *range(2, 11)]] * 2, np.float32)
    np.testing.assert_array_equal(drawn["linen"].values, expected)
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.covering(3)
@pytest.mark.parametrize(
    ("runs", "labels"),
    [
        ([{}, {"config": {"num_envs": 16}}], ["num_envs 4", "num_envs 16"]),
        (
            [{"backend": "haiku"}, {"config": {"hidden_sizes": [8, 8]}}],
            ["haiku, hidden_sizes None", "linen, hidden_sizes 8 8"],
        ),
        (
            [{}, {"hyper": {"learning_rate": 0.5}}],
            ["learning_rate linear(1, 0)", "learning_rate 0.5"],
        ),
        ([{}, {"arithmetic": "native"}], ["arithmetic default", "arithmetic native"]),
        ([{}, {"algorithm": "dqn", "config": {"num_envs": 16}}], ["ppo", "dqn"]),
        ([{}, {"config": {"hidden_sizes": [8] * 40}}], ["run0", "run1"]),
    ],
)
def test_a_label_hides_no_difference(
    runs: list[dict[str, Any]], labels: list[str], tmp_path: Path, drawn: dict[str, Curve]
) -> None:
    folders = [write_run(tmp_path / f"run{n}", **run) for n, run in enumerate(runs)]
    assert cli.main(["curves", *map(str, folders), "--out", str(tmp_path / "both.png")]) == 0
    assert list(drawn) == labels


def test_equal_runs_are_called_by_their_folders(
    tmp_path: Path, drawn: dict[str, Curve], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(write_run(tmp_path / name, num_seeds=n)) for name, n in (("a", 1), ("b", 5))]
    assert cli.main(["curves", *runs, "--out", str(tmp_path / "x.png"), "--smooth", "3"]) == 0
    assert list(drawn) == ["a", "b"]
    assert "a: 10, last 5% of updates, 160 steps" in capsys.readouterr().out
    labelled = ["--labels", "x", "y", "--metric", "loss", "--out", str(tmp_path / "y.png")]
    assert cli.main(["curves", *runs, *labelled]) == 0
    assert list(drawn)[2:] == ["x", "y"]


@pytest.mark.parametrize(
    "options, says",
    [
        ("a --metric episode_retrun", "did you mean 'episode_return'"),
        ("a other", "different environments (gymnax:Catch-bsuite, probe:two-step)"),
        ("a --smooth 0", "smooth must be at least 1"),
        ("a --labels x y", "give 1 labels, one per run, or none; got 2"),
        ("a a --labels x x", "labels must be unique"),
        ("a --out a.jpg", "must end in .png"),
        ("a --out nowhere/a.png", "nowhere/a.png cannot be written: No such file or directory"),
        ("b", "b is not a triglot run directory"),
        ("c", "c has no metrics"),
        ("", "give the folders of the runs"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    options: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a")
    write_run(tmp_path / "c")
    write_run(tmp_path / "other", env="gymnax:Catch-bsuite")
    (tmp_path / "c" / "metrics.jsonl").write_text('{"update": 1, "env_')
    assert cli.main(["curves", *options.split()]) == 2
    printed = capsys.readouterr()
    assert says in printed.err and printed.err.count("\n") == 1 and not printed.out
    assert not (tmp_path / "curves.png").exists()


def test_the_band_is_the_interval_of_the_mean() -> None:
    values = np.array([[1.0, 2.0], [2.0, np.nan], [3.0, 2.0], [4.0, 2.0], [5.0, 2.0]])
    mean, low, high = mean_and_interval(values)
    np.testing.assert_allclose([mean[0], low[0], high[0]], [3.0, 1.037, 4.963], atol=1e-3)
    assert mean[1] == 2 and np.isnan(low[1]) and np.isnan(high[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_means_of_the_largest_numbers_do_not_overflow(dtype: type) -> None:
    largest = np.finfo(dtype).max
    values = np.full((6, 400), largest, dtype)
    np.testing.assert_allclose(finite_mean(values), largest, rtol=1e-6)
    signs = np.where(np.arange(400) % 2, -1, 1).astype(dtype)
    np.testing.assert_allclose(finite_mean(values * signs) / largest, 0.0, atol=1e-6)


def test_curves_of_the_largest_returns_are_drawn(tmp_path: Path) -> None:
    largest = float(np.finfo(np.float32).max)
    values = np.linspace(-largest, largest, 400, dtype=np.float64).astype(np.float32)
    learning_curves(
        tmp_path / "c.png", {"a": Curve(np.arange(400), np.stack([values] * 6))}, title="large"
    )
    assert (tmp_path / "c.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("returns", "name"),
    [
        ([[1.0, np.nan, 1.0]], "episode_length"),
        ([[1.0, np.nan, 0.5]], "episode_return"),
        ([[np.nan, np.nan, np.nan]], "episode_return"),
    ],
)
def test_lengths_are_drawn_where_every_return_is_the_same(returns: list, name: str) -> None:
    assert plots.most_informative_metric({"episode_return": np.asarray(returns)}) == name
