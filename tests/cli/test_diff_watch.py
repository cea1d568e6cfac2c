"""`triglot diff --watch`: compares again after an edit, and survives the user's mistakes."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from triglot.cli import main as cli
from triglot.cli import watching
from triglot.diff.watching import edits

HAIKU = """
import haiku as hk
import jax.numpy as jnp

def net(x):
    return hk.nets.MLP([8, 2], activation=jnp.tanh)(x)
"""
PORT = """
import equinox as eqx
from watched_parts import activation

def net(key):
    return eqx.nn.MLP(4, 2, 8, 1, activation=activation, key=key)
"""
PARTS = "import jax\n\nactivation = jax.nn.relu\n"
Step = Callable[[], object]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("haiku", HAIKU), ("port", PORT), ("parts", PARTS)):
        (tmp_path / f"watched_{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)
    return tmp_path


def watch(
    monkeypatch: pytest.MonkeyPatch, steps: Sequence[Step], one: str, other: str, *options: str
) -> int:
    """Run the command with one step, such as an edit, after each comparison, and then Ctrl-C."""
    waiting: Iterator[Step] = (each for step in steps for each in (step, lambda: None))

    def sleep(seconds: float) -> None:
        step = next(waiting, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(watching, "edits", lambda sources, _: edits(sources, sleep))
    return cli.main(["diff", one, other, *options, "--watch"])


@pytest.mark.slow
def test_an_edit_of_what_a_network_imports_changes_the_verdict(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = folder / "watched_parts.py"
    steps = [lambda: parts.write_text(PARTS.replace("relu", "tanh"))]  # of the same size
    words = ("watched_haiku:net", "watched_port:net", "--obs-shape", "4", "--quick")
    assert watch(monkeypatch, steps, *words) == 0
    printed = capsys.readouterr()
    verdicts = [
        line.partition(":")[0]
        for line in printed.out.splitlines()
        if line.startswith(("different:", "equivalent:", "identical:"))
    ]
    assert len(verdicts) == 2 and verdicts[0] == "different" != verdicts[1]
    assert "watched_parts.py changed" in printed.err


@pytest.mark.slow
def test_a_syntax_error_is_one_sentence_and_the_next_edit_is_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = folder / "watched_port.py"
    port.write_text(f"{PORT}    return (\n")
    steps = [
        lambda: port.write_text(f"{PORT}\nraise OSError('no disk')\n"),
        lambda: (port.unlink(), port.write_text("net = 1 +\n")),
        lambda: port.write_text("import sys\nsys.exit(3)\n"),
        lambda: port.write_text(PORT),
    ]
    words = ("watched_haiku:net", "watched_port:net", "--obs-shape", "4", "--quick")
    assert watch(monkeypatch, steps, *words) == 0
    printed = capsys.readouterr()
    errors = [line for line in printed.err.splitlines() if line.startswith("triglot: error:")]
    assert len(errors) == 4
    assert "SyntaxError" in errors[0] and "watched_port.py" in errors[0]
    assert "no disk" in errors[1] and "SyntaxError" in errors[2] and "SystemExit" in errors[3]
    assert "Traceback" not in printed.err
    assert printed.out.startswith("different:")


@pytest.mark.slow
def test_a_loss_is_compared_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loss = folder / "watched_loss.py"
    loss.write_text("def loss(*batch)\n")
    text = "def loss(*batch):\n    return batch[0].sum() + batch[1].sum()\n"
    steps = [lambda: loss.write_text(text)]
    assert watch(monkeypatch, steps, "algorithm:ppo", "watched_loss:loss", "--quick") == 0
    printed = capsys.readouterr()
    assert "SyntaxError" in printed.err
    assert printed.out.startswith("different:")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["algorithm:ppo", "algorithm:ppo"], "--watch needs"),
        (["zoo:haiku", "zoo:linen", "--env", "probe:two-step"], "--watch needs"),
        (["algorithm:ppo", "watched_port:net", "--quick", "--thorough"], "--quick"),
        (["algorithm:ppo", "watched_port:net", "--obs-shape", "4"], "--obs-shape does not apply"),
        (["watched_haiku:net", "watched_port:net"], "give the inputs"),
        (["watched_haiku:net", "nowhere:net", "--obs-shape", "4"], "no module 'nowhere'"),
        (["watched_haiku:net", "watched_port", "--obs-shape", "4"], "name the object in it"),
    ],
)
def test_options_that_do_not_fit_end_the_command(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["diff", *words, "--watch"]) == 2
    assert sentence in capsys.readouterr().err
