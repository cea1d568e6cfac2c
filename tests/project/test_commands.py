"""The shell commands of README and site run as printed, whole and in order (`make test-commands`).

Each page has a folder of its own, in which its commands build on each other: a checkout with the
files of all pages. Only what is listed below is left out.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.project.documents import FILES, PAGES, ROOT, name_of, shell_blocks

# Beginnings of commands that are left out, by the reason.
LEFT_OUT = {
    "installs over the network; tests/project/test_packaging.py installs the wheel": (
        ".venv/bin/pip install",
        "pip install",
        "python3 -m venv .venv",
        ". .venv/bin/activate",
        "git clone",
        "make install",
    ),
    "runs the suite that this test belongs to": ("make test",),
    "needs a cluster; tests/sweep/test_cluster.py starts a small one": (
        "ray start",
        "triglot sweep ppo gymnax:CartPole-v1 --over num_envs=4,16 "
        "--over learning_rate=1e-4,1e-3 --executor ray",
        "triglot sweep ppo gymnax:CartPole-v1 --over clip_epsilon=0.2 --num-seeds 100 --batch 10 "
        "--executor ray",
    ),
    "needs an account of Weights & Biases": (
        "triglot train ppo gymnax:CartPole-v1 --log wandb",
        "triglot watch runs/watched --log wandb",
        "triglot sweep ppo gymnax:CartPole-v1 --over learning_rate=1e-4,1e-3 --out runs/rates "
        "--log wandb",
    ),
    "runs until Ctrl-C; tests/cli/test_diff_watch.py ends it": (
        "triglot diff original:net port:Port --obs-shape 4 --watch",
    ),
    "needs Docker": ("docker build", "mkdir -p runs", "docker run"),
    "takes more than half an hour on two cores": (
        "triglot train ppo jumanji:Maze-v0",
        "triglot train ppo brax:ant",
    ),
    "reads a run that is left out": (
        "triglot render runs/maze",
        "triglot evaluate runs/maze",
        "triglot render runs/ant",
    ),
    "needs another project or an earlier revision, which is not in the checkout": (
        "taskset -c 0 python -m benchmarks.peers --row ppo",
        "taskset -c 0 python -m benchmarks.peers --row dqn",
        "taskset -c 0 python -m benchmarks.peers --row sac",
        "python -m benchmarks.fingerprints --out",
        "taskset -c 0 python -m benchmarks.versions",
        "git worktree add ../before",
        "python -m benchmarks.implementations --checkouts",
        "pip install -e '.[torch]' distrax",
    ),
}
# Exit codes other than 0, by the beginning of the command.
EXIT_CODES = dict.fromkeys(  # they are different
    (
        "triglot diff original:net port:Port",
        "triglot diff one:loss other:loss",
        "triglot diff algorithm:ppo my_ppo:loss",
        "triglot translate original.npz",
    ),
    1,
)
# What is not part of the extra `all`, by a word of the commands that need it.
EXTRAS = {
    "envpool": "envpool",
    "onnx": "jax2onnx",
    "navix:": "navix",
    "playground:": "mujoco_playground",
}
READER = Path(__file__).parent / "reader"  # the files that pages only name
MAX_SECONDS = 1800
# A user has none of the settings that make tests quick.
OURS = ("JAX_NUM_CPU_DEVICES", "JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")


class Command(NamedTuple):
    """A line of a page, and the folder, below the page's, where the lines before it lead."""

    page: str
    folder: str
    line: str

    def __str__(self) -> str:
        return f"{self.page}: {self.line}"


def shown(page: Path) -> list[Command]:
    """Give the commands of a page."""
    found = []
    for block in shell_blocks(page):
        folder = "."
        for line in block:
            line = " ".join(line.partition(" #")[0].split())
            found.append(Command(name_of(page), folder, line))
            if not line.startswith(tuple(STARTS)):
                folder += "".join(f"/{change}" for change in re.findall(r"\bcd (\S+)", line))
    return found


def exit_code_of(line: str) -> int:
    """Return the exit code that a documented command has."""
    return next((code for start, code in EXIT_CODES.items() if line.startswith(start)), 0)


STARTS = [start for starts in LEFT_OUT.values() for start in starts]
SHOWN = [command for page in PAGES for command in shown(page)]
WHOLE = [command for command in SHOWN if not command.line.startswith(tuple(STARTS))]
PROGRAMS = {
    "cd",
    "make",
    "git",
    "triglot",
    "python",
    "taskset",
    "pip",
    "ray",
    "docker",
    "mkdir",
    ".venv/bin/pip",
    "python3",
    ".",
}


@pytest.mark.parametrize("start", STARTS)
def test_what_is_left_out_is_on_a_page(start: str) -> None:
    assert any(command.line.startswith(start) for command in SHOWN)


def test_a_block_without_a_language_holds_commands() -> None:
    first = {re.sub(r"^(\w+=\S+ )+", "", command.line).split()[0] for command in SHOWN}
    assert first <= PROGRAMS


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make a folder for each page: the checkout without its runs, and the files of the pages."""
    found = {}
    for page in dict.fromkeys(command.page for command in WHOLE):
        folder = found[page] = tmp_path_factory.mktemp("page")
        for path in ROOT.iterdir():
            if path.name not in (".git", "runs"):
                (folder / path.name).symlink_to(path)
        for file, text in FILES.items():
            (folder / file).write_text(text)
        for path in filter(Path.is_file, READER.iterdir()):
            shutil.copy(path, folder)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("command", WHOLE, ids=str)
def test_a_documented_command_runs(command: Command, folders: dict[str, Path]) -> None:
    for word, package in EXTRAS.items():
        if word in command.line:
            pytest.importorskip(package, reason=f"{package} is not installed: triglot[{word}]")
    environment = {name: text for name, text in os.environ.items() if name not in OURS}
    for name, first in {"PYTHONPATH": ROOT, "PATH": Path(sys.executable).parent}.items():
        environment[name] = os.pathsep.join([str(first), *filter(None, [os.environ.get(name)])])
    done = subprocess.run(
        ["bash", "-c", command.line],
        cwd=folders[command.page] / command.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=MAX_SECONDS,
    )
    print(done.stdout[-10_000:])
    assert done.returncode == exit_code_of(command.line)
