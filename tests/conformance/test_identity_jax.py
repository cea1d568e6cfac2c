"""Plain JAX beside Flax Linen: from the same weights, equal bit for bit."""

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_identity import compare
from tests.conformance.test_identity_agents import task

pytestmark = pytest.mark.optimized

slow = pytest.mark.slow
LSTM = {"cell": "lstm", "cell_size": 8}


@pytest.mark.parametrize(
    ("task", "num_updates"),
    [
        pytest.param(task("ppo"), 20, id="ppo"),
        pytest.param(
            task("ppo", "gymnax:MemoryChain-bsuite", **LSTM), 10, id="ppo-lstm", marks=slow
        ),
        pytest.param(task("sac"), 20, id="sac", marks=slow),
        pytest.param(task("pqn"), 20, id="pqn", marks=slow),
    ],
)
def test_trainings_are_equal_bit_for_bit(
    task: dict[str, Any], num_updates: int, tmp_path: Path
) -> None:
    result = compare(
        ("linen", "jax"),
        tmp_path,
        **task,
        arithmetic="canonical",
        num_seeds=1,
        num_updates=num_updates,
    )
    assert result["identical"], result
