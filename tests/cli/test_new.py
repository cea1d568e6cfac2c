"""`triglot new`: the files it writes, what it rejects, and that the result passes its check."""

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from triglot.cli import main as cli
from triglot.cli import new

ROOT = Path(__file__).resolve().parents[2]
KINDS = [
    ("algorithm", None),
    ("environment", None),
    *(("network", backend) for backend in new.EXTRAS),
]

QUICK = [("environment", None), ("network", "linen")]  # test_extending.py checks the others


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder."""
    monkeypatch.chdir(tmp_path)


def write(kind: str, name: str, backend: str | None, *more: str) -> int:
    """Run the command."""
    chosen = () if backend is None else ("--backend", backend)
    return cli.main(["new", kind, name, *chosen, *more])


@pytest.mark.parametrize("kind, backend", KINDS)
def test_it_writes_four_files_and_prints_the_next_steps(
    kind: str, backend: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(kind, "own_thing", backend, "--out", "some/where") == 0
    folder = Path("some/where/own_thing")
    assert {file.name for file in folder.iterdir()} == {
        "own_thing.py", "test_own_thing.py", "pyproject.toml", "README.md"
    }  # fmt: skip
    part = "own_thing" if kind == "network" else "OwnThing"
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    (points,) = project["project"]["entry-points"].values()
    assert points == {"own_thing": f"own_thing:{part}"}
    tree = ast.parse((folder / "own_thing.py").read_text())
    assert part in {getattr(node, "name", None) for node in tree.body}
    text = "".join(file.read_text() for file in folder.iterdir())
    assert not any(name in text for pair in new.NAMES.values() for name in pair)
    printed = capsys.readouterr().out
    assert f"cd {folder}" in printed and f"triglot check own_thing:{part}" in printed
    assert (folder / "README.md").read_text().count("triglot ") >= 3


@pytest.mark.parametrize(
    "command, says",
    [
        ("thing own", "unknown component kind 'thing'"),
        ("network own --backend linnen", "did you mean 'linen'"),
        ("algorithm own --backend linen", "--backend applies to networks only"),
        ("network own --like ppo", "--like applies to algorithms only: a network has --backend"),
        ("environment own --like ppo", "an environment is written from a template"),
        ("algorithm own --like dqnn", "unknown built-in algorithm 'dqnn'; did you mean 'dqn'"),
        ("algorithm own --like", "--like: expected one argument"),
        ("algorithm replay --like dqn", "already uses the name 'replay'"),
        ("environment Own", "is not a valid module name"),
        ("environment my-own", "such as random_walk"),
        ("environment 2own", "is not a valid module name"),
        ("environment class", "is not a valid module name"),
        ("environment json", "a module 'json' already exists"),
        ("environment jax", "a module 'jax' already exists"),
        ("environment gridworld", "environment 'gridworld' already exists"),
        ("algorithm ppo", "algorithm 'ppo' already exists"),
        ("algorithm discrete", "already uses the name 'Discrete'"),
        ("network nn", "already uses the name 'nn'"),
        ("network here", "here already exists: choose another name or --out"),
        ("network own --out file", "cannot be written"),
        ("network", "NAME"),
    ],
)
def test_what_it_cannot_write_is_reported(
    command: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("here").mkdir()
    Path("file").write_text("")
    assert cli.main(["new", *command.split()]) == 2
    printed = capsys.readouterr()
    assert says in printed.err and printed.err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["file", "here"]


@pytest.mark.covering(2)
@pytest.mark.parametrize(
    "kind, backend",
    [
        pytest.param(*kind, marks=[] if kind in QUICK else [pytest.mark.slow], id=f"{kind}")
        for kind in KINDS
    ],
)
def test_what_it_writes_passes_its_own_check(
    kind: str,
    backend: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    name = f"own_{kind}_{backend}".lower()
    assert write(kind, name, backend) == 0
    printed = capsys.readouterr().out
    (command,) = (line.split()[1:] for line in printed.splitlines() if "triglot check" in line)
    monkeypatch.chdir(name)
    request.addfinalizer(lambda: sys.modules.pop(name, None))
    assert cli.main(command) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "passed" in first and "failed" not in first


@pytest.mark.packaging
def test_its_test_passes() -> None:
    assert write("environment", "own_room", None) == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "own_room"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
