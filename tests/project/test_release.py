"""The files of a release agree with the package: versions, targets, commands."""

import importlib.util
import re
import shlex
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import triglot
from tests.project.documents import ROOT
from triglot.cli import main as cli

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOWS = ROOT / ".github" / "workflows"
WORKFLOW = yaml.safe_load((WORKFLOWS / "ci.yml").read_text())
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
RUN = "\n".join(step.get("run", "") for step in STEPS)


def make(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run make."""
    return subprocess.run(["make", *words], cwd=cwd, capture_output=True, text=True)


def test_the_citation_and_the_changelog_are_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == triglot.__version__
    assert citation["license"] == PROJECT["license"]
    headings = re.findall(r"^## (\d.+) - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == (citation["version"], str(citation["date-released"]))


def test_make_alone_lists_the_targets() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    listed = make().stdout
    assert re.findall(r"^make ([a-z-]+)  ", listed, re.MULTILINE) == phony.split()[1:]  # no `help`
    assert max(map(len, listed.splitlines())) <= 80


def test_make_says_which_python_it_needs(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    done = make("demo", "PYTHON=python2.5", cwd=tmp_path)
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    *first, last = versions
    assert f"No Python {', '.join(first)} or {last} runs here (tried: python2.5)" in done.stderr
    assert done.returncode == 2 and not (tmp_path / ".venv").exists()


def test_ruff_is_the_same_before_a_commit_and_in_the_tests() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert (
        f"ruff=={repository['rev'].removeprefix('v')}\n" in (ROOT / "constraints.txt").read_text()
    )


def test_the_workflow_tests_the_declared_versions_of_python() -> None:
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"] == declared


@pytest.mark.parametrize(
    "file", ["CONTRIBUTING.md", ".github/workflows/ci.yml", ".github/workflows/weekly.yml"]
)
def test_make_has_the_targets(file: str) -> None:
    targets = set(re.findall(r"\bmake ([a-z][\w-]*)", (ROOT / file).read_text()))
    matrix = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["target"]
    targets |= set(matrix) if file.endswith("ci.yml") else set()
    assert targets and all(re.search(rf"^{name}:", MAKEFILE, re.MULTILINE) for name in targets)


def test_the_weekly_workflow_runs_the_slow_tests_of_all_folders() -> None:
    job = yaml.safe_load((WORKFLOWS / "weekly.yml").read_text())["jobs"]["slow"]
    folders = " ".join(job["strategy"]["matrix"]["folders"]).split()
    tests = {path.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/**/test_*.py")}
    assert sorted(folders) == sorted(tests)
    assert re.search(r"^test-slow:.*\n(\t.*\n)+?.*\$\(FOLDERS\)", MAKEFILE, re.MULTILINE)


@pytest.mark.packaging
def test_the_workflows_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)
    lines = [line for line in RUN.splitlines() if line.startswith("triglot ")]
    assert {shlex.split(line)[1] for line in lines} >= {"train", "evaluate", "resume"}
    for line in lines:
        assert cli.main(shlex.split(line)[1:]) == 0, line


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_has_what_a_forge_asks_for(form: Path) -> None:
    text: dict[str, Any] = yaml.safe_load(form.read_text())
    if form.stem == "config":
        assert text == {"blank_issues_enabled": True}
        return
    assert text["name"] and text["description"]
    ids = [field["id"] for field in text["body"]]
    assert len(set(ids)) == len(ids) and all(f["attributes"]["label"] for f in text["body"])


def test_the_container_copies_files_that_exist() -> None:
    text = (ROOT / "Containerfile").read_text()
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY")]
    assert copied and all((ROOT / name).exists() for names in copied for name in names)
    assert re.search(r"^FROM python:(\S+)-slim$", text, re.MULTILINE)


def release_script() -> Any:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "src" / "triglot").mkdir(parents=True)
    for name in ("README.md", "pyproject.toml", "mkdocs.yml", "src/triglot/__init__.py"):
        shutil.copy(ROOT / name, root / name)
    return root


def test_the_page_of_an_index_has_absolute_links(checkout: Path, tmp_path: Path) -> None:
    site = checkout / "mkdocs.yml"
    others = re.sub(r"^repo_url: .*\n", "", site.read_text(), flags=re.MULTILINE)
    site.write_text(f"repo_url: https://example.org/triglot/\n{others}")
    release_script().prepare(checkout, tmp_path / "copy")
    before, after = ((folder / "README.md").read_text() for folder in (checkout, tmp_path / "copy"))
    links = re.findall(r"\]\(([^)]+)\)", after)
    assert len(links) == len(re.findall(r"\]\(([^)]+)\)", before)) > 20
    tag = f"v{triglot.__version__}"
    for link in links:
        place = re.fullmatch(rf"https://example.org/triglot/(blob|raw)/{tag}/([^#]+)(#.*)?", link)
        assert place is None or (ROOT / place[2]).exists(), link
        assert place or link.startswith(("https://", "#")), link
    assert f"raw/{tag}/docs/images/demo.gif" in after
    project = tomllib.loads((tmp_path / "copy" / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Repository"] == "https://example.org/triglot"


def test_a_release_without_an_address_is_refused(checkout: Path, tmp_path: Path) -> None:
    site = checkout / "mkdocs.yml"
    site.write_text(re.sub(r"^repo_url: .*\n", "", site.read_text(), flags=re.MULTILINE))
    with pytest.raises(SystemExit, match="has no repo_url"):
        release_script().prepare(checkout, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_pinned_versions_run_on_debians_python() -> None:
    """Debian 12 has Python 3.11.2, which some packages leave out for 3.11.5."""
    debian = {"python_version": "3.11", "python_full_version": "3.11.2"}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    refused = []
    for pin in pins:
        if pin.marker is not None and not pin.marker.evaluate(debian):
            continue
        for found in metadata.distributions(name=pin.name):
            needed = SpecifierSet((found.metadata.get_all("Requires-Python") or [""])[0])
            if found.version in pin.specifier and "3.11.2" not in needed:
                refused.append(f"{pin} needs Python {needed}")
    assert refused == []
