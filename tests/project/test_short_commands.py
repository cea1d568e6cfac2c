"""The `triglot` commands of README and site run in order, with budgets of seconds."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import gymnasium
import pytest

from tests.project.documents import FILES, PAGES, ROOT, commands, name_of
from tests.project.test_commands import EXTRAS, READER, exit_code_of
from triglot.cli import main as cli
from triglot.core.options import option_fields
from triglot.runs.registry.algorithms import find_algorithm

pytestmark = pytest.mark.packaging

LOGS = "docs/measurements"  # logs of long runs, which `make test-commands` repeats
COMPARED = "docs/start.md"  # one comparison of two libraries, each of which starts a process
# Beginnings of words in commands that are left out, by the reason.
LEFT_OUT = {
    "compiles for a minute; tests/project/test_readme.py prepares it": ("brax:", "jumanji:"),
    "needs an account of Weights & Biases": ("wandb",),
    "starts processes, as the tests of jobs do": ("--jobs", "--executor"),
    "this process has one device": ("--devices", "--distributed"),
    "checks the environments of a suite for minutes": ("gymnax$",),
    "goes on until Ctrl-C, as tests/cli/test_diff_watch.py tests": ("--watch",),
    "reads a run that is left out": ("runs/maze", "runs/ant", "runs/pendulum"),
}
# Options that a command gets if it has them, does not give them, and does not sweep over them.
RUN = ["--total-steps 256", "--eval-episodes 4"]
CONFIG = [
    "--num-envs 2", "--rollout-length 16", "--num-epochs 1", "--num-minibatches 1",
    "--hidden-sizes 8 8", "--batch-size 8", "--learning-starts 64",
]  # fmt: skip
GIVEN = {
    "train": [*RUN, "--no-compilation-cache"],
    "sweep": [*RUN, "--no-compilation-cache"],
    "compare": [*RUN, "--repetitions 0"],
    "resume": ["--no-compilation-cache"],
    "evaluate": ["--episodes 4"],
    "rate": ["--games 4"],
    "render": ["--max-steps 8"],
}
MOST = {
    "--eval-every": 64,
    "--keep-every": 64,
    "--confirm": 2,
    "--num-seeds": 2,
    "--num-settings": 2,
    "--population": 4,
    "--exploit-every": 2,
}


def is_run(page: str, words: list[str]) -> bool:
    missing = [
        word for word, package in EXTRAS.items() if importlib.util.find_spec(package) is None
    ]
    if words[0] == "compare" and page != COMPARED:
        return False
    if any(extra in word for extra in missing for word in words):
        return False
    return not any(
        re.match(one, word) for ones in LEFT_OUT.values() for one in ones for word in words
    )


def of_page(page: Path) -> list[list[str]]:
    name = name_of(page)
    return [words for words in commands(page) if is_run(name, words)]


RUN_OF = {name_of(page): of_page(page) for page in PAGES if not name_of(page).startswith(LOGS)}


def shortened(words: list[str]) -> list[str]:
    words = list(words)
    for index, word in enumerate(words[:-1]):
        if word == "--total-steps":  # 500,000 become 256, and an extended run 512
            words[index + 1] = str(max(256, int(words[index + 1].replace("_", "")) // 2000))
        elif word in MOST:
            words[index + 1] = str(min(MOST[word], int(words[index + 1])))
    given, known = GIVEN.get(words[0], []), []
    if words[0] in ("train", "sweep", "compare"):
        named = next((word for word in words[1:2] if not word.startswith("--")), "ppo")
        known = [one.name for one in option_fields(find_algorithm(named).Config)]
    useless = [word.partition("=")[0] for word in words]  # what is swept
    useless += ["hidden_sizes"] if "--network" in words else []
    for option in CONFIG:
        name = option.split()[0].removeprefix("--").replace("-", "_")
        given = [*given, option] if name in known and name not in useless else given
    return [*words, *(w for one in given if one.split()[0] not in words for w in one.split())]


def divided(words: list[str], at: str) -> tuple[list[str], list[str]]:
    """Split a command at a word of the shell."""
    index = words.index(at) if at in words else len(words)
    return words[:index], words[index + 1 :]


FILLED = [page for page, found in RUN_OF.items() if found]
# The others' trainings, comparisons and sweeps are prepared by tests/project/test_readme.py.
QUICK = ("README.md", "docs/start.md")


@pytest.mark.library_promotion("a documented command may promote, as it does for a user")
@pytest.mark.covering(2)
@pytest.mark.parametrize(
    "page", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in FILLED]
)
def test_the_commands_of_a_page_run_in_order(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)
    for path in filter(Path.is_file, READER.iterdir()):
        shutil.copy(path, tmp_path)
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    of_pages = [path.stem for path in tmp_path.glob("*.py")]
    gymnasium.registry.pop("Line-v0", None)  # of line_env.py, which is imported for each page
    for name in [name for name in sys.modules if name.startswith("my_") or name in of_pages]:
        monkeypatch.delitem(sys.modules, name)  # of another page
    for words in RUN_OF[page]:
        words, folder = divided(words, "&&")
        line, written = divided(words, ">")
        short = shortened(line)
        assert cli.main(short) == exit_code_of(f"triglot {' '.join(words)}"), short
        printed = capsys.readouterr().out
        if written:
            Path(written[0]).write_text(printed)
        if folder:
            assert folder[0] == "cd"
            monkeypatch.chdir(folder[1])
            monkeypatch.syspath_prepend(folder[1])
