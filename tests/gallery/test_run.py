"""The runner of the gallery: rows are kept and resumed, judged, and shown on a page."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gallery import __main__ as command
from tests.gallery import page, run, worker
from tests.gallery.pair import find_pairs, marks
from triglot.diff.pairing.parameters import Pairing
from triglot.diff.report import Report
from triglot.diff.types import Cause, Difference, Operation

PAIRS = find_pairs()
NAME = "dueling"
BUGS = [bug.name for bug in PAIRS[NAME].bugs]
# A worker that answers with what it was asked, hangs at one bug, or ends at another.
FAKE = """
import json, os, sys, time
for line in sys.stdin:
    name, bug, level = json.loads(line)
    if bug == os.environ.get("ENDS"): sys.exit(1)
    if bug == os.environ.get("HANGS"): time.sleep(60)
    row = {"verdict": "different" if bug else "identical", "num_params": [3, 3], "false": [],
           "named": True, "located": bug != "selu", "found": True, "unknown": False, "seconds": 1.5}
    print(json.dumps(row), flush=True)
"""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "COMMAND", (sys.executable, "-c", FAKE))


def main(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    out, text = folder / "gallery.json", folder / "gallery.md"
    paths = ["--json", str(out), "--page-path", str(text), "--sizes-path", str(folder / "sizes.md")]
    given = ["--pairs", NAME, *paths, *arguments]
    command.command(given)
    return json.loads(out.read_text())["pairs"], text.read_text()


def test_each_pair_is_compared_clean_and_with_each_bug(fake: None, tmp_path: Path) -> None:
    rows, text = main(tmp_path)
    assert list(rows[NAME]["rows"]) == ["clean", *BUGS]
    assert "| bugs, right place | 2 of 3 |" in text
    assert "| bugs, right cause | 3 of 3 |" in text
    assert "SELU for ELU" in text


def test_a_stopped_gallery_goes_on(
    fake: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(run, "compared", stopped_by(run.compared))
        with pytest.raises(SystemExit, match="--resume goes on"):
            main(tmp_path)
    before = json.loads((tmp_path / "gallery.json").read_text())["pairs"]
    assert list(before[NAME]["rows"]) == ["clean", BUGS[0]]
    before[NAME]["rows"]["clean"]["seconds"] = 77.0
    (tmp_path / "gallery.json").write_text(json.dumps({"pairs": before}))
    rows, _ = main(tmp_path, "--resume")
    assert list(rows[NAME]["rows"]) == ["clean", *BUGS]
    assert rows[NAME]["rows"]["clean"]["seconds"] == 77.0
    assert main(tmp_path)[0][NAME]["rows"]["clean"]["seconds"] == 1.5


def test_rows_of_another_version_are_measured_again(
    fake: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main(tmp_path)
    monkeypatch.setattr(run, "fingerprint", lambda *files: "another")
    out = tmp_path / "gallery.json"
    assert not run.load(out, {NAME: PAIRS[NAME]}, resume=True)


def stopped_by(compared: Any) -> Any:
    """Stop after two rows, as by Ctrl-C."""

    def first_two(*arguments: Any) -> Any:
        for index, row in enumerate(compared(*arguments)):
            if index == 2:
                raise KeyboardInterrupt
            yield row

    return first_two


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "why"), [("HANGS", "not done after 2 s"), ("ENDS", "the process ended")]
)
def test_a_comparison_that_fails_is_a_row(
    how: str, why: str, fake: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(how, BUGS[1])
    rows, text = main(tmp_path, "--seconds-limit", "2")
    found = rows[NAME]["rows"]
    assert found[BUGS[1]]["error"] == why and found[BUGS[2]]["named"]
    assert f"- `{NAME}`, {BUGS[1]}: {why}" in text


def test_rows_of_other_pairs_are_kept(fake: None, tmp_path: Path) -> None:
    out = tmp_path / "gallery.json"
    main(tmp_path)
    kept = json.loads(out.read_text())
    kept["pairs"]["highway"] = {**run.describe(PAIRS["highway"]), "rows": {}}
    out.write_text(json.dumps(kept))
    assert list(main(tmp_path)[0]) == ["highway", NAME]


def test_rows_of_another_level_are_measured_again(fake: None, tmp_path: Path) -> None:
    main(tmp_path)
    rows = main(tmp_path, "--resume", "--level", "quick")[0]
    assert rows[NAME]["level"] == "quick" and list(rows[NAME]["rows"]) == ["clean", *BUGS]


def test_an_unknown_level_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.command(["--level", "fast"])
    assert "level 'fast' is unknown; choose from quick" in capsys.readouterr().err


def test_an_unknown_pair_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.command(["--pairs", "nothing"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("error: no pair 'nothing'; choose from nature_cnn")


def report(causes: tuple[Cause, ...], line: int) -> Report:
    place = Operation("mul", f"tests/gallery/families/agents.py:{line}")
    return Report(
        labels=("one", "other"),
        verdict="different",
        first_difference=Difference(one=None, other=place, max_abs=1.0, max_rel=1.0),
        first_rounding=None,
        causes=causes,
        pairing=Pairing({}, {}, (), "by name"),
        num_params=(3, 3),
        measurements=(),
    )


@pytest.mark.parametrize("cause", ["activation", "norm_epsilon", "initializer", "unknown"])
@pytest.mark.parametrize("near", [True, False])
def test_a_report_is_judged(cause: str, near: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    line = marks(PAIRS[NAME].file)["planted"]["selu"][-1] if near else 1
    found = report((Cause(cause, "a place", "evidence"),), line)
    monkeypatch.setattr(worker, "diff_networks", lambda *_, **__: found)
    row = worker.compare(NAME, "selu")
    assert row["named"] == (cause == "activation")
    assert row["located"] == near
    assert row["false"] == (["norm_epsilon"] if cause == "norm_epsilon" else [])
    assert row["unknown"] == (cause == "unknown")


def test_a_right_cause_gives_the_place_too(monkeypatch: pytest.MonkeyPatch) -> None:
    line = marks(PAIRS[NAME].file)["planted"]["selu"][-1]
    found = report((Cause("activation", f"mul (agents.py:{line})", "evidence"),), 1)
    monkeypatch.setattr(worker, "diff_networks", lambda *_, **__: found)
    assert worker.compare(NAME, "selu")["located"]


def test_the_false_positives_of_a_clean_pair_are_shown() -> None:
    row = run.describe(PAIRS[NAME])
    found = {"verdict": "different", "num_params": [3, 3], "false": ["padding"], "unknown": False}
    row["rows"] = {"clean": {**found, "seconds": 2.0}}
    text = page.page({NAME: row}, "a processor", 2)
    assert "different (padding)" in text
    assert "found equal, without a false positive | 0 of 1 |" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_the_gallery(name: str) -> None:
    """Compare each pair by the whole of `diff`: clean ones are equal, and each bug is found."""
    clean = worker.compare(name)
    assert page.is_clean(clean), clean
    rows = {bug.name: worker.compare(name, bug.name) for bug in PAIRS[name].bugs}
    assert not {bug: found for bug, found in rows.items() if not found.get("found")}


def test_published_sizes_have_a_page_of_their_own(fake: None, tmp_path: Path) -> None:
    main(tmp_path)
    sizes = tmp_path / "sizes.md"
    assert not sizes.exists()
    rows, text = main(tmp_path, "--pairs", "resnet@resnet18", "--bugs", "1", "--level", "quick")
    assert len(rows["resnet@resnet18"]["rows"]) == 2
    assert "1 public architectures" in text
    cells = (r"`resnet@resnet18`", "Keras and Linen", "3", "quick")
    assert re.search(r"\| *" + r" *\| *".join(cells), sizes.read_text())
    assert not re.search(cells[0], text)
