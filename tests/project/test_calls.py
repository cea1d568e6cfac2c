"""The benchmark of single calls runs, and reproduces its finding about NNX."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # benchmarks are not installed

from benchmarks import calls  # noqa: E402


def test_calls_are_timed_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calls, "SECONDS_PER_ROUND", 0.003)
    monkeypatch.setattr(calls, "SCAN_LENGTH", 20)
    calls.main(rounds=5, json=tmp_path / "calls.json")
    result = json.loads((tmp_path / "calls.json").read_text())
    printed = capsys.readouterr().out
    assert len(result["forms"]) == 9 and result["noise"]["sentence"] in printed
    for name, row in result["forms"].items():
        assert name in printed
        for found in row.values():
            assert 0 < found["low"] <= found["median"] <= found["high"]
    per_call = {name: row["call_microseconds"]["median"] for name, row in result["forms"].items()}
    assert per_call["nnx: nnx.jit"] > 2 * per_call["nnx: our adapter, jax.jit"]
