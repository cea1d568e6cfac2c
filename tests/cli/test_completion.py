"""`triglot completion`: the scripts offer the commands, options and values that exist."""

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

from triglot.cli.completion import SHELLS, completion_script
from triglot.cli.main import COMMANDS
from triglot.cli.options import OPTIONS
from triglot.core.errors import TriglotError

START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
PROMPT = "ready> "
TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"


class Shell:
    """An interactive shell in a terminal, in which a person types.

    Args:
      name: bash or zsh.
      folder: where it stands; holds the completion script, `script`.
    """

    def __init__(self, name: str, folder: Path) -> None:
        clean = {"TERM": "dumb", "PS1": PROMPT, "PROMPT": PROMPT, "COLUMNS": "400"}
        clean["PATH"] = f"{folder}:{os.environ['PATH']}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", TERMINAL, *START[name]],
            cwd=folder,
            env=os.environ | clean,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.until(PROMPT)
        self.type("source ./script; echo loa''ded\n")
        self.until("loaded")
        self.until(PROMPT)

    def type(self, keys: str) -> None:
        """Press keys."""
        assert self.process.stdin is not None
        self.process.stdin.write(keys.encode())

    def until(self, text: str, seconds: float = 30) -> str:
        """Read until a text is shown.

        Raises:
          AssertionError: with all that is shown, if it is not.
        """
        output, shown, end = self.process.stdout, "", time.monotonic() + seconds
        assert output is not None
        while text not in shown:
            left = end - time.monotonic()
            assert left > 0 and select.select([output], [], [], left)[0], repr(shown)
            shown += output.read(1).decode(errors="replace")
        return shown

    def completed(self, typed: str) -> str:
        """Type a line, press Tab, and end the word with a mark; return the line as completed."""
        self.type(typed + "\t")
        self.type("^\n")  # stands at the cursor, so that a space before it is seen
        shown = self.until("^")
        self.until(PROMPT)
        screen = pyte.Screen(400, 50)
        pyte.Stream(screen).feed(shown)
        (line,) = (line for line in screen.display if "^" in line)
        return line.partition("^")[0]

    def close(self) -> None:
        """End the shell."""
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module", params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp("completion")
    (folder / "script").write_text(completion_script(request.param))
    (folder / "runs" / "first run").mkdir(parents=True)
    (folder / "settings.toml").touch()
    # Prints the names of a suite when it is asked for them; any other call does nothing.
    command = folder / "triglot"
    command.write_text(f'#!/bin/sh\n[ "$1" = list ] && exec {sys.executable} -m triglot "$@"\n')
    command.chmod(0o755)
    started = Shell(request.param, folder)
    yield started
    started.close()


def test_every_command_is_offered() -> None:
    assert set(OPTIONS) == {*COMMANDS, "help"}


@pytest.mark.covering(10)
@pytest.mark.parametrize(
    ("typed", "added"),
    [
        ("triglot sw", "eep "),
        ("triglot help comp", ""),  # compare and completion
        ("triglot train pp", "o "),
        ("triglot train ppo gymn", "a"),  # gymnax: and gymnasium:
        ("triglot train ppo gymnax", ":"),
        ("triglot train ppo gridworld:8", "x8 "),
        ("triglot train ppo probe:two-s", "tep "),
        ("triglot train ppo x --num-se", "eds "),
        ("triglot train ppo x --target-upd", "ate-period "),
        ("triglot train ppo x --no-norm", "alize-"),
        ("triglot train ppo x --backend eq", "uinox "),
        ("triglot train ppo x --backend=eq", "uinox "),
        ("triglot train ppo x --backend run", ""),  # no folder
        ("triglot train ppo x --num-seeds run", ""),
        ("triglot train --backend nnx sa", "c "),
        ("triglot train --no-preset sa", "c "),
        ("triglot train ppo x --log tensorboard wa", "ndb "),
        ("triglot train ppo x --cell ls", "tm "),
        ("triglot train --config sett", "ings.toml "),
        ("triglot resume ru", "ns/"),
        ("triglot resume runs/f", r"irst\ run/"),
        ("triglot curves a ru", "ns/"),
        ("triglot evaluate runs --checkpoint b", "est "),
        ("triglot export runs --format st", "ablehlo "),
        ("triglot compare ppo x --backends haiku li", "nen "),
        ("triglot compare ppo x --envs y gridworld:8", "x8 "),
        ("triglot new algorithm x --like dq", "n "),
        ("triglot new alg", "orithm "),
        ("triglot list pre", "sets "),
        ("triglot check ppo --kind env", "ironment "),
    ],
)
def test_tab_completes(shell: Shell, typed: str, added: str) -> None:
    assert shell.completed(typed).endswith(typed + added)


@pytest.mark.covering(2)
@pytest.mark.parametrize("name", SHELLS)
def test_every_shell_has_a_script(name: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(completion_script(name))
    assert "--num-seeds" in script.read_text()
    if shutil.which(name):
        subprocess.run([name, "-n", str(script)], check=True)


def test_an_unknown_shell_is_named() -> None:
    with pytest.raises(TriglotError, match="did you mean 'zsh'"):
        completion_script("zs")
