"""A damaged run: what is sound is kept, what is lost is told, and nothing is a traceback."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.faults.attacked import SMALL, STEPS_PER_UPDATE, fingerprint
from tests.printed import unwrapped
from triglot.cli.main import main
from triglot.core.errors import TriglotError, counted
from triglot.core.loop.checkpoint import Checkpoints
from triglot.runs.storage.journal import Journal, read_metrics

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def checkpoints(run: Path) -> Checkpoints:
    return Checkpoints(run / "checkpoints")


def last(run: Path) -> Path:
    return checkpoints(run).path(checkpoints(run).numbers()[-1])


def damage(checkpoint: Path) -> None:
    for file in (checkpoint / "d").iterdir():
        file.write_bytes(b"")


def test_a_damaged_checkpoint_is_set_aside_and_replaced(
    finished: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = checkpoints(run).numbers()[-1]
    damage(last(run))
    assert main(["resume", str(run)]) == 2
    assert f"resume {run} --previous" in capsys.readouterr().err
    assert main(["resume", str(run), "--previous"]) == 0
    assert fingerprint(run) == fingerprint(finished)
    assert (run / "checkpoints" / f"damaged-{number:08d}").is_dir()
    assert main(["resume", str(run)]) == 0  # the damaged one is not read again
    assert not list((run / "checkpoints").glob("damaged-*"))


MANIFESTS = ["[]", "null", "3", '{"d": 4}', "{", "\x00", '{"_METADATA": null}']


@pytest.mark.parametrize("text", MANIFESTS)
def test_a_malformed_manifest(text: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (last(run) / "manifest.json").write_text(text)
    assert main(["resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert "checkpoint" in said and "Traceback" not in said


LINES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "half a line": lambda lines: [*lines[:-1], lines[-1][:20]],
    "half a line in the middle": lambda lines: [*lines[:3], lines[3][:20], *lines[4:]],
    "a flipped byte": lambda lines: [lines[0].replace(b"{", b"\xfb", 1), *lines[1:]],
    "a flipped byte in a name": lambda lines: [lines[0].replace(b"loss", b"l0ss"), *lines[1:]],
    "a blank line": lambda lines: [*lines[:2], b"\n", *lines[2:]],
    "not UTF-8": lambda lines: [*lines[:2], b"\xff\xfe\n", *lines[3:]],
    "doubled": lambda lines: [*lines, *lines],
    "another number of seeds": lambda lines: [*lines[:2], b'{"update": 3, "env_steps": 48}\n'],
    "a later update": lambda lines: [lines[0].replace(b": 1,", b": 7,", 1), *lines[1:]],
    "no lines": lambda lines: [],
    "numbers": lambda lines: [b"3\n", b"null\n", *lines[2:]],
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_damaged_metrics_are_left_out(name: str, run: Path) -> None:
    path = run / "metrics.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(LINES[name](whole)))
    lost_updates = Journal(run, STEPS_PER_UPDATE).resume_after(len(whole))
    kept = path.read_bytes().splitlines(keepends=True)
    assert kept == [line for line in whole if line in kept]
    lost = [line for line in whole if line not in kept]
    assert lost_updates == [json.loads(line)["update"] for line in lost]
    assert main(["curves", str(run), "--out", str(run / "curves.png")]) == (0 if kept else 2)


@pytest.mark.covering(3)
@pytest.mark.parametrize("name", ["half a line in the middle", "doubled", "no lines"])
def test_damaged_metrics_do_not_stop_a_resume(
    name: str, finished: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "metrics.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    for number in checkpoints(run).numbers()[1:]:
        shutil.rmtree(checkpoints(run).path(number))  # so that training goes on
    done = checkpoints(run).numbers()[0]
    path.write_bytes(b"".join(LINES[name](whole)))
    assert main(["resume", str(run)]) == 0
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    mine, sound = fingerprint(run), fingerprint(finished)
    assert {**mine, "metrics": ""} == {**sound, "metrics": ""}
    kept = path.read_bytes().splitlines(keepends=True)
    lost = [line for line in whole if line not in kept]
    assert kept == [line for line in whole if line in kept]
    assert all(json.loads(line)["update"] <= done for line in lost)
    assert bool(lost) == (
        f"the metrics of {counted(len(lost), 'update')} are lost" in " ".join(said.out.split())
    )


def test_reading_keeps_the_order_and_the_numbers(finished: Path) -> None:
    lines = [json.loads(text) for text in (finished / "metrics.jsonl").read_text().splitlines()]
    env_steps, metrics = read_metrics(finished)
    assert env_steps.tolist() == [line["env_steps"] for line in lines]
    for name, values in metrics.items():
        written = np.array([line[name] for line in lines], np.float32).T
        np.testing.assert_array_equal(values, written, err_msg=name)
    assert set(read_metrics(finished, ["loss"])[1]) == {"loss"}


def test_metrics_that_cannot_be_read(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").mkdir()
    for command in (["resume", str(run)], ["curves", str(run)]):
        assert main(command) == 2
        assert "cannot be read: Is a directory" in capsys.readouterr().err


def emptied(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()


def removed(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


def a_file(run: Path) -> None:
    removed(run)
    (run / "checkpoints").touch()


@pytest.mark.parametrize(
    ("attack", "says"),
    [(emptied, "are gone"), (removed, "are gone"), (a_file, "cannot be read: Not a directory")],
)
@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_lost_checkpoints_never_start_from_zero(
    attack: Callable[[Path], None],
    says: str,
    command: str,
    run: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    attack(run)
    before = (run / "metrics.jsonl").read_bytes()
    assert main([command, str(run)]) == 2
    assert says in capsys.readouterr().err
    assert (run / "metrics.jsonl").read_bytes() == before


def test_a_run_killed_before_its_first_checkpoint_says_that_it_starts_again(
    finished: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    removed(run)
    (run / "progress.json").unlink()
    assert main(["resume", str(run)]) == 0
    assert "no checkpoint was written before: training starts" in unwrapped(capsys)
    assert fingerprint(run) == fingerprint(finished)


def test_a_lost_newest_checkpoint_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *_, before, newest = checkpoints(
        run
    ).numbers()  # how many updates lie between is a matter of time
    shutil.rmtree(last(run))
    assert main(["resume", str(run)]) == 0
    told = f"after {newest} updates is missing or damaged: continuing after {before}"
    assert told in unwrapped(capsys)


def test_a_kill_in_the_check_for_room_leaves_nothing(tmp_path: Path) -> None:
    """The reserved file has no name; what older versions left is removed."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / ".unfinished-00000003").write_bytes(b"x" * 1000)
    seen = []

    def stop(descriptor: int, offset: int, size: int) -> None:
        seen.append((size, os.listdir(folder)))
        raise SystemExit("killed")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(os, "posix_fallocate", stop)
        Checkpoints(folder).save(1, {"weights": np.ones(3)})
    assert seen[0][0] > 12 and seen[0][1] == [] == os.listdir(folder)


def test_other_versions_and_devices_are_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((run / "config.json").read_text())
    config["versions"]["jax"], config["device"] = "0.4.1", "tpu (v9) x 4"
    (run / "config.json").write_text(json.dumps(config))
    assert main(["resume", str(run)]) == 0
    said = unwrapped(capsys)
    assert "jax was 0.4.1 and is" in said and "the device was tpu (v9) x 4" in said


def test_every_kth_update_is_kept(tmp_path: Path) -> None:

    out = tmp_path / "thin"
    command = [*SMALL.split(), "--out", str(out)]
    assert main([*command, "--metrics-every", "3"]) == 0
    assert read_metrics(out)[0].tolist() == [48, 96]
    assert checkpoints(out).numbers()[-1] == 8
    before = (out / "metrics.jsonl").read_bytes()
    shutil.rmtree(last(out))
    assert main(["resume", str(out)]) == 0
    assert (out / "metrics.jsonl").read_bytes() == before


def test_a_link_in_a_run_folder_is_not_written_through(run: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name in ("summary.json", "metrics.jsonl", f".unfinished-{os.getpid()}-summary.json"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(precious)
    assert main(["resume", str(run)]) == 2
    assert precious.read_text() == "mine"


def test_an_unusable_checkpoint_number(tmp_path: Path) -> None:
    with pytest.raises(TriglotError, match="no checkpoint in"):
        Checkpoints(tmp_path / "nowhere").restore({})
