"""Searches by Optuna: what they refuse and propose, also after they were killed."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optuna
import pytest

from tests.sweep.small import ENV, STEPS_PER_UPDATE, arrays, killed, options
from tests.sweep.test_report import outcome
from triglot.cli import main as cli
from triglot.core.errors import MissingExtra, TriglotError
from triglot.sweep import report, run, training
from triglot.sweep.axes import Choices, Range
from triglot.sweep.plan import SweepPlan, make_plan
from triglot.sweep.results import Outcome
from triglot.sweep.run import sweep
from triglot.sweep.search import choices, confirm, rounds
from triglot.sweep.search.study import as_trial, propose, space_of
from triglot.sweep.settings import Settings, algorithms_of, draw_new, settings_of

pytestmark = [pytest.mark.packaging, pytest.mark.usefixtures("no_pages")]

RANGES = ("learning_rate=log:0.01..1", "epsilon=0.05..1")
AXES = [Range("learning_rate", 0.01, 1.0, log=True), Range("epsilon", 0.05, 1.0)]
# After 10 settings, TPE proposes from their returns.
TPE: dict[str, Any] = {
    "over": RANGES,
    "search": "tpe",
    "num_settings": 18,
    "search_batch": 6,
    "num_seeds": 1,
}


REFUSED = {
    "unknown search": (["--search", "tpee"], "unknown search 'tpee'; did you mean 'tpe'?"),
    "no number": (["--search", "tpe"], "--search tpe needs --num-settings"),
    "random without a number": (["--search", "random"], "--search random needs --num-settings"),
    "grid with a number": (["--search", "grid", "--num-settings", "4"], "leave out --num-settings"),
    "batch 0": (
        ["--search", "tpe", "--num-settings", "9", "--search-batch", "0"],
        "search_batch must be at least 1, got 0",
    ),
    "batch without rounds": (
        ["--num-settings", "4", "--search-batch", "2"],
        "--search-batch 2 has no effect without --search tpe, cma-es, gp",
    ),
    "confirm 0": (["--num-settings", "4", "--confirm", "0"], "confirm must be at least 1, got 0"),
    "list for cma-es": (
        ["--search", "cma-es", "--num-settings", "4", "--over", "num_envs=2,4"],
        "--search cma-es needs ranges, and --over num_envs is a list",
    ),
    "one range for cma-es": (
        ["--search", "cma-es", "--num-settings", "4"],
        "--search cma-es needs at least two ranges",
    ),
    "environments": (
        ["--search", "tpe", "--num-settings", "4", "--over", "env=gridworld:3x3,gridworld:2x2"],
        "--search tpe cannot choose an environment",
    ),
    "halving with gp": (
        ["--search", "gp", "--num-settings", "4", "--halving"],
        "--halving stops settings after different numbers of steps",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_options_are_one_sentence(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, said = REFUSED[case]
    given = ["sweep", "q_learning", "gridworld:3x3", "--over", "learning_rate=0.1..1"]
    out = tmp_path / "out"
    assert cli.main([*given, *words, "--out", str(out), "--no-compilation-cache"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("triglot: error: ") and said in error
    assert not out.exists()


def test_what_is_missing_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "find_spec", lambda name: None)
    cases: list[tuple[dict[str, Any], str]] = [
        (TPE, r"--search tpe needs optuna, .*: run `pip install 'triglot\[tune\]'`"),
    ]
    for given, said in cases:
        with pytest.raises(MissingExtra, match=said):
            sweep(options(**given))
    monkeypatch.setattr(choices, "find_spec", lambda name: name == "optuna" or None)
    for search, said in (("gp", r"needs torch, .*triglot\[torch\]"), ("cma-es", "needs cmaes")):
        with pytest.raises(MissingExtra, match=f"--search {search} {said}"):
            sweep(options(**{**TPE, "search": search}))


def test_optuna_is_imported_by_a_search_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    plan = make_plan(options(**TPE))
    assert len(plan.settings) == 6 and plan.rounds == (6, 6, 6)


def test_the_first_round_is_that_of_random_search() -> None:
    given = options(**TPE)
    drawn = replace(given, search="random", search_batch=None)
    algorithms = algorithms_of(given)
    assert settings_of(given, algorithms) == settings_of(drawn, algorithms)[:6]


@pytest.mark.parametrize(
    ("number", "batch", "sizes"),
    [(32, None, (4,) * 8), (10, None, (4, 4, 2)), (100, None, (13,) * 7 + (9,)), (3, 9, (3,))],
)
def test_the_sizes_of_rounds(number: int, batch: int | None, sizes: tuple[int, ...]) -> None:
    given = options(over=RANGES, search="tpe", num_settings=number, search_batch=batch)
    assert choices.round_sizes(given) == sizes


def told(settings: Settings, axes: list[Any], returns: Any = None) -> list[Outcome]:
    """Make outcomes whose return is highest at learning_rate 0.1 and epsilon 0.3."""
    plan = SweepPlan(options=options(), settings=tuple(settings), groups=())
    found = []
    for number, values in enumerate(settings):
        value = -abs(np.log10(values["learning_rate"]) + 1) - abs(values["epsilon"] - 0.3)
        final = np.array([value if returns is None else returns[number]])
        finite = np.ones(1, bool)
        found.append(outcome(plan, number, final=final, training=final, finite=finite))
    return found


def searched(search: str, axes: list[Any], sizes: tuple[int, ...]) -> Settings:
    """Propose all settings, with outcomes by `told`."""
    settings = draw_new(axes, np.random.default_rng(0), sizes[0], ())
    for number in range(1, len(sizes)):
        settings += propose(search, axes, 0, sizes, told(settings, axes))
        assert len(settings) == sum(sizes[: number + 1])
    return settings


@pytest.mark.parametrize("search", ["tpe", "cma-es", pytest.param("gp", marks=pytest.mark.slow)])
def test_a_search_proposes_better_settings_the_same_each_time(search: str) -> None:
    sizes = (10, 10, 10, 5)
    settings = searched(search, AXES, sizes)
    known = [tuple(values.values()) for values in settings]
    assert len(set(known)) == len(known), "no setting is trained twice"
    for values in settings:
        for axis in AXES:
            assert axis.low <= values[axis.name] <= axis.high
            assert values[axis.name] == float(f"{values[axis.name]:.4g}")
    scores = [one.score for one in told(settings, AXES)]
    assert np.mean(scores[-10:]) > np.mean(scores[:10]) + 0.1
    # From the outcomes alone, as after a kill.
    assert propose(search, AXES, 0, sizes, told(settings[:30], AXES)) == settings[30:]
    other = propose(search, AXES, 1, sizes, told(settings[:30], AXES))
    assert other != settings[30:], "another seed proposes other settings"


def test_a_gaussian_process_proposes_a_round() -> None:
    pytest.importorskip("torch", reason="the extra torch is not installed")
    settings = searched("gp", AXES, (10, 1))
    assert settings[-1] not in settings[:-1]


def test_lists_integers_and_a_small_space_are_proposed_without_repetition() -> None:
    axes = [
        Range("learning_rate", 1.0, 4.0, log=True, integer=True),
        Choices("epsilon", (0.1, 0.5)),
        Choices("sizes", ((8,), (8, 8), None)),
    ]
    settings = searched("tpe", axes, (12, 8, 4))
    assert len({tuple(values.values()) for values in settings}) == 24, "all that there are"
    assert all(isinstance(values["learning_rate"], int) for values in settings)
    assert {values["sizes"] for values in settings} == {(8,), (8, 8), None}
    choices_of = space_of(axes)["sizes"]
    assert isinstance(choices_of, optuna.distributions.CategoricalDistribution)
    assert choices_of.choices == ("8", "8/8", "None")


def test_what_failed_or_was_stopped_is_pruned() -> None:
    (one,) = told([{"learning_rate": 0.1, "epsilon": 0.3}], AXES)
    diverged = replace(one, finite=np.zeros(1, bool))
    unknown = replace(one, final=np.array([np.nan]))
    stopped = replace(one, stopped=True, num_steps=64, training=np.array([0.25]))
    trials = [as_trial(AXES, each) for each in (one, diverged, unknown, stopped)]
    assert [trial.state.name for trial in trials] == ["COMPLETE", "PRUNED", "PRUNED", "PRUNED"]
    assert [trial.intermediate_values for trial in trials] == [{}, {}, {}, {64: 0.25}]
    assert trials[0].value == 0.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a search once."""
    out = tmp_path_factory.mktemp("search") / "whole"
    assert sweep(options(out, **TPE, confirm=2))[0] == 0
    return out


def result_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "sweep.json").read_text())


def test_each_round_is_one_batch(whole: Path) -> None:
    names = {name.partition("/")[0] for name in arrays(whole)}
    assert names == {"0-0-0", "round-1-0-0-0", "round-2-0-0-0", "confirm-0-0-0"}
    result = result_of(whole)
    assert (result["search"], result["rounds"]) == ("tpe", [6, 6, 6])
    assert sorted(one["setting"] for one in result["settings"]) == list(range(1, 19))


def test_the_winner_is_confirmed_on_the_seeds_of_the_next_number(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of(whole)
    best, confirmed = result["settings"][0], result["confirmed"][ENV]
    again = options(over=[f"{n}={v}" for n, v in best["values"].items()], seed=1, num_seeds=2)
    plan = make_plan(again)
    fresh = confirm.fresh_plan(make_plan(options(whole, **TPE, confirm=2)), [0])
    keys, theirs = (jax.random.key_data(one.groups[0].experiment.keys) for one in (fresh, plan))
    np.testing.assert_array_equal(keys, theirs)
    final = arrays(whole)["confirm-0-0-0/final"]
    assert confirmed["returns"] == final.tolist() and confirmed["num_seeds"] == 2
    assert confirmed["return"]["value"] == final.mean()
    said = confirm.sentence(result, ENV)
    assert said.startswith("Return with 2 fresh seeds (--seed 1): ")
    assert said.endswith("is biased upwards: it is the best of 18.")


KILLS = {
    "before proposals are written": (rounds, "write_json", 1),
    "before the results of the last round": (training, "save_file", 2),
    "the report": (report, "write", 0),
}


@pytest.mark.covering(3)
@pytest.mark.parametrize("place", KILLS)
def test_a_killed_search_proposes_the_same_settings(
    place: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "killed"
    given = options(out, **TPE, checkpoint_seconds=1e-6)
    with killed(monkeypatch, *KILLS[place]):
        sweep(given)
    assert sweep(given)[0] == 0
    assert proposals(out) == proposals(whole) and len(proposals(out)) == 2
    found, sound = arrays(out), arrays(whole)
    assert found.keys() == {name for name in sound if not name.startswith(confirm.PREFIX)}
    for each, array in found.items():
        np.testing.assert_array_equal(array, sound[each])


def proposals(out: Path) -> list[Any]:
    """Read the settings of later rounds; sizes of batches follow from the free memory."""
    return [
        json.loads(path.read_text())["settings"]
        for path in sorted(out.glob("jobs/*/proposals.json"))
    ]


@pytest.mark.slow
def test_a_round_in_processes_gives_the_same_bits(tmp_path: Path) -> None:
    given = {**TPE, "num_settings": 4, "search_batch": 2, "confirm": 1}
    for name, how in (("local", {"jobs": 1}), ("here", {"executor": "sequential"})):
        assert sweep(options(tmp_path / name, **given, **how))[0] == 0
    found, sound = arrays(tmp_path / "local"), arrays(tmp_path / "here")
    assert found.keys() == sound.keys() and "confirm-0-0-0/final" in found
    for each, array in found.items():
        np.testing.assert_array_equal(array, sound[each])


def test_damaged_proposals_are_one_sentence(whole: Path) -> None:
    path = whole / "jobs" / "round-1" / "proposals.json"
    before = path.read_text()
    try:
        for text in (before.replace("[", "[[", 1), '{"settings": [[1]], "sizes": [1]}', "{}"):
            path.write_text(text)
            with pytest.raises(TriglotError, match="is damaged"):
                sweep(options(whole, **TPE, confirm=2))
    finally:
        path.write_text(before)


@pytest.mark.slow
def test_new_shapes_in_a_later_round_are_new_programs(tmp_path: Path) -> None:
    given = {**TPE, "over": ("num_envs=2,4,8", RANGES[0]), "num_settings": 4, "search_batch": 2}
    out = tmp_path / "out"
    assert sweep(options(out, **given, seed=3))[0] == 0
    first = len(json.loads((out / "jobs.json").read_text())["facts"]["sizes"])
    last = json.loads((out / "jobs/round-1/proposals.json").read_text())["sizes"]
    assert first < len(last)
    steps = {one["values"]["num_envs"]: one["steps"] for one in result_of(out)["settings"]}
    assert set(steps.values()) == {16 * STEPS_PER_UPDATE}


def test_it_continues_by_the_command_that_it_prints() -> None:
    given = options(Path("out"), **TPE)
    command = run.continuing(report.command(given), given, run.CONTINUING)
    for words in ("--search tpe", "--search-batch 6"):
        assert command.count(words) == 1
