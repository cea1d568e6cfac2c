"""`triglot completion`: the scripts offer the commands and options that exist."""

import shutil
import subprocess
from pathlib import Path

import pytest

from triglot.cli.completion import OPTIONS, SHELLS, completion_script
from triglot.cli.main import COMMANDS
from triglot.core.errors import TriglotError

# bash calls the function with the command, the unfinished word and the word before it.
ASK = """
source "$1"; shift
COMP_WORDS=(triglot "$@"); COMP_CWORD=$#; COMP_LINE="triglot $*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p triglot | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function triglot "${@: -1}" ""
echo "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "triglot"
    path.write_text(completion_script("bash"))
    return path


def test_every_command_is_offered() -> None:
    assert set(OPTIONS) == {*COMMANDS, "help"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sw"], {"sweep"}),
        (["train", "--num-s"], {"--num-seeds"}),
        (["train", "--target-upd"], {"--target-update-period"}),  # of one algorithm
        (["export", "--for"], {"--format"}),
    ],
)
def test_bash_completes(script: Path, words: list[str], offered: set[str]) -> None:
    ran = subprocess.run(
        ["bash", "-c", ASK, "bash", str(script), *words], capture_output=True, text=True, check=True
    )
    assert set(ran.stdout.split()) == offered, ran.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(shell: str) -> None:
    assert "--num-seeds" in completion_script(shell)


def test_an_unknown_shell_is_named() -> None:
    with pytest.raises(TriglotError, match="did you mean 'zsh'"):
        completion_script("zs")
