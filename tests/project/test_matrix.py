"""The matrix of algorithms and libraries: a small one is measured, and differences are shown."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # benchmarks are not installed

from benchmarks import matrix  # noqa: E402
from triglot.runs.identity import Trace  # noqa: E402


def trace(*weights: float) -> Trace:
    """Make a training of one seed whose only parameter is a weight after each update."""
    history = np.array([weights], np.float32)
    marks = history.view(np.uint32)
    return Trace(
        metrics={"loss": history, "fingerprint/w": marks}, params={"w": history[:, -1].copy()}
    )


def test_libraries_are_compared_with_the_largest_group_that_is_equal() -> None:
    traces = {"haiku": trace(1, 2, 4), "linen": trace(1, 3, 5), "nnx": trace(1, 3, 5)}
    rows = matrix.compare_with_largest(traces, 8)
    assert [row["equal"] for row in rows.values()] == [False, True, True]
    assert matrix.where(rows["haiku"]["first"]) == "`w` at update 2"
    assert [matrix.mark(one) for one in (*rows.values(), {})] == ["update 2", "✓", "✓", ""]


def row(**libraries: dict[str, Any]) -> dict[str, Any]:
    return {"settings": {}, "libraries": libraries}


SAME = {"equal": True, "first": None}
OTHER = {"equal": False, "first": {"update": 3, "metric": "loss", "num_differing": 1, "seed": 0}}
ROWS = {"dqn": row(haiku=SAME, linen=SAME), "r2d2": row(haiku=OTHER, linen=SAME, nnx=SAME)}


def test_the_page_says_what_differs() -> None:
    text = matrix.page(ROWS)
    assert "4 of 5 small\ntrainings are bitwise identical" in text
    assert "| `r2d2`    | update 3 |     ✓ |   ✓ |" in text
    assert "- `r2d2`, Haiku: differs first in `loss` at update 3." in text


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_picture_is_the_same_each_time(kind: str, tmp_path: Path) -> None:
    pictures = [tmp_path / f"{index}.{kind}" for index in range(2)]
    for picture in pictures:
        matrix.draw(ROWS, picture)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


@pytest.mark.slow
def test_a_small_matrix_is_measured_and_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"q_learning": matrix.CASES["q_learning"], "dyna_q": matrix.CASES["dyna_q"]}
    monkeypatch.setattr(matrix, "CASES", small)
    monkeypatch.setattr(matrix.Case, "backends", lambda case: ("equinox", "table"))
    monkeypatch.setattr(matrix, "MORE", ("jax",))
    out, page, picture = (tmp_path / name for name in ("a/m.json", "a/m.md", "a/m.svg"))
    where = {"out": out, "page_path": page, "picture": picture, "num_updates": 3}
    with pytest.raises(SystemExit, match="dyna_q"):
        matrix.main(**where, only=("q_learning",))
    measured = json.loads(out.read_text())["algorithms"]["q_learning"]
    assert all(library["equal"] for library in measured["libraries"].values())
    calls: list[str] = []
    monkeypatch.setattr(matrix, "measure", lambda name, *_: calls.append(name) or measured)
    matrix.main(**where, resume=True)
    assert calls == ["dyna_q"]
    assert "`q_learning`" in page.read_text() and picture.stat().st_size > 1000
    matrix.main(**where)
    assert calls == ["dyna_q", "q_learning", "dyna_q"]


def test_a_part_of_the_matrix_does_not_overwrite_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "CASES", {name: matrix.CASES[name] for name in ("a2c", "dqn")})
    monkeypatch.setattr(
        matrix, "measure", lambda _, case, backends, *rest: row(**dict.fromkeys(backends, SAME))
    )
    out, page, picture = (tmp_path / name for name in ("m.json", "m.md", "m.svg"))
    page.write_text("the rows of all")
    with pytest.raises(SystemExit, match="a2c"):
        matrix.main(out, page, picture, only=("dqn",))
    assert page.read_text() == "the rows of all" and not picture.exists()
    assert "dqn" in json.loads(out.read_text())["algorithms"]
    matrix.main(out, page, picture)  # measures all
    assert "`a2c`" in page.read_text() and "`dqn`" in page.read_text()


def test_the_picture_has_an_algorithm_of_no_family(tmp_path: Path) -> None:
    matrix.draw({**ROWS, "mine": ROWS["dqn"]}, tmp_path / "m.svg")
    assert "mine" in (tmp_path / "m.svg").read_text()


def test_an_unknown_algorithm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no algorithm nosuch; choose from ppo"):
        matrix.main(tmp_path / "m.json", only=("nosuch",))
