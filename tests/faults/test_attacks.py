"""A run folder that another person sends is data: it reaches nothing outside, and ends nothing.

Each attack is a change of a finished run; each command must refuse it in a sentence, or report it
and go on, within little time and memory.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.faults.attacked import SMALL
from tests.printed import unwrapped
from triglot.cli.main import main
from triglot.core.errors import TriglotError, masked, printable
from triglot.core.folders import MAX_RECORD, NotPlain, require_plain
from triglot.core.loop.checkpoint import Checkpoints
from triglot.diff.page import _excerpt
from triglot.diff.porting.files import read_weights
from triglot.diff.porting.recordings.reading import read_recording
from triglot.runs.monitoring.listing import list_runs
from triglot.runs.options import RunsOptions
from triglot.runs.storage.journal import Journal, MetricsChanged, last_metrics, read_metrics
from triglot.runs.storage.records import HOLDER, locked, recorded, state_of
from triglot.shared.machine.files import COUNT, DamagedRecord, plain, read_record

pytestmark = pytest.mark.packaging

COMMANDS = ("resume", "evaluate", "render", "watch", "curves")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of another program, with files and a folder of digits."""
    folder = tmp_path / "outside"
    (folder / "20190101").mkdir(parents=True)
    (folder / "20190101" / "photo").write_text("mine")
    (folder / "file").write_text("mine")
    return folder


def contents(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


FOLDERS = ("best", "checkpoints", "kept", "tensorboard", "profile")
FILES = (
    "config.json", "progress.json", "summary.json", "best.json", "metrics.jsonl", ".lock",
    ".holder.json", "learning_curve.png", "values.png", "population.png", "evaluation.json",
)  # fmt: skip


@pytest.mark.parametrize("name", [*FOLDERS, *FILES, "checkpoints/00000003", "some/deep/link"])
def test_no_command_follows_a_link(name: str, run: Path, outside: Path) -> None:
    before, path = contents(outside), run / name
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside / "file" if name in FILES else outside)
    for command in COMMANDS:
        assert main([command, str(run)]) == 2, command
    assert contents(outside) == before


@pytest.mark.parametrize("name", ["config.json", "progress.json", "metrics.jsonl", "note"])
def test_a_pipe_does_not_hang(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    for command in COMMANDS:
        assert main([command, str(run)]) == 2
        assert "is a named pipe" in unwrapped(capsys, "err")


def test_the_folder_itself_may_be_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(run)
    assert main(["watch", str(tmp_path / "latest")]) == 0


def test_weights_and_biases_keeps_links_of_its_own(run: Path, outside: Path) -> None:
    (run / "wandb").mkdir()
    (run / "wandb" / "latest-run").symlink_to(outside)
    require_plain(run)
    shutil.rmtree(run / "wandb")
    (run / "wandb").symlink_to(outside)
    with pytest.raises(NotPlain):
        require_plain(run)


def test_only_names_of_its_own_form_are_checkpoints(tmp_path: Path) -> None:
    for name in ("00000003", "123456789", "²0000000", "0000003", "+0000003", "٠٠٠٠٠٠٠٣"):
        (tmp_path / name).mkdir()
    assert Checkpoints(tmp_path).numbers() == [3, 123456789]


def test_an_endless_record_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    with path.open("wb") as file:
        file.truncate(MAX_RECORD + 1)  # sparse
    with pytest.raises(DamagedRecord, match="bytes"):
        read_record(path, {})


# What a record may hold instead of what was written, by the file.
RECORDS: dict[str, list[Any]] = {
    "summary.json": [
        {"x": 1}, {"evaluation": {"x": 1}}, {"evaluation": {"return_mean": "abc"}},
        {"evaluation": {"return_mean": 10**400}}, {"num_updates": 10**400}, {"num_updates": -1},
        {"num_updates": True}, {"reached": {"return": "x"}}, {"num_steps": "9"},
    ],
    "progress.json": [{}, {"num_updates": None}, {"num_updates": 1.5}, {"num_updates": 10**30}],
    ".holder.json": [
        {"pid": -1}, {"pid": 0}, {"pid": 10**400}, {"pid": "1"}, {"host": 3}, {"since": None},
    ],
}  # fmt: skip
CASES = [(name, change) for name, changes in RECORDS.items() for change in changes]


@pytest.mark.parametrize(("name", "change"), CASES, ids=lambda value: str(value)[:40])
def test_a_wrong_value_is_reported_and_ends_no_list(
    name: str, change: dict[str, Any], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {"pid": 1, "host": "here", "since": "then", "started": 0.0}
    path = run / name
    if path.exists():
        whole = json.loads(path.read_text())
    path.write_text(json.dumps(change if change in ({}, {"x": 1}) else {**whole, **change}))
    with pytest.raises(DamagedRecord):
        recorded(run, name)
    assert "damaged" in list_runs(RunsOptions(folder=run.parent))
    assert main(["watch", str(run)]) == 2
    assert f"{name} is damaged" in unwrapped(capsys, "err")


NESTED = "[" * 100_000
TEXTS = [NESTED, '{"a":' + NESTED, "3", "null", '"x"', "\x00", "{", '{"num_updates": 1e999}', ""]


@pytest.mark.parametrize("name", ["config.json", "summary.json", "progress.json", "best.json"])
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_record_that_is_no_record(
    name: str, text: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).write_text(text)
    with pytest.raises(TriglotError):
        read_record(run / name, {"num_updates": COUNT})
    table = list_runs(RunsOptions(folder=run.parent))
    assert "…" in table or run.name in table
    assert name == "best.json" or "damaged" in table


@pytest.mark.parametrize(
    "fields",
    [
        {"num_steps": 0}, {"num_updates": 0}, {"num_seeds": -1}, {"steps_per_update": None},
        {"network": [1]}, {"network": "x"}, {"config": []}, {"env": 3}, {"changes": [1]},
        {"env": "gymnax:CartPole-v1\nforged  finished"}, {"backend": "linen\x1b[2J"},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_options(
    fields: dict[str, Any], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, **fields}))
    for command in COMMANDS:
        assert main([command, str(run)]) == 2
    said = capsys.readouterr()
    assert "config.json is damaged" in said.err and "\x1b" not in said.err + said.out
    table = list_runs(RunsOptions(folder=run.parent))
    assert "damaged" in table and "forged" not in table


LINES = [
    b'{"update": 1, "env_steps": 16, "episode_return": []}\n',
    b'{"update": 1, "env_steps": 16, "episode_return": [1, 2], "loss": [1]}\n',
    b'{"update": 1, "env_steps": 1' + b"0" * 400 + b', "episode_return": [1, 2]}\n',
    b'{"update": 1, "env_steps": 16, "episode_return": [1' + b"0" * 400 + b", 2]}\n",
    b'{"update": true, "env_steps": 16, "episode_return": [1, 2]}\n',
    b'{"update": 1, "env_steps": 16, "episode_return": ' + NESTED.encode() + b"}\n",
]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_a_line_that_no_journal_writes(line: bytes, run: Path) -> None:
    path = run / "metrics.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([line, *whole[1:]]))
    for names in (None, ["episode_return"]):
        assert np.isfinite(read_metrics(run, names)[1]["episode_return"][:, 1:]).all()
    path.write_bytes(line)
    assert last_metrics(run) == {}
    assert Journal(run, 16).resume_after(8) == list(range(1, 9))
    assert main(["curves", str(run), "--out", str(run / "x.png")]) == 2


def test_names_reach_neither_the_terminal_nor_a_plot_raw(run: Path, tmp_path: Path) -> None:
    named = run.rename(tmp_path / "a$b_\x1b[2J\nforged  finished  $x")
    table = list_runs(RunsOptions(folder=tmp_path))
    assert "\x1b" not in table and not any(line.startswith("forged") for line in table.splitlines())
    other = shutil.copytree(named, tmp_path / "other$")
    out = tmp_path / "both.png"
    assert main(["curves", str(named), str(other), "--out", str(out)]) == 0
    assert out.stat().st_size > 1000
    assert printable("a\u202eb\x9b") == "a\\u202eb\\x9b"


def test_passwords_are_hidden() -> None:
    text = "--storage postgresql://a:SE@CRET@host:5/db"
    assert masked(text) == "--storage postgresql://a:***@host:5/db"
    assert str(TriglotError(text)) == masked(text)
    assert "SECRET" not in masked(str(Path("postgresql://a:SECRET@host/db")))
    assert masked("http://host:80/x, ssh://me@host") == "http://host:80/x, ssh://me@host"


def test_a_page_shows_only_code_of_this_program() -> None:
    assert _excerpt(f"{Path(__file__).resolve()}:1") is not None
    assert _excerpt("/etc/passwd:1") is None


# --- changes while a program writes the run


def test_a_folder_that_is_removed_is_not_made_again(run: Path) -> None:
    journal = Journal(run, 16)
    journal.resume_after(8)
    kept = run.rename(run.with_name("kept"))
    with pytest.raises(TriglotError, match="was removed, moved or replaced"):
        journal.add_chunk({"episode_return": np.ones((2, 1))})
    assert not run.exists()
    run.mkdir()  # another program's
    with pytest.raises(TriglotError, match="was removed, moved or replaced"):
        journal.check_folder()
    assert list(run.iterdir()) == [] and kept.exists()


@pytest.mark.parametrize("text", ["", "x\n"], ids=["emptied", "replaced"])
def test_metrics_that_change_during_the_training_are_noticed(text: str, run: Path) -> None:
    journal = Journal(run, 16)
    journal.resume_after(8)
    journal.add_chunk({"episode_return": np.ones((2, 1))})
    (run / "metrics.jsonl").write_text(text)
    with pytest.raises(MetricsChanged, match="another program changed"):
        journal.add_chunk({"episode_return": np.ones((2, 3))})
    assert journal.num_updates == 12  # they are done, and only their metrics are lost


def test_metrics_that_are_emptied_while_a_chunk_is_written_are_noticed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, lines = Journal(run, 16), 0

    def emptying(line: Any) -> Any:
        nonlocal lines
        lines += 1
        if lines == 4000:  # more than a buffer is in the file
            os.truncate(run / "metrics.jsonl", 0)
        return plain(line)

    journal.resume_after(8)
    monkeypatch.setattr("triglot.runs.storage.journal.plain", emptying)
    with pytest.raises(MetricsChanged, match="another program changed"):
        journal.add_chunk({"episode_return": np.ones((2, 8000))})
    assert journal.num_updates == 8008


def test_a_deleted_lock_does_not_let_a_second_program_in(run: Path) -> None:
    code = "import sys; from pathlib import Path\n"
    code += "from triglot.runs.storage.records import locked\n"
    code += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(run)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        (run / ".lock").unlink()
        assert state_of(run) == "running"
        with pytest.raises(TriglotError, match=f"in use by process {holder.pid}"), locked(run):
            pass
        holder.communicate("")
    assert not (run / HOLDER).exists()
    with locked(run):
        pass


def test_the_name_of_a_killed_program_is_no_holder(run: Path) -> None:
    with locked(run):
        named = (run / HOLDER).read_text()
    record = json.loads(named)
    (run / HOLDER).write_text(json.dumps({**record, "started": record["started"] - 60.0}))
    with locked(run):  # this process got the number of one that had begun earlier
        pass


# --- what does not belong together


def newest(run: Path) -> Path:
    checkpoints = Checkpoints(run / "checkpoints")
    return checkpoints.path(checkpoints.numbers()[-1])


def test_a_renamed_checkpoint_is_noticed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest(run).rename(newest(run).with_name("00001080"))
    for command in ("resume", "evaluate"):
        assert main([command, str(run)]) == 2
        assert "its name says 1,080" in unwrapped(capsys, "err")


def test_a_checkpoint_of_another_seed_is_noticed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    assert main([*SMALL.split(), "--seed", "7", "--out", str(other)]) == 0
    shutil.rmtree(newest(run))
    shutil.copytree(newest(other), newest(other.parent / "run").with_name(newest(other).name))
    for command in ("resume", "evaluate"):
        assert main([command, str(run)]) == 2
        assert "another seed" in unwrapped(capsys, "err")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hyper": {"learning_rate": 0.5}}, "learning_rate is 0.5"),
        ({"config": {"num_epochs": 2}}, "num_epochs is 2 and was 1"),
        ({"env": "probe:two-step,reward_scale=3"}, "env is"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd' and was None"),
        ({"total_steps": 256}, "total_steps is 256 and was 128"),
    ],
    ids=str,
)
def test_edited_options_are_not_obeyed_silently(
    change: dict[str, Any], says: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((run / "config.json").read_text())
    for name, value in change.items():
        config[name] = {**config[name], **value} if isinstance(value, dict) else value
    (run / "config.json").write_text(json.dumps(config))
    assert main(["resume", str(run)]) == 2
    said = unwrapped(capsys, "err")
    assert says in said or "has no arrays" in said or "belongs to another training" in said


def test_an_extended_run_is_as_it_was_trained(run: Path) -> None:
    assert main(["resume", str(run), "--total-steps", "256", "--learning-rate", "1e-3"]) == 0
    assert main(["resume", str(run)]) == 0


def test_evaluate_says_what_differs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((run / "config.json").read_text())
    config["versions"]["jax"], config["hyper"]["learning_rate"] = "0.4.1", 0.5
    (run / "config.json").write_text(json.dumps(config))
    assert main(["evaluate", str(run), "--episodes", "2"]) == 0
    said = unwrapped(capsys)
    assert "jax was 0.4.1 and is" in said and "learning_rate is 0.5" in said


# --- files of weights and recordings


@pytest.mark.parametrize("suffix", [".npz", ".eqx"])
def test_a_small_file_that_declares_much(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"weights{suffix}"
    array = np.lib.format
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**12,)}
    if suffix == ".eqx":
        with path.open("wb") as file:
            array.write_array_header_1_0(file, header)
            file.write(bytes(8))
    else:
        import zipfile

        with zipfile.ZipFile(path, "w") as archive, archive.open("w.npy", "w") as stream:
            array.write_array_header_1_0(stream, header)
            stream.write(bytes(8))
    with pytest.raises(TriglotError, match="needs 4,000,000,000,000 bytes"):
        read_weights(path)


@pytest.mark.parametrize("kind", ["external", "virtual"])
def test_an_hdf5_file_shows_no_other_file(kind: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    (tmp_path / "secret").write_bytes(b"password")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["a"] = np.frombuffer(b"password", np.uint8)
    with h5py.File(tmp_path / "w.weights.h5", "w") as file:
        if kind == "external":
            file.create_dataset("a", (8,), "u1", external=[(str(tmp_path / "secret"), 0, 8)])
        else:
            layout = h5py.VirtualLayout((8,), "u1")
            layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "a", (8,))
            file.create_virtual_dataset("a", layout)
    with pytest.raises(TriglotError, match="another file"):
        read_weights(tmp_path / "w.weights.h5")


def test_hard_links_are_not_written_through(run: Path, outside: Path) -> None:
    names = [path.name for path in run.iterdir() if path.is_file()]
    for name in names:
        shutil.move(run / name, outside / name)
        os.link(outside / name, run / name)
    before = {name: (outside / name).read_bytes() for name in names}
    more = ["--total-steps", "256", "--learning-rate", "1e-3"]
    assert main(["resume", str(run), *more]) == 0
    assert {name: (outside / name).read_bytes() for name in names} == before
    assert json.loads((run / "summary.json").read_text())["num_updates"] == 16


@pytest.mark.covering(2)
@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.json", "progress.json", "config.json"])
def test_a_folder_in_place_of_a_file(name: str, run: Path) -> None:
    (run / name).unlink()
    (run / name).mkdir()
    more = ["--total-steps", "256", "--learning-rate", "1e-3"]
    assert main(["resume", str(run), *more]) == 2
    assert main(["runs", str(run.parent)]) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"num_seeds": 10**9}, {"config": {"num_envs": 10**9}},
        {"config": {"hidden_sizes": [10**9]}},
        {"env": "gridworld:99999x99999"}, {"total_steps": 10**30}, {"env": "probe:\u202etwo-step"},
        {"algorithm": []},
    ],
    ids=str,
)  # fmt: skip
def test_sizes_and_names_that_no_run_has(changes: dict[str, Any], run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    for name, value in changes.items():
        config[name] = {**config[name], **value} if isinstance(value, dict) else value
    (run / "config.json").write_text(json.dumps(config))
    for command in ("resume", "evaluate"):
        assert main([command, str(run)]) == 2


def test_thousands_of_metrics_and_a_line_without_end(run: Path) -> None:
    path = run / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.update({f"m{number}": line["entropy"] for number in range(5000)})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with path.open("ab") as file:
        file.write(b'{"update":' + b"[" * 50_000_000)
    for command in ("watch", "curves"):
        assert main([command, str(run)]) == 0


def call(**changes: Any) -> dict[str, Any]:
    plain = {
        "name": "", "class": "Net", "library": "a", "settings": {}, "called_at": "",
        "defined_at": "", "parent": None, "finished": 1, "inputs": ["x"], "outputs": ["y"],
        "weights": [],
    }  # fmt: skip
    return {**plain, **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"parent": 0}, {"parent": 3}, {"parent": -1}, {"parent": "0"}, {"finished": 0},
        {"finished": 9}, {"weights": ["nope"]}, {"class": "Net\x1b[2J"}, {"name": "a\nb"},
        {"class": 3}, {"inputs": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_recording_that_contradicts_itself(changes: dict[str, Any], tmp_path: Path) -> None:
    arrays = {"x": np.ones(2, np.float32), "y": np.ones(2, np.float32)}

    def write(calls: list[dict[str, Any]]) -> Path:
        content = {
            "library": "torch", "calls": calls, "inputs": ["x"], "outputs": ["y"], "train": False,
            "notes": [],
        }  # fmt: skip
        facts = {"format": "triglot.record", "version": "1", "content": json.dumps(content)}
        save_file(arrays, tmp_path / "r.safetensors", metadata=facts)
        return tmp_path / "r.safetensors"

    assert read_recording(write([call()])).calls
    with pytest.raises(TriglotError, match="damaged recording"):
        read_recording(write([call(**changes)]))


def test_arrays_of_a_recording_are_not_copies_of_the_file(tmp_path: Path) -> None:
    import tracemalloc

    from triglot.diff.porting.recordings.reading import read_safetensors

    arrays = {f"w{index}": np.ones(10_000, np.float32) for index in range(100)}
    save_file(arrays, tmp_path / "r.safetensors")
    size = (tmp_path / "r.safetensors").stat().st_size
    tracemalloc.start()
    read_safetensors(tmp_path / "r.safetensors")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * size
