"""The command line: what it shows, and that a mistake costs one sentence and nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import triglot
from tests.project.source import ROOT
from triglot.__main__ import format_warning
from triglot.cli import main as cli
from triglot.compare import compare
from triglot.compare.options import CompareOptions
from triglot.runs.registry.algorithms import ALGORITHMS, FAMILIES
from triglot.shared.machine import version

GOOD = ["train", "ppo", "probe:two-step"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in an empty folder, and keep no compiled programs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)


def fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must fail with one line; return it."""
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("triglot: error: ") and printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before
    return printed.err


OWN = """
import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp

import triglot
from triglot.envs.gridworld import GridWorld

class Column(nn.Module):
    @nn.compact
    def __call__(self, obs):
        return {"logits": nn.Dense(2)(obs), "value": nn.Dense(1)(obs)}

class Torn(eqx.Module):
    def __init__(self, key):
        raise ValueError("no weights today")

    def __call__(self, obs):
        return obs

def mismatched(obs):
    return {"logits": obs @ jnp.zeros((7, 2)), "value": obs[:, 0]}

def column(obs_spec, action_spec):
    return triglot.from_linen(Column(), obs_spec)

def torn(obs_spec, action_spec):
    return triglot.from_equinox(Torn)

def inside_jax(obs_spec, action_spec):
    return triglot.from_haiku(mismatched, obs_spec)

def asking(obs_spec, action_spec):
    return obs_spec.no_such_thing

class Update(triglot.PPO):
    def update(self, state, trajectory, key):
        return state, {"loss": jnp.zeros((3,)) + jnp.zeros((4,))}

class Needs(triglot.PPO):
    @staticmethod
    def networks(obs_spec, action_spec, config):
        return {}["networks"]

class Changing(triglot.PPO):
    def update(self, state, trajectory, key):
        return (state, state), {}

class Stepping(GridWorld):
    def step(self, state, action, key):
        return state.no_such_field

class Growing(GridWorld):
    def step(self, state, action, key):
        step = super().step(state, action, key)
        return jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), step)
"""


@pytest.mark.parametrize(
    "parts, says",
    [
        ("torn_file:Agent probe:two-step", "SyntaxError"),
        ("torn_file:Agent probe:two-step", "(torn_file.py, line 1)"),
        ("raising_file:Agent probe:two-step", "KeyError: 'nothing' (raising_file.py, line 2)"),
        ("leaving_file:Agent probe:two-step", "importing leaving_file failed: SystemExit"),
        ("own_file:Needs probe:two-step", "networks(obs_spec, action_spec, config) failed: KeyErr"),
        ("own_file:Update probe:two-step", "failed when it was traced: TypeError"),
        ("own_file:Changing probe:two-step", "failed when it was traced: TypeError"),
        ("ppo own_file:Stepping --backend table", "failed in step: AttributeError"),
        ("ppo own_file:Growing --backend table", "changes its shapes: "),
        ("ppo probe:two-step --network own_file:column", "returned value [B, 1]"),
        ("ppo probe:two-step --network own_file:torn", "ValueError: no weights today (own_file.py"),
        ("ppo probe:two-step --network own_file:inside_jax", "(own_file.py, line"),
        ("ppo probe:two-step --network own_file:asking", "has no attribute 'no_such_thing' (own_f"),
        ("ppo probe:two-step --network own_file:Column", "wraps it in triglot.from_linen"),
    ],
)
def test_what_a_persons_own_file_raises_is_told_with_its_line(
    parts: str,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    Path("own_file.py").write_text(OWN)
    Path("torn_file.py").write_text("class Agent(:\n")
    Path("raising_file.py").write_text("names = {}\nAgent = names['nothing']\n")
    Path("leaving_file.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "own_file", raising=False)
    assert says in fails(["train", *parts.split()], capsys)


def test_a_missing_library_is_told_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "haiku", None)
    told = fails([*GOOD, "--backend", "haiku"], capsys)
    assert "pip install 'triglot[haiku]'" in told


def test_compare_parses_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def compared(options: CompareOptions) -> dict[str, Any]:
        given.append(options)
        return {"verdict": {"level": "different"}, "against": None}

    monkeypatch.setattr(compare, "compare", compared)
    command = "compare ppo probe:two-step --backends haiku nnx --num-envs 8 --discount 0.5"
    assert cli.main([*command.split(), "--out", "here", "--total-steps", "1e4"]) == 0
    (options,) = given
    assert type(options) is CompareOptions
    assert options.backends == ("haiku", "nnx") and options.arithmetic == "canonical"
    assert (options.config, options.hyper) == ({"num_envs": 8}, {"discount": 0.5})
    assert (options.out, options.total_steps) == (Path("here"), 10_000)
    assert cli.main(["compare", "ppo", "probe:two-step", "--optimizer", "lion"]) == 0
    assert given[1].out is None and given[1].optimizer == "lion"
    assert cli.main(["compare", "ppo", "probe:two-step", "--fail-on", "different"]) == 1
    assert cli.main(["compare", "ppo", "probe:two-step", "--fail-on", "inconclusive"]) == 1


def test_help_shows_the_algorithms_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "ppo", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--backend" in shown and "--num-envs" in shown and "--learning-rate" in shown


HELP = ["", "--help", "train --help", "compare -h", "list --help", "check --help", "new --help"]


def test_help_imports_no_jax() -> None:
    program = f"""
import sys
from triglot.cli.main import main
for command in {HELP}:
    assert main(command.split()) == 0, command
    assert "jax" not in sys.modules, command
"""
    root = Path(triglot.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("usage: triglot") == len(HELP)


def test_list_says_what_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"flax": "0.12.8", "equinox": "0.13.8"}
    monkeypatch.setattr("triglot.cli.list.package_version", found.get)
    assert cli.main(["list"]) == 0
    shown = capsys.readouterr().out
    assert "Proximal policy optimization" in shown and "gridworld:8x8" in shown
    assert "needs dm-haiku: pip install 'triglot[haiku]'" in shown
    assert "needs gymnax: pip install 'triglot[gymnax]'" in shown
    assert shown.count("installed") == 3


def test_list_of_algorithms_names_each_once_with_when_to_choose_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [name for names in FAMILIES.values() for name in names] == list(ALGORITHMS)
    assert cli.main(["list", "algorithms"]) == 0
    listed = capsys.readouterr().out
    for name in ALGORITHMS:
        assert re.search(rf"^  {name} +\S.*", listed, re.MULTILINE)


def test_list_of_algorithms_shows_one_of_no_family(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(ALGORITHMS, "mine", ALGORITHMS["ppo"])
    assert cli.main(["list", "algorithms"]) == 0
    assert re.search(r"^  mine +\S.*", capsys.readouterr().out, re.MULTILINE)


def test_list_of_a_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "probe"]) == 0
    assert "probe:two-step" in capsys.readouterr().out.splitlines()


def test_version_shows_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    shown = capsys.readouterr().out
    for name in ("triglot", "python", *version.PACKAGES, "device"):
        assert f"{name} " in shown
    assert triglot.__version__ in shown


def test_missing_devices_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr("jax.devices", fails)
    monkeypatch.setattr(cli, "COMMANDS", {"list": fails})
    assert cli.main(["list"]) == 2
    assert "JAX cannot start on JAX_PLATFORMS=cuda: install" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "-1", "two", ""])
def test_a_wrong_number_of_devices_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: str
) -> None:
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", count)
    assert cli.main(["list"]) == 2
    error = capsys.readouterr().err
    assert "JAX_NUM_CPU_DEVICES, into how many devices JAX divides the CPU, must be" in error
    assert f"got {count!r}" in error


def test_ctrl_c_outside_training_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(arguments: list[str], started: float) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "COMMANDS", {"list": interrupted})
    assert cli.main(["list"]) == 130
    assert capsys.readouterr().err == "triglot: interrupted\n"


def test_a_warning_of_triglot_is_shown_without_its_place_in_the_code() -> None:
    ours = format_warning(Warning("No goal."), Warning, str(ROOT / "src/triglot/envs/a.py"), 7)
    assert ours == "triglot: warning: No goal.\n"
    others = format_warning(Warning("Old."), Warning, "/elsewhere/b.py", 7)
    assert "b.py:7" in others and "Old." in others


def test_a_command_seldom_searches_for_cyclic_garbage() -> None:
    program = """
import gc, sys
from triglot import __main__
from triglot.core import garbage
sys.argv = ["triglot", "--version"]
assert __main__.main() == 0
assert gc.get_threshold()[0] == garbage.COLLECT_AFTER
assert gc.get_freeze_count() > 0
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
