"""Parts of installed packages, found by entry points, and what a broken one costs."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from triglot.cli import list as listing
from triglot.cli import main as cli
from triglot.cli import new
from triglot.cli.options import NewOptions
from triglot.core import plugins
from triglot.core.errors import TriglotError
from triglot.envs.gridworld import GridWorld
from triglot.runs.registry.agents import make_agent
from triglot.runs.registry.algorithms import find_algorithm
from triglot.runs.registry.environments import make_env
from triglot.runs.registry.loading import load_networks

ROOT = Path(__file__).resolve().parents[3]

PARTS = """
from triglot import PPO
from triglot.backends import build
from triglot.envs.gridworld import GridWorld

class Theirs(PPO):
    pass

class Hall(GridWorld):
    name = "hall"

def network(obs_spec, action_spec):
    return build("table", PPO.networks(obs_spec, action_spec))
"""
SUITE = """
from triglot.envs.gridworld import GridWorld

def names():
    return ["small", "large"]

def make(name, **options):
    return GridWorld(*{"small": (2, 2), "large": (9, 9)}[name], **options)
"""
POINTS = """
[triglot.algorithms]
theirs = their_parts:Theirs

[triglot.environments]
hall = their_parts:Hall
rooms = their_suite

[triglot.networks]
lookup = their_parts:network
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Give what lays a package's metadata beside two modules on the search path."""
    (tmp_path / "their_parts.py").write_text(PARTS)
    (tmp_path / "their_suite.py").write_text(SUITE)
    monkeypatch.syspath_prepend(tmp_path)

    def lay(points: str, distribution: str = "theirs-rl") -> None:
        info = tmp_path / f"{distribution.replace('-', '_')}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n"
        )
        (info / "entry_points.txt").write_text(points)

    yield lay
    for name in ("their_parts", "their_suite"):
        sys.modules.pop(name, None)


def test_the_list_names_the_package_and_imports_nothing_of_it(install: Install) -> None:
    install(POINTS)
    shown = listing.everything()
    for words in ("theirs", "rooms:...", "hall", "lookup"):
        assert any(line.startswith(f"  {words} ") for line in shown.splitlines())
    assert shown.count("from theirs-rl 1.5, their_parts:") == 3
    assert "from theirs-rl 1.5, their_suite" in shown
    assert not {"their_parts", "their_suite"} & set(sys.modules)
    assert listing.suite("rooms") == "rooms:small\nrooms:large"


def test_added_names_work_as_built_in_ones_do(install: Install) -> None:
    install(POINTS)
    env = make_env("rooms:large")
    assert env == GridWorld(9, 9)
    assert make_env("hall").name == "hall"
    assert make_env("rooms:small", observation="onehot").obs_spec.shape == (4,)  # pyright: ignore
    assert find_algorithm("theirs").__name__ == "Theirs"
    network = load_networks(["lookup"], env)
    agent = make_agent("theirs", env, networks=network)
    assert agent.network is network  # pyright: ignore[reportAttributeAccessIssue]
    named = load_networks(["actor=lookup", "critic=lookup"], env)
    assert isinstance(named, dict) and list(named) == ["actor", "critic"]


@pytest.mark.slow
def test_training_by_added_names(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(POINTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)
    command = "train theirs rooms:small --network lookup --total-steps 64 --rollout-length 8"
    assert cli.main([*command.split(), "--eval-episodes", "0", "--out", "here"]) == 0
    assert (tmp_path / "here" / "summary.json").exists()


def test_unknown_names_are_told_with_the_added_ones(install: Install) -> None:
    install(POINTS)
    with pytest.raises(TriglotError, match=r"did you mean 'theirs'.*ppo, .*theirs"):
        find_algorithm("thers")
    with pytest.raises(TriglotError, match="did you mean 'rooms'"):
        make_env("rooom:small")
    with pytest.raises(TriglotError, match="did you mean 'hall'"):
        make_env("hal")
    with pytest.raises(TriglotError, match=r"a name of an installed package: lookup\."):
        load_networks(["lokup"], GridWorld(2, 2))
    with pytest.raises(TriglotError, match="'rooms:huge' failed when it was created: KeyError"):
        make_env("rooms:huge")


def test_built_in_names_win_and_the_list_says_so(install: Install) -> None:
    install("[triglot.algorithms]\nppo = their_parts:Theirs\n")
    assert find_algorithm("ppo").__name__ == "PPO"
    shown = listing.everything()
    assert (
        "The algorithm 'ppo' of theirs-rl 1.5 (their_parts:Theirs) is hidden by triglot's own"
    ) in shown


def test_two_packages_with_one_name_are_told(install: Install) -> None:
    install("[triglot.algorithms]\ntheirs = their_parts:Theirs\n")
    install("[triglot.algorithms]\ntheirs = other:Agent\n", "others-rl")
    with pytest.raises(TriglotError, match=r"others-rl 1.5 .*and theirs-rl 1.5 .*Uninstall one"):
        find_algorithm("theirs")
    assert listing.everything().count("has the same name as another package's") == 2


@pytest.mark.parametrize(
    "value, says",
    [
        ("nowhere:Agent", "cannot be loaded: ModuleNotFoundError: No module named 'nowhere'"),
        ("their_parts:Agnt", "cannot be loaded: AttributeError"),
        ("no value at all!", "is not of the form package.module:object"),
    ],
)
def test_a_broken_part_is_told_with_its_package(
    install: Install, value: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install(f"[triglot.algorithms]\ntheirs = {value}\n")
    assert "theirs" in listing.everything()
    assert cli.main(["train", "theirs", "probe:two-step"]) == 2
    told = capsys.readouterr().err
    assert f"the algorithm 'theirs' of theirs-rl 1.5 ({value}) {says}" in told
    assert told.count("\n") == 1


def test_a_broken_suite_is_told_with_its_package(install: Install) -> None:
    install("[triglot.environments]\nrooms = nowhere\nparts = their_parts\n")
    with pytest.raises(TriglotError, match=r"'rooms' of theirs-rl 1.5 .nowhere. cannot be loaded"):
        make_env("rooms:small")
    with pytest.raises(TriglotError, match=r"'parts' of theirs-rl 1.5 .* is not a suite"):
        listing.suite("parts")
    assert "rooms:..." in listing.everything()


def test_one_malformed_file_hides_no_other_package(install: Install) -> None:
    install("[triglot.algorithms]\nthis line is no entry point\n", "broken-rl")
    install(POINTS)
    shown = listing.everything()
    assert "The entry points of broken-rl 1.5 cannot be read." in shown
    assert "from theirs-rl 1.5" in shown
    assert plugins.names("algorithm") == ["theirs"]


@pytest.mark.packaging
def test_written_packages_can_be_installed(tmp_path: Path) -> None:
    names = {kind: f"my_own_{kind}" for kind in ("algorithm", "environment", "network")}
    for kind, name in names.items():
        new.write(NewOptions(kind=kind, name=name, out=tmp_path))
    site = tmp_path / "site"
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--target", site)

    def run(*command: str | Path) -> str:
        path = os.pathsep.join(map(str, (site, ROOT)))
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,  # where the folder my_own_network could stand for the module
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "pip", "install", *options, *(tmp_path / name for name in names.values()))
    shown = " ".join(run("-m", "triglot", "list").replace("my-own-", "my_own_").split())
    program = "from triglot.runs.registry.loading import load\n"
    program += "".join(f"print(load({kind!r}, {name!r}))\n" for kind, name in names.items())
    loaded = run("-c", program).splitlines()
    for name, line in zip(names.values(), loaded, strict=True):
        assert f" {name} " in shown and f"from {name} 0.1.0, {name}:" in shown
        assert name in line
