"""Presets: each one can be trained, the command line uses them below all that is given."""

import inspect
import json
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import triglot
from tests.extras import skip_missing_suite
from tests.printed import unwrapped
from triglot.cli import main as cli
from triglot.compare.compare import command as compare_command
from triglot.compare.jobs import computing as compared
from triglot.compare.options import CompareOptions
from triglot.core.errors import TriglotError
from triglot.core.rl.schedules import schedule
from triglot.runs.options import TrainOptions
from triglot.runs.plan import build
from triglot.runs.registry.algorithms import find_algorithm
from triglot.runs.registry.overrides import overrides_of
from triglot.runs.registry.presets.describe import announcement, listing, returns
from triglot.runs.registry.presets.find import FOLDER, Preset, presets
from triglot.runs.storage.config import options_of_run
from triglot.sweep.options import SweepCommandOptions
from triglot.sweep.report import command as sweep_command

COMMANDS = {TrainOptions: "train", CompareOptions: "compare", SweepCommandOptions: "sweep"}
MAZE = "ppo on jumanji:Maze-v0"
GRID = ["q_learning", "gridworld:8x8", "--total-steps", "640", "--eval-episodes", "2"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)


def options(words: str, of: type = TrainOptions) -> Any:
    return cli._parse_with_algorithm([COMMANDS[of], *words.split()])


def value_of(options: Any, name: str) -> Any:
    """Give an option, or a field of the algorithm's `Config` or `Hyperparams`."""
    found = next(one for one in (options, options.config, options.hyper) if name in vars(one))
    return getattr(found, name)


def test_each_preset_has_the_arguments_of_make_agent() -> None:
    names = inspect.signature(triglot.make_agent).parameters.keys()
    for one in presets():
        assert one.agent.keys() <= names, one.name


@pytest.mark.covering(30)
@pytest.mark.parametrize("one", presets(), ids=lambda one: one.name)
def test_a_preset_can_be_trained(one: Preset) -> None:
    skip_missing_suite(one.env)
    built = build(options(f"{one.algorithm} {one.env}")).agent
    found = triglot.preset(one.algorithm, one.env)
    agent: Any = triglot.make_agent(one.algorithm, triglot.make_env(one.env), **found.agent)
    assert (agent.config, agent.hyper) == (built.config, built.hyper)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("--normalize-obs", True),
        ("--normalize-obs --seed 3", True),
        ("--no-normalize-obs", False),
        ("--no_normalize_obs --seed 3", False),
        ("--normalize-obs False", False),
        ("--normalize-obs=True", True),
        ("--normalize-obs None", None),
        ("--config own.toml", True),
        ("--seed 3", None),
    ],
)
def test_an_option_of_three_values_is_a_flag_too(
    words: str, value: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text("normalize_obs = true")
    given = options(f"ppo gymnax:CartPole-v1 --no-preset {words}")
    assert given.config.normalize_obs is value
    assert given.seed == (3 if "seed" in words else 0)


@pytest.mark.parametrize("one", presets(), ids=lambda one: one.name)
def test_a_preset_says_what_it_reached(one: Preset) -> None:
    (path,) = [path for path in FOLDER.glob("*.toml") if path.stem == _stem(one)]
    assert f'env = "{one.env}"' in path.read_text()
    assert one.measured and one.train["total_steps"] > 0
    for sample in one.measured:
        low, high = sample.interval
        assert low <= sample.mean <= high
        assert sample.num_seeds >= 3 and 1 <= sample.programs <= sample.num_seeds
    assert one.name in listing() and returns(one) in listing()


def _stem(one: Preset) -> str:
    return f"{one.algorithm}-{one.env.replace(':', '-')}"


@pytest.mark.parametrize("one", presets(), ids=lambda one: one.name)
def test_a_settings_of_a_preset_need_no_other_option(one: Preset) -> None:
    """Another optimizer, or uniform replay, must not make a preset's setting an error."""
    algorithm: Any = find_algorithm(one.algorithm)
    owned = [*fields(algorithm.Config), *fields(algorithm.Hyperparams)]
    needed = {o.metadata.get("only_for") for o in owned if o.name in one.options}
    assert needed <= {None, "networks"}


@pytest.mark.parametrize(
    ("words", "name", "value", "used"),
    [
        ("", "learning_rate", schedule("linear(2e-3, 0)"), MAZE),
        ("", "num_envs", 64, MAZE),
        ("", "num_epochs", None, MAZE),
        ("", "total_steps", 5_000_000, MAZE),
        ("--learning-rate 0.5", "learning_rate", 0.5, f"{MAZE} without learning_rate"),
        ("--learning-rate=2.5e-4", "learning_rate", 2.5e-4, f"{MAZE} without learning_rate"),
        ("--learning_rate 0.5", "discount", 0.95, f"{MAZE} without learning_rate"),
        ("--config my.toml", "learning_rate", 0.25, f"{MAZE} without num_envs, learning_rate"),
        ("--config my.toml", "num_envs", 2, f"{MAZE} without num_envs, learning_rate"),
        ("--config my.toml", "discount", 0.95, f"{MAZE} without num_envs, learning_rate"),
        ("--config my.toml --num-envs 3", "num_envs", 3, f"{MAZE} without num_envs, learning_rate"),
        ("--no-preset", "num_envs", None, None),
        ("--no_preset", "total_steps", 500_000, None),
        ("--config off.toml", "num_envs", None, None),
    ],
)
def test_what_is_given_wins(words: str, name: str, value: Any, used: str | None) -> None:
    Path("my.toml").write_text("learning_rate = 0.25\n[config]\nnum_envs = 2")
    Path("off.toml").write_text("no_preset = true")
    read = options(f"ppo jumanji:Maze-v0 {words}")
    assert (value_of(read, name), read.preset) == (value, used)


@pytest.mark.parametrize(
    ("words", "of"),
    [
        ("ppo jumanji:Maze-v0,num_rows=5", TrainOptions),
        ("ppo gymnasium:Acrobot-v1", TrainOptions),
        ("ppo gymnax:CartPole-v1 --total-steps 64", TrainOptions),  # all that this preset has
        ("ppo jumanji:Maze-v0 --envs jumanji:Maze-v0,num_rows=5", CompareOptions),
        ("ppo jumanji:Maze-v0 --over env=jumanji:Maze-v0,probe:two-step", SweepCommandOptions),
        (
            "ppo jumanji:Maze-v0 --over learning_rate=1,2 --over=algorithm=ppo,dqn",
            SweepCommandOptions,
        ),
        ("q_learning gridworld:8x8 --total-steps 64", CompareOptions),  # it takes no --backend
    ],
)
def test_a_preset_is_for_one_environment(words: str, of: type) -> None:
    assert options(words, of).preset is None


def test_an_environment_with_options_is_another_one() -> None:
    (line,) = announcement(options("ppo jumanji:Maze-v0,num_rows=5"))
    assert line == f"no preset: that of {MAZE} is for jumanji:Maze-v0 without options"
    assert not announcement(options("ppo jumanji:Maze-v0,num_rows=5 --no-preset"))


@pytest.mark.parametrize("of", [TrainOptions, CompareOptions, SweepCommandOptions])
def test_custom_networks_replace_those_of_a_preset(of: type) -> None:
    read = options("ppo gymnax:MemoryChain-bsuite --network my_file:network", of)
    assert read.config.cell == "none" and read.config.num_envs == 16
    assert read.preset == "ppo on gymnax:MemoryChain-bsuite without cell"
    tabular = options("q_learning gridworld:8x8 --network=my_file:network", of)
    assert getattr(tabular, "backend", None) != "table"


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["", " without learning_rate"])
def test_what_is_printed_names_its_preset(changed: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = "ppo brax:ant" + (" --learning-rate linear(1e-3,0)" if changed else "")
    assert cli.main(["train", *words.split(), "--print-config"]) == 0
    text = capsys.readouterr().out
    assert f'preset = "ppo on brax:ant{changed}"\n' in text and "no_preset" not in text
    Path("printed.toml").write_text(text)
    assert options("--config printed.toml") == options(words)


@pytest.mark.slow
def test_a_printed_preset_is_not_replaced_by_that_of_another_version(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "ppo brax:ant --seed 3"
    assert cli.main(["train", *words.split(), "--print-config"]) == 0
    Path("printed.toml").write_text(capsys.readouterr().out)
    given, one = options(words), triglot.preset("ppo", "brax:ant")
    agent = {**one.agent, "hyper": {**one.agent["hyper"], "discount": 0.5, "epochs": 3.0}}
    later = replace(one, agent=agent)
    monkeypatch.setattr("triglot.cli.presets.find", lambda algorithm, env: later)
    read = options("--config printed.toml")
    assert (read.config, read.hyper) == (given.config, given.hyper)
    assert read.preset == "ppo on brax:ant without discount, epochs"


@pytest.mark.parametrize(
    ("words", "preset"),
    [
        ("", MAZE),
        ("--learning-rate 0.5", f"{MAZE} without learning_rate"),
        ("ppo gridworld:3x3", None),
        ("ppo jumanji:Maze-v0,num_rows=5", None),
    ],
)
def test_a_command_that_reads_a_printed_preset(
    words: str, preset: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "ppo", "jumanji:Maze-v0", "--print-config"]) == 0
    Path("printed.toml").write_text(capsys.readouterr().out)
    assert options(f"{words} --config printed.toml").preset == preset


def test_a_command_that_is_written_down_needs_no_preset() -> None:
    """A number that equals the algorithm's default, but not the preset's, is kept."""
    compare = options("ppo jumanji:Maze-v0 --learning-rate 2.5e-4", CompareOptions)
    sweep = options(
        "ppo jumanji:Maze-v0 --discount 0.99 --over value_coef=1,2", SweepCommandOptions
    )
    for given, command in ((compare, compare_command), (sweep, sweep_command)):
        numbers = {name: overrides_of(getattr(given, name)) for name in ("config", "hyper")}
        words = shlex.split(command(replace(given, **numbers)))
        again = cli._parse_with_algorithm(words[1:])
        assert (again.config, again.hyper) == (given.config, given.hyper)
        assert again.preset is None and given.preset


def test_a_folder_from_before_presets_is_continued() -> None:
    spelled_out = "--no-preset --num-envs 64 --rollout-length 64 --num-minibatches 8"
    spelled_out += " --channels 3 --kernel-size 4 --hidden-sizes 64"
    spelled_out += " --learning-rate linear(2e-3,0) --discount 0.95 --entropy-coef 0.04"
    before = options(f"ppo jumanji:Maze-v0 --total-steps 5e6 {spelled_out}", CompareOptions)
    assert compared(before) == compared(options("ppo jumanji:Maze-v0", CompareOptions))


@pytest.mark.slow
def test_a_run_says_which_preset_it_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", *GRID, "--out", "run"]) == 0
    used = "q_learning on gridworld:8x8 without total_steps"
    assert unwrapped(capsys).startswith(f"preset: {used}; --no-preset ignores it q_learning on")
    config = json.loads(Path("run/config.json").read_text())
    assert (config["preset"], config["backend"]) == (used, "table")
    assert "no_preset" not in config
    assert options_of_run(Path("run")).preset == used
    del config["preset"]  # as in a run from before presets
    Path("run/config.json").write_text(json.dumps(config))
    assert options_of_run(Path("run")).preset is None
    again = options("--config run/config.json")
    assert again.preset is None and again.backend == "table"


def test_the_whole_preset_is_announced_with_its_return() -> None:
    one = triglot.preset("ppo", "jumanji:Maze-v0")
    (line,) = announcement(options("ppo jumanji:Maze-v0 --num-seeds 5"))
    assert line == f"preset: {MAZE}, with which the {returns(one)}; --no-preset ignores it"


@pytest.mark.slow
def test_a_sweep_says_which_preset_it_used(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*GRID, "--over", "learning_rate=0.1,0.5", "--num-seeds", "2", "--out", "sweep"]
    assert cli.main(["sweep", *words]) == 0
    used = "q_learning on gridworld:8x8 without total_steps"
    assert unwrapped(capsys).startswith(f"preset: {used};")
    result = json.loads(Path("sweep/sweep.json").read_text())
    assert result["preset"] == used and used in Path("sweep/report.html").read_text()
    assert "--backend table" in result["command"] and "--no-preset" in result["command"]
    assert options(f"--config {Path('sweep/best.toml')}").preset is None


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "presets"]) == 0
    printed = unwrapped(capsys)
    assert f"{MAZE}: total_steps 5000000, num_envs 64" in printed
    assert "hidden_sizes 64/64" in printed


def test_python_uses_none_by_itself() -> None:
    env = triglot.make_env("gymnax:Pendulum-v1")
    agent: Any = triglot.make_agent("sac", env)
    assert agent.config.hidden_sizes == (256, 256)
    found = triglot.preset("sac", "gymnax:Pendulum-v1")
    dict(found.agent)["config"]["hidden_sizes"] = [7]
    assert triglot.preset("sac", "gymnax:Pendulum-v1").agent["config"]["hidden_sizes"] == [64, 64]


def test_an_unknown_preset_is_refused() -> None:
    message = "unknown preset 'ppo on jumanji:Maze'; did you mean 'ppo on jumanji:Maze-v0'"
    with pytest.raises(TriglotError, match=message):
        triglot.preset("ppo", "jumanji:Maze")
