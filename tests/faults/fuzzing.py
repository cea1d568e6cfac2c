"""Damaged and made-up files for each parser of files that other people may have written.

`python -m tests.faults.fuzzing metrics --minutes 12` tries one parser for as long, with new inputs
each time, and says how many there were.
"""

import argparse
import io
import json
import shutil
import struct
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from triglot.cli.main import main
from triglot.core.errors import TriglotError
from triglot.diff.porting.files import read_weights
from triglot.diff.porting.recordings.reading import read_recording
from triglot.runs.monitoring.listing import list_runs
from triglot.runs.options import RunsOptions
from triglot.runs.storage.config import options_of_run
from triglot.runs.storage.journal import last_metrics, read_metrics

TOKENS = [
    b"", b"0", b"-1", b"1e999", b"NaN", b"-Infinity", b"1" * 400, b"9223372036854775808", b"null",
    b"true", b'""', b"[]", b"{}", b"[" * 3000, b'{"a":' * 2000, b"\x00", b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\\ud800", b"\n", b"\r", b"\x1b[2J", b"../" * 9, b"/dev/zero", b"\xe2\x80\xae", "²".encode(),
    b"1_0", b"0x10", b"[config]", b"a.b.c = 1\n", b"seed = true\n", b"'''", b"1979-05-27", b",",
    b":",
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(2**63), 2**63, 2**31])
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["\x1b[2J", "\ud800", "a\nb", "../../x", "self", "[" * 2000, "inf", "1e400"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@st.composite
def edited(draw: st.DrawFn, genuine: bytes) -> bytes:
    """Cut, repeat and replace parts of a file, or leave it as it is."""
    data = genuine
    for _ in range(draw(st.integers(0, 6))):
        first = draw(st.integers(0, len(data)))
        last = draw(
            st.integers(first, min(len(data), first + draw(st.sampled_from([0, 1, 9, 200]))))
        )
        new = draw(st.sampled_from(TOKENS) | st.binary(max_size=12) | st.just(data[first:last] * 2))
        data = data[:first] + new + data[last:]
    return data


@st.composite
def replaced(draw: st.DrawFn, genuine: Any) -> Any:
    """Replace, add or remove values of a JSON tree."""
    tree = json.loads(json.dumps(genuine))
    for _ in range(draw(st.integers(1, 3))):
        parent: Any = None
        name: Any = None
        node = tree
        while isinstance(node, dict | list) and node and (parent is None or draw(st.booleans())):
            names = list(node) if isinstance(node, dict) else range(len(node))
            parent, name = node, draw(st.sampled_from(names))
            node = node[name]
        if parent is None:
            return draw(VALUES)
        change = draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "remove":
            del parent[name]
        elif isinstance(parent, dict) and change == "add":
            parent[draw(st.text(max_size=8))] = draw(VALUES)
        else:
            parent[name] = draw(VALUES)
    return tree


def as_json(tree: Any) -> bytes:
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def configs(run: Path) -> st.SearchStrategy[bytes]:
    genuine = (run / "config.json").read_bytes()
    return edited(genuine) | replaced(json.loads(genuine)).map(as_json) | VALUES.map(as_json)


def metrics(run: Path) -> st.SearchStrategy[bytes]:
    genuine = (run / "metrics.jsonl").read_bytes()
    lines = [json.loads(line) for line in genuine.splitlines()]
    changed = replaced(lines).filter(lambda tree: isinstance(tree, list))
    return edited(genuine) | changed.map(lambda tree: b"\n".join(map(as_json, tree)) + b"\n")


def safetensors(run: Path) -> st.SearchStrategy[bytes]:
    del run
    genuine = save({"a": np.ones((2, 3), np.float32), "b": np.arange(4)}, metadata={"k": "v"})
    size = int.from_bytes(genuine[:8], "little")
    header, arrays = json.loads(genuine[8 : 8 + size]), genuine[8 + size :]
    return edited(genuine) | st.tuples(replaced(header), st.just(arrays)).map(with_header)


def with_header(parts: tuple[Any, bytes]) -> bytes:
    text = as_json(parts[0])
    return struct.pack("<Q", len(text)) + text + parts[1]


def recordings(run: Path) -> st.SearchStrategy[bytes]:
    del run
    call = {
        "name": "", "class": "Net", "library": "a", "settings": {}, "called_at": "a.py:1",
        "defined_at": "a.py:1",
        "parent": None, "finished": 2, "inputs": ["x"], "outputs": ["y"], "weights": ["w"],
    }  # fmt: skip
    inner = {**call, "name": "inner", "parent": 0, "finished": 2}
    content = {
        "library": "torch", "calls": [call, inner], "inputs": ["x"], "outputs": ["y"],
        "train": False, "notes": [],
    }  # fmt: skip
    array = np.ones(2, np.float32)

    def write(tree: Any) -> bytes:
        facts = {"format": "triglot.record", "version": "1", "content": json.dumps(tree)}
        return save({"x": array, "y": array, "weights/w": array}, metadata=facts)

    return edited(write(content)) | replaced(content).map(write)


def tomls(run: Path) -> st.SearchStrategy[bytes]:
    del run
    genuine = (
        b'algorithm = "ppo"\nenv = "probe:two-step"\nseed = 3\nnum_seeds = 2\ntotal_steps = 128\n'
        b'backend = "linen"\nlog = ["csv"]\n[config]\nnum_envs = 2\nrollout_length = 8\n'
        b'hidden_sizes = [8]\n[hyper]\nlearning_rate = 1e-3\ndiscount = "0.9"\n'
    )
    return edited(genuine)


def read_config_of(run: Path) -> None:
    options_of_run(run)
    list_runs(RunsOptions(folder=run.parent))


def read_metrics_of(run: Path) -> None:
    last_metrics(run)
    read_metrics(run)


def read_toml(path: Path) -> None:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        code = main(["train", "--config", str(path), "--print-config"])
    assert code in (0, 2) and "Traceback" not in said.getvalue(), said.getvalue()


@dataclass(frozen=True)
class Parser:
    """One parser: which file it reads, what is tried, and the call with the file's path."""

    file: str
    inputs: Callable[[Path], st.SearchStrategy[bytes]]
    read: Callable[[Path], Any]


PARSERS = {
    "config": Parser("config.json", configs, lambda path: read_config_of(path.parent)),
    "metrics": Parser("metrics.jsonl", metrics, lambda path: read_metrics_of(path.parent)),
    "recording": Parser("r.safetensors", recordings, read_recording),
    "safetensors": Parser("w.safetensors", safetensors, read_weights),
    "toml": Parser("options.toml", tomls, read_toml),
}


def fuzz(name: str, run: Path, *, examples: int) -> int:
    """Try a parser on files of which none may end in anything but a TriglotError.

    Args:
      name: of the parser.
      run: a finished run, whose files are overwritten.
      examples: how many files.

    Returns:
      How many were read without an error.
    """
    parser, path, num_read = PARSERS[name], run / PARSERS[name].file, 0

    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    @given(parser.inputs(run))
    def one(data: bytes) -> None:
        nonlocal num_read
        path.write_bytes(data)
        try:
            parser.read(path)
            num_read += 1
        except TriglotError as error:
            assert str(error)

    one()
    return num_read


def _command() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parser", choices=PARSERS)
    options.add_argument("--minutes", type=float, default=12.0)
    options.add_argument("--run", type=Path, required=True, help="a finished run, which is copied")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    started, num_tried, num_read = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - started < 60 * chosen.minutes:
            run = Path(folder) / f"run{num_tried}"
            shutil.copytree(chosen.run, run)
            num_read += fuzz(chosen.parser, run, examples=500)
            num_tried += 500
            shutil.rmtree(run)
    print(f"{chosen.parser}: {num_tried:,} files, {num_read:,} read, the others refused")


if __name__ == "__main__":
    _command()
