"""Two programs never write one run, and a dead one does not block it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from triglot.cli.main import main
from triglot.core.errors import TriglotError
from triglot.runs.storage.records import locked
from triglot.shared.machine.files import HOLDER, check_free, make_new_folder

pytestmark = pytest.mark.packaging

HOLD = """
import sys, time
from pathlib import Path
from triglot.runs.storage.records import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_the_holder_is_named_and_its_death_frees_the_run(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    with pytest.raises(TriglotError, match=f"in use by process {holder.pid} on .*: wait"):
        locked(tmp_path).__enter__()
    holder.kill()
    holder.communicate()
    with locked(tmp_path):
        assert json.loads((tmp_path / HOLDER).read_text())["pid"] == os.getpid()


def test_a_run_in_use_is_not_resumed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    before = (run / "metrics.jsonl").read_bytes()
    try:
        assert main(["resume", str(run)]) == 2
        assert f"in use by process {process.pid}" in capsys.readouterr().err
    finally:
        process.kill()
        process.communicate()
    assert (run / "metrics.jsonl").read_bytes() == before
    assert main(["resume", str(run)]) == 0


def test_default_folders_never_collide(tmp_path: Path) -> None:
    made = [make_new_folder(tmp_path / "runs" / "ppo") for _ in range(3)]
    assert [folder.name for folder in made] == ["ppo", "ppo-2", "ppo-3"]


def test_programs_that_start_together_get_different_folders(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from triglot.shared.machine.files import make_new_folder\n"
        "time.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
        "print(make_new_folder(Path(sys.argv[1])))"
    )
    together = str(time.time() + 2)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "run"), together],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    folders = [process.communicate()[0].strip() for process in processes]
    assert len(set(folders)) == len(folders) == 6 and all(Path(path).is_dir() for path in folders)


def test_what_a_killed_program_left_does_not_occupy_a_folder(tmp_path: Path) -> None:
    for name in (".lock", HOLDER, ".unfinished-17-config.json"):
        (tmp_path / name).write_text("{")
    check_free(tmp_path)
    with locked(tmp_path):
        assert not (tmp_path / ".unfinished-17-config.json").exists()
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(TriglotError, match="not empty"):
        check_free(tmp_path)


def test_a_folder_left_before_the_options_were_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".lock").touch()
    assert main(["resume", str(tmp_path)]) == 2
    assert "stopped before it began. Start it again with" in capsys.readouterr().err
