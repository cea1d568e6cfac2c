"""A stand-in for the library of Weights & Biases, which keeps what it is given."""

import importlib.machinery
import sys
from types import ModuleType
from typing import Any

import pytest


class FakeRun:
    """A run of W&B: the arguments of `init`, and what was logged."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.points: list[dict[str, Any]] = []
        self.finished = False

    def define_metric(self, name: str, step_metric: str) -> None:
        assert (name, step_metric) == ("*", "env_steps")

    def log(self, point: dict[str, Any]) -> None:
        self.points.append(point)

    def finish(self) -> None:
        self.finished = True


def install(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """Make `import wandb` find the stand-in; returns the runs that it begins."""
    runs: list[FakeRun] = []

    def init(**arguments: Any) -> FakeRun:
        runs.append(FakeRun(**arguments))
        return runs[-1]

    module = ModuleType("wandb")
    module.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    monkeypatch.setattr(module, "init", init, raising=False)
    monkeypatch.setitem(sys.modules, "wandb", module)
    for name in ("PROJECT", "ENTITY", "RUN_GROUP", "RUN_ID", "RESUME"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    return runs
