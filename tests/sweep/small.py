"""Small sweeps for the tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from triglot.sweep.options import SweepCommandOptions

SMALL = {"num_envs": 2, "rollout_length": 4}
STEPS_PER_UPDATE = 8
OVER = ("learning_rate=0.1,0.5", "epsilon=0.3,0.9")
SETTINGS = [(0.1, 0.3), (0.1, 0.9), (0.5, 0.3), (0.5, 0.9)]
ENV = "gridworld:3x3,max_steps=8"  # returns are 0 or 1


def options(out: Path | None = None, **changes: Any) -> SweepCommandOptions:
    """Build the options of four settings with two seeds, 16 updates each."""
    chosen: dict[str, Any] = {
        "algorithm": "q_learning",
        "env": ENV,
        "backend": "table",
        "over": OVER,
        "num_seeds": 2,
        "total_steps": 16 * STEPS_PER_UPDATE,
        "eval_episodes": 2,
        "executor": None if "jobs" in changes else "sequential",
        "config": SMALL,
        "out": out,
    }
    return SweepCommandOptions(**chosen | changes)


def arrays(out: Path) -> dict[str, np.ndarray]:
    """Read the arrays of all batches, by batch and name."""
    return {
        f"{path.parent.name}/{name}": array
        for path in sorted(out.glob("jobs/[!.]*/*.safetensors"))
        for name, array in load_file(path).items()
    }


class Killed(BaseException):
    """Ends a sweep as SIGKILL would, as far as its files are concerned."""


@contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int) -> Iterator[None]:
    """End what runs inside at a call of a function, counted from 0."""
    original, calls = getattr(owner, name), iter(range(1000))

    def dies(*given: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return original(*given)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(Killed):
            yield
