"""Deferred modules are loaded once, by the first use of one of their names."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.source import ROOT
from triglot.experiments.deferred import defer


def test_a_module_is_loaded_by_its_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_load").mkdir()
    log = tmp_path / "log"
    code = f"open({str(log)!r}, 'a').write('loaded ')\nanswer = 42\n"
    (tmp_path / "slow_to_load" / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    defer(["slow_to_load", "no_such_module"])
    defer(["slow_to_load", "no_such_module"])
    assert len([f for f in sys.meta_path if "slow_to_load" in getattr(f, "names", ())]) == 1
    importlib.import_module("slow_to_load")
    module = importlib.import_module("slow_to_load")
    assert not log.exists()
    assert module.answer == 42
    with pytest.raises(AttributeError, match="'slow_to_load' has no attribute 'question'"):
        _ = module.question
    assert log.read_text() == "loaded " and importlib.import_module("slow_to_load") is module
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module")


def test_a_training_starts_without_plots_and_statistics() -> None:
    program = """
import json, sys
from triglot.experiments.deferred import DRAWING, defer
defer(DRAWING)
import triglot.experiments.runs.train, triglot
triglot.make_env("gymnax:CartPole-v1")
slow = ("pandas", "scipy.stats", "matplotlib.figure", "orbax.checkpoint")
print(json.dumps([name for name in slow if name in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []
