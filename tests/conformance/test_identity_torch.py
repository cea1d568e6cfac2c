"""PyTorch beside Flax Linen: from the same weights, equal bit for bit."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import CASES
from tests.conformance.test_identity import compare
from tests.conformance.test_identity_agents import task

pytestmark = pytest.mark.optimized

pytest.importorskip("torch", reason="the extra torch is not installed")

QUICK = ("ppo",)
MEMORY = "gymnax:MemoryChain-bsuite"
TASKS: dict[str, tuple[dict[str, Any], int]] = {
    **{name: (task(name), min(case.num_updates, 20)) for name, case in CASES.items()},
    "ppo-lstm": (task("ppo", MEMORY, cell="lstm", cell_size=8), 10),
    "ppo-gru": (task("ppo", MEMORY, cell="gru", cell_size=8), 10),
    "ppo-images": (task("ppo", "gymnax:Breakout-MinAtar"), 5),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in TASKS]
)
def test_trainings_are_equal_bit_for_bit(name: str, tmp_path: Path) -> None:
    task, num_updates = TASKS[name]
    result = compare(
        ("linen", "torch"),
        tmp_path,
        **task,
        arithmetic="canonical",
        num_seeds=1,
        num_updates=num_updates,
    )
    assert result["identical"], result
