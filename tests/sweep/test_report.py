"""The report of a sweep, from results that were not trained."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.shared.pages.test_report import References
from tests.sweep.small import options
from triglot.shared.pages.charts import drawing
from triglot.shared.pages.charts.chart import Chart
from triglot.shared.pages.tables import as_text
from triglot.sweep import report, swept
from triglot.sweep.plan import SweepPlan, make_plan
from triglot.sweep.results import Outcome, as_records, ranked, ranking_table
from triglot.sweep.settings import algorithms_of, settings_of

pytestmark = pytest.mark.packaging

# What is swept, and what its main chart is.
SWEEPS = {
    "one number": (("learning_rate=1e-4,1e-3,1e-2",), "Return against learning_rate"),
    "one name": (("method=q_learning,sarsa",), "Return for each method"),
    "two names": (("learning_rate=1e-4,1e-3,1e-2", "num_envs=2,4"), "for each learning_rate and"),
    "two ranges": (("learning_rate=log:1e-4..1", "epsilon=0..1"), "as a line over learning_rate"),
    "three names": (
        ("learning_rate=1e-4,1e-3", "num_envs=2,4", "method=q_learning,sarsa"),
        "as a line over learning_rate, num_envs, method",
    ),
    "environments": (
        ("env=gridworld:3x3,max_steps=8,gridworld:2x2", "learning_rate=0.1,1.0"),
        "Return against learning_rate",
    ),
}


def planned(case: str = "two names", **changes: Any) -> SweepPlan:
    over, _ = SWEEPS[case]
    drawn = {"num_settings": 12} if case == "two ranges" else {}
    given = options(over=over, num_seeds=5, **drawn, **changes)
    return SweepPlan(
        options=given, settings=tuple(settings_of(given, algorithms_of(given))), groups=()
    )


def outcome(plan: SweepPlan, number: int, **changes: Any) -> Outcome:
    """Make an outcome in which later settings are better."""
    rng = np.random.default_rng(number)
    returns = number + rng.normal(size=5)
    facts: dict[str, Any] = {
        "number": number,
        "values": plan.settings[number],
        "env": plan.env_of(number),
        "num_steps": 128,
        "stopped": False,
        "finite": np.ones(5, bool),
        "training": returns,
        "final": returns,
        "curves": number + np.cumsum(rng.normal(size=(5, 20)), axis=1),
        "env_steps": np.arange(1, 21) * 100,
    }
    return Outcome(**facts | changes)


def outcomes(plan: SweepPlan) -> list[Outcome]:
    return [outcome(plan, number) for number in range(len(plan.settings))]


@pytest.fixture
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give no bounds of returns and no schedules: there are no groups here."""
    monkeypatch.setattr("triglot.sweep.results.bounds_by_env", lambda plan: {})
    none = {"hyper": {}, "num_updates": 16, "steps_per_update": 8}
    monkeypatch.setattr("triglot.sweep.report._schedules", lambda plan, best: none)


def result_of(plan: SweepPlan, found: list[Outcome]) -> Mapping[str, Any]:
    return json.loads(
        json.dumps(report.plain(report.result_of(plan, found, batches="one", halving=None)))
    )


@pytest.mark.parametrize("case", SWEEPS)
def test_each_kind_of_sweep_has_its_chart(case: str, unbounded: None) -> None:
    plan = planned(case)
    charts = report.main_charts(result_of(plan, outcomes(plan)))
    assert list(charts) == plan.envs
    for chart in charts.values():
        assert SWEEPS[case][1] in chart.description
        assert len(drawing.svg(chart, 600)) > 2000
        drawing.svg(chart, 300, narrow=True)


def test_the_folder_has_everything(tmp_path: Path, unbounded: None) -> None:
    plan = planned("environments")
    found = outcomes(plan)
    report.write(tmp_path, plan, result_of(plan, found), found)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best-2.toml", "best.toml", "ranking.csv", "report.html", "results.csv", "sweep.json",
        "sweep.png", "sweep.svg",
    ]  # fmt: skip
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    page = References((tmp_path / "report.html").read_text())
    assert not [one for one in page.found if not one.startswith(("data:", "#"))]
    for heading in (
        "The best of 2 settings on gridworld:2x2", "Returns",
        "Learning curves of the best settings", "Ranking",
    ):  # fmt: skip
        assert heading in page.headings
    json.loads((tmp_path / "sweep.json").read_text(), parse_constant=pytest.fail)


def test_the_schedules_of_the_best_setting_are_drawn(tmp_path: Path) -> None:
    over = ("learning_rate=0.5,linear(0.4,0)",)
    plan = make_plan(options(over=over, num_seeds=5, hyper={"epsilon": "cosine(1, 0.1)"}))
    found = outcomes(plan)
    result = result_of(plan, found)
    (best,) = result["schedules"].values()
    assert best["hyper"] == {"epsilon": "cosine(1, 0.1)", "learning_rate": "linear(0.4, 0)"}
    assert (best["num_updates"], best["steps_per_update"]) == (16, 8)
    report.write(tmp_path, plan, result, found)
    text = (tmp_path / "report.html").read_text()
    assert "Schedules of the best setting" in References(text).headings
    for heading in ("epsilon = cosine(1, 0.1)", "learning_rate = linear(0.4, 0)"):
        assert f"<h3><code>{heading}</code></h3>" in text


def test_the_table_fits_a_terminal(unbounded: None) -> None:
    plan = planned("three names")
    lines = as_text(ranking_table(result_of(plan, outcomes(plan)))).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:3] == ["rank", "return", "95%"]
    assert "0.001" in lines[2] and "sarsa" in lines[2], "the best setting is the last one"


def test_settings_are_ranked_by_what_they_reached(unbounded: None) -> None:
    plan = planned("two names")
    nothing = np.full(5, np.nan)
    found = [
        outcome(plan, 0, final=nothing, training=nothing),
        outcome(plan, 1),
        outcome(plan, 2),
        outcome(plan, 3, stopped=True, num_steps=64, final=None),
        outcome(plan, 4, stopped=True, num_steps=32, final=None),
        outcome(plan, 5, finite=np.array([True, False, True, True, True])),
    ]
    assert [one.number for one in ranked(found)] == [2, 1, 5, 0, 3, 4]
    records = {one["setting"] - 1: one for one in as_records(plan, found)}
    assert records[0]["return"] is None
    assert records[5]["return"]["count"] == 4 and records[5]["num_diverged"] == 1
    assert records[2]["return"]["low"] < found[2].known.mean() < records[2]["return"]["high"]
    assert records[3]["status"] == "stopped"
    table = as_text(ranking_table(result_of(plan, found)))
    assert "diverged" in table and "stopped" in table


def test_a_sweep_without_any_return_has_a_report(tmp_path: Path, unbounded: None) -> None:
    plan, nothing = planned("one number"), np.full(5, np.nan)
    found = [
        outcome(plan, number, final=None, training=nothing, curves=np.full((5, 20), np.nan))
        for number in range(3)
    ]
    report.write(tmp_path, plan, result_of(plan, found), found)
    assert (tmp_path / "report.html").is_file() and not (tmp_path / "sweep.png").exists()


def test_the_page_escapes_what_it_shows(tmp_path: Path, unbounded: None) -> None:
    plan = planned("one name")
    plan.settings[0]["method"] = "<script>alert(1)</script>"  # type: ignore[index]
    found = outcomes(plan)
    result = result_of(plan, found)
    text = page_of(result, report.main_charts(result))
    assert "<script>alert(1)" not in text
    assert re.search(r"<text[^>]*>&lt;script&gt;alert\(1\)</text>", text), "a line of a name"


def page_of(result: Mapping[str, Any], mains: Mapping[str, Chart] | None = None) -> str:
    """Build the page with its table and files."""
    ranking = ranking_table(result)
    files = {report.RESULT: "{}", **report.as_files([ranking])}
    return report.page(result, ranking, files, mains or {})


def words_of(result: Mapping[str, Any]) -> str:
    """Return the text of a sweep's page, without pictures and scripts."""
    text = page_of(result)
    text = re.sub(r"<(script|style|svg).*?</\1>", "", text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", "", text).split())


@pytest.mark.parametrize(
    ("higher", "relation"),
    [
        ((2.0, 2.1, 1.9, 2.0, 2.2), "below"),
        (
            (2.0, -2.1, 1.9, 0.0, 2.2),
            "tied with",
        ),
    ],
)
def test_the_winner_is_compared_with_rank_2_seed_by_seed(
    higher: tuple[float, ...], relation: str, unbounded: None
) -> None:
    plan, returns = planned("one name"), np.array([1.0, 50.0, 3.0, 40.0, 9.0])
    found = [outcome(plan, 0, final=returns), outcome(plan, 1, final=returns + np.array(higher))]
    result = result_of(plan, found)
    (sentence,) = result["separation"].values()
    assert sentence.startswith("Rank 2 (method=q_learning)") and sentence in words_of(result)
    assert f"{relation} rank 1" in sentence
    low, high = map(float, re.findall(r"\[([+-]?[\d.]+), ([+-]?[\d.]+)\]", sentence)[0])
    assert low < np.mean(higher) < high and (relation == "tied with") == (low <= 0)


def test_few_seeds_separate_nothing(unbounded: None) -> None:
    plan = planned("one number")
    two = np.array([5.0, 6.0])
    found = [
        outcome(plan, number, final=number + two, training=two, finite=np.ones(2, bool))
        for number in range(3)
    ]
    sentence = report.separation(ranked(found))
    assert sentence.startswith("Rank 2 (learning_rate=0.001) is not tested against rank 1")
    assert "2 seeds" in sentence and "at least 5" in sentence
    assert report.separation(found[:1]) == ""


def test_equal_returns_are_tied(unbounded: None) -> None:
    plan = planned("one name")
    found = [outcome(plan, number, final=np.arange(5.0)) for number in range(2)]
    assert "tied with rank 1: each seed has the same return" in report.separation(found)


def test_other_settings_that_are_tied_are_counted(unbounded: None) -> None:
    plan, base = planned("two names"), np.arange(5.0)
    noise = [np.roll([3.0, -3.0, 1.0, -2.0, 0.0], number) for number in range(6)]
    found = [outcome(plan, number, final=base + noise[number]) for number in range(6)]
    assert "4 more settings are statistically tied" in report.separation(ranked(found))


def test_the_winner_has_a_unit_and_a_range(unbounded: None) -> None:
    plan = planned("one number")
    words = words_of(result_of(plan, outcomes(plan)))
    label = r"The best of 3 settings -?[\d.]+ return per episode, after training, greedy · 95 % "
    assert re.search(label + r"interval \[[^\]]+\] learning_rate=0.01", words)


def test_the_page_says_that_curves_are_not_what_is_ranked(unbounded: None) -> None:
    plan = planned("one number")
    words = words_of(result_of(plan, outcomes(plan)))
    assert "Returns of episodes during training, with exploration" in words
    assert "ranked by the greedy return after training, over 2 episodes" in words


def test_a_setting_that_was_stopped_early_is_not_the_best_of_a_search(unbounded: None) -> None:
    plan = planned("two ranges")
    found = [
        outcome(plan, number, final=np.full(5, value), stopped=stopped)
        for number, (value, stopped) in enumerate(((1.0, False), (9.0, True), (3.0, False)))
    ]
    chart = swept.search_chart(result_of(plan, found)["settings"], "search")
    axes = drawing.new_figure(400, 300).add_subplot()
    chart.draw(axes)
    best, whole, stopped = (line.get_ydata().tolist() for line in axes.lines)
    assert best == [1.0, 1.0, 3.0] and whole == [1.0, 3.0] and stopped == [9.0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "trained to the end",
        "stopped early",
    ]


def test_a_heat_map_has_the_return_in_the_cell_of_its_setting(unbounded: None) -> None:
    plan = planned("two names")
    found = [outcome(plan, number, final=np.full(5, float(number))) for number in range(6)]
    (chart,) = report.main_charts(result_of(plan, found)).values()
    axes = drawing.new_figure(400, 300).add_subplot()
    chart.draw(axes)
    cells = {text.get_position(): float(text.get_text()) for text in axes.texts}
    for number, setting in enumerate(plan.settings):
        x = [1e-4, 1e-3, 1e-2].index(setting["learning_rate"])
        assert cells[x, [2, 4].index(setting["num_envs"])] == number
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.0001", "0.001", "0.01"]
