"""The folder of a report, and a page that holds everything it shows."""

import json
import re
import webbrowser
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.shared.pages.sample import sample
from triglot import backends
from triglot.compare.pages import comparison
from triglot.compare.pages.comparison import figure_path, page, page_charts
from triglot.core.errors import CannotWrite, TriglotError
from triglot.shared.pages.charts import drawing
from triglot.shared.pages.page import open_report

MAX_PAGE = 1_500_000
FAILURE = {
    "backend": "nnx",
    "rung": "weights",
    "env": "gymnax:CartPole-v1",
    "stage": "train",
    "message": "the worker died <script>alert(1)</script>",
}
BACKENDS_FOLDER = Path(backends.__file__).parent
ENVS = (
    "gymnax:CartPole-v1", "gymnax:Acrobot-v1", "gymnax:MountainCar-v0", "probe:two-step",
    "my_file:Env,size=3",
)  # fmt: skip
FIGURES = (
    *(f"figures/{name}" for name in (
        "aggregate", "cost", "divergence", "ladder", "profiles", "returns",
        "curves-gymnax_Acrobot-v1", "curves-gymnax_MountainCar-v0", "curves-probe_two-step",
        "curves-my_file_Env_size_3",
    )),
    "curves",
)  # fmt: skip
# What may be absent, and a heading that is then absent too.
PARTS = {
    "curves": "Learning curves",
    "statistics": "Return after training",
    "divergence": "Divergence",
    "pairs": "Library by library",
    "ladder": "Ladder of causes",
    "programs": "Compiled programs",
    "code": "The network in each library",
    "against": "Since the stored comparison",
}


def test_an_option_in_a_sentence_is_kept_on_one_line() -> None:
    result = sample() | {"cost": None}
    text = page(result, page_charts(result))
    assert 'not measured: <span class="unbroken">--repetitions</span> 5 measures' in text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a large report: 5 environments, 4 libraries, 10 seeds and 400 updates."""
    out = tmp_path_factory.mktemp("report")
    result = sample(num_updates=400, envs=ENVS, failures=[FAILURE])
    for name, code in result["code"].items():
        code["source"] = (BACKENDS_FOLDER / name / "zoo.py").read_text()
    comparison.write(out, result)
    return out


class References(HTMLParser):
    """Collects what a page refers to, its headings and its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = ("src", "href", "srcset", "action", "xlink:href")
        self.found += [value or "" for name, value in attrs if name in names]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "h2":
            self.headings.append(data.strip())


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures out of the page; they take seconds."""
    monkeypatch.setattr(drawing, "svg", lambda *_, **__: "<svg></svg>")


def built(result: dict[str, Any]) -> References:
    return References(page(result, page_charts(result)))


def test_all_files_are_written(folder: Path) -> None:
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    names = (
        "summary", "returns", "pairs", "environments", "ladder", "cost", "programs", "curves",
        "divergence",
    )  # fmt: skip
    assert files == {
        "report.html", "comparison.json", "tables.md",
        *(f"tables/{name}.csv" for name in names),
        *(f"{name}.{suffix}" for name in FIGURES for suffix in ("png", "svg")),
    }  # fmt: skip


def test_the_files_are_small(folder: Path) -> None:
    assert (folder / "report.html").stat().st_size < MAX_PAGE
    for name in ("comparison.json", "tables.md", *(f"{name}.svg" for name in FIGURES)):
        assert 1000 < (folder / name).stat().st_size < 300_000
    for name in FIGURES:
        assert 1000 < (folder / f"{name}.png").stat().st_size < 100_000


def test_the_page_names_the_figures(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    assert all(f"<code>{name}</code>" in text for name in FIGURES)


def test_a_chart_without_data_is_not_written() -> None:
    result = sample(num_updates=5, backends=("haiku", "nnx"), identical=True)
    result |= dict.fromkeys(("cost", "ladder", "statistics"))
    assert list(map(figure_path, page_charts(result))) == ["curves"]


def test_the_page_refers_to_nothing_outside(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    outside = [ref for ref in References(text).found if not ref.startswith(("data:", "#"))]
    assert not outside
    assert "@import" not in text and not re.search(r"url\((?!data:|#)", text.split("<script")[0])


def test_the_page_offers_every_file_of_numbers(folder: Path) -> None:
    offered = re.findall(r'download="([^"]+)"', (folder / "report.html").read_text())
    written = [file.name for file in folder.rglob("*") if file.suffix in (".json", ".csv")]
    assert sorted(offered) == sorted(written)


def test_text_of_others_is_escaped(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text


def test_the_markdown_holds_the_verdict_and_the_tables(folder: Path) -> None:
    text = (folder / "tables.md").read_text()
    result = json.loads((folder / "comparison.json").read_text())
    assert result["verdict"]["sentence"] in text and result["command"] in text
    assert sum(line.startswith("| :-- |") for line in text.splitlines()) == 7
    assert "| Haiku – Equinox | different | update 1, actor/torso/0/kernel |" in text


@pytest.mark.usefixtures("undrawn")
def test_a_part_that_was_not_run_is_left_out() -> None:
    result = sample(num_updates=5, backends=("haiku", "nnx"))
    assert set(PARTS.values()) <= set(built(result).headings)
    for part, heading in PARTS.items():
        absent = {name: value for name, value in result.items() if name != part}
        for changed in ({**result, part: None}, absent):
            headings = built(changed).headings
            assert heading not in headings, part
            assert {"Cost", "Run"} <= set(headings)


@pytest.mark.usefixtures("undrawn")
def test_the_least_that_a_result_holds_is_enough() -> None:
    result = sample(num_updates=5, backends=("haiku", "nnx"), identical=True)
    parts = ("cost", "identity", "failures", "hyper", "config", "platform", "python", "envs")
    least = {name: v for name, v in result.items() if name not in (*PARTS, *parts)}
    assert built(least).headings.count("Cost") == 1


@pytest.mark.usefixtures("undrawn")
def test_a_finding_in_one_library_is_shown() -> None:
    result = sample(num_updates=5, backends=("haiku", "nnx"))
    cause = {"name": "memory_growth", "where": "the training", "evidence": "3 MB an update"}
    result["backends"]["nnx"]["causes"] = [cause]
    text = page(result, page_charts(result))
    assert "Findings in one library" in text and "3 MB an update" in text


@pytest.mark.usefixtures("undrawn")
def test_all_higher_costs_of_a_library_are_one_finding() -> None:
    result = sample(num_updates=5, backends=("haiku", "nnx"))
    stages = {"compile": "Compile: Flax NNX 3 s.", "memory": "Peak memory: Flax NNX 1,003 MB."}
    rows = [{"backend": "nnx", "stage": name, "sentence": said} for name, said in stages.items()]
    result["cost"] = {**result["cost"], "slower": rows}
    causes = [{"name": "slower", "where": r["stage"], "evidence": r["sentence"]} for r in rows]
    result["backends"]["nnx"]["causes"] = causes
    text = page(result, page_charts(result))
    finding = "in its costs: Compile: Flax NNX 3 s; Peak memory: Flax NNX 1,003 MB"
    assert finding in text and text.count("<code>slower</code>") == 1


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises((CannotWrite, TriglotError), match="out"):
        comparison.write(tmp_path / "out", sample(num_updates=5, backends=("haiku", "nnx")))


def test_the_page_is_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda uri: bool(opened.append(uri)) or True)
    open_report(folder)
    assert opened == [(folder / "report.html").as_uri()]


def test_a_missing_browser_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda uri: False)
    with pytest.raises(TriglotError, match=r"no web browser was found; open .*report\.html"):
        open_report(folder)
