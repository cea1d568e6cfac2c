"""Keras beside Flax Linen: from the same weights, equal bit for bit."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import CASES
from tests.conformance.test_identity import compare
from tests.conformance.test_identity_agents import task

pytestmark = pytest.mark.optimized

pytest.importorskip("keras", reason="the extra keras is not installed")

slow = pytest.mark.slow
MEMORY = "gymnax:MemoryChain-bsuite"
QUICK = ("ppo",)


@pytest.mark.parametrize(
    ("task", "num_updates"),
    [
        *(
            pytest.param(task(name), case.num_updates, id=name, marks=() if name in QUICK else slow)
            for name, case in CASES.items()
        ),
        *(
            pytest.param(
                task("ppo", MEMORY, cell=cell, cell_size=8), 10, id=f"ppo-{cell}", marks=slow
            )
            for cell in ("lstm", "gru")
        ),
        pytest.param(task("ppo", "gymnax:Breakout-MinAtar"), 3, id="ppo-cnn", marks=slow),
    ],
)
def test_trainings_are_equal_bit_for_bit(
    task: dict[str, Any], num_updates: int, tmp_path: Path
) -> None:
    result = compare(
        ("linen", "keras"),
        tmp_path,
        **task,
        arithmetic="canonical",
        num_seeds=1,
        num_updates=num_updates,
    )
    assert result["identical"], result
