"""Every algorithm: from the same weights, equal bit for bit on all libraries.

The quick test compares two libraries, one of which stores a kernel as [in, out] while Equinox
stores [out, in]; the slow ones compare all, with larger networks and longer trainings too.
"""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import CASES, LIBRARIES
from tests.conformance.test_identity import compare
from triglot.runs.registry.algorithms import find_algorithm

pytestmark = pytest.mark.optimized

EVERY_OPTION = {"prioritized": True, "n_step": 3, "double": True, "dueling": True}
EVERY_OPTION |= {"normalization": "layer"}
CRITICS = {"prioritized": True, "n_step": 3}
CRITICS |= {"critic_normalization": "layer", "critic_dropout": 0.1}
LONG: dict[str, Any] = {
    "dqn": {"learning_starts": 120, "buffer_size": 200, "batch_size": 64},
    "sac": {"learning_starts": 64, "buffer_size": 256, "batch_size": 64},
}
slow = pytest.mark.slow


def against_equinox(index: int) -> tuple[str, str]:
    return LIBRARIES[index % 3], "equinox"


def task(algorithm: str, env: str | None = None, **config: Any) -> dict[str, Any]:
    case = CASES[algorithm]
    config = {**case.config, **config}
    return {
        "algorithm": algorithm,
        "env": env or case.envs[0],
        "config": {k: list(v) if isinstance(v, tuple) else v for k, v in config.items()},
        "hyper": dict(case.hyper),
        "steps_per_update": find_algorithm(algorithm).Config(**config).steps_per_update,
    }


PAIRS = [
    pytest.param(
        against_equinox(index),
        task(name),
        case.num_updates,
        id=name,
        marks=() if name == "dqn" else slow,  # test_identity.py trains PPO
    )
    for index, (name, case) in enumerate(CASES.items())
]
SLOW = [
    pytest.param(("nnx", "equinox"), task("sac", **CRITICS), 20, id="sac-droq"),
    *(
        pytest.param(case.backends(), task(name), case.num_updates, id=f"{name}-all")
        for name, case in CASES.items()
    ),
    pytest.param(
        LIBRARIES, task("ppo", "gymnax:Pendulum-v1", num_envs=8), 300, id="ppo-continuous"
    ),
    pytest.param(
        LIBRARIES,
        task("sac", hidden_sizes=(256, 256), normalize_obs=True, **LONG["sac"]),
        300,
        id="sac-300",
    ),
    *(
        pytest.param(LIBRARIES, task(name, "gymnax:CartPole-v1"), 20, id=f"{name}-discrete")
        for name in ("sac", "redq", "mpo")
    ),
    pytest.param(LIBRARIES, task("dqn", **EVERY_OPTION, **LONG["dqn"]), 500, id="dqn-options"),
    pytest.param(LIBRARIES, task("dqn", hidden_sizes=(120, 84), **LONG["dqn"]), 500, id="dqn-500"),
    pytest.param(LIBRARIES, task("dqn", munchausen=True), 100, id="munchausen"),
    # All but Equinox, whose batch normalization computes another variance.
    pytest.param(LIBRARIES[:3], task("crossq"), 100, id="crossq-flax-haiku"),
    *(
        pytest.param(LIBRARIES, task(name, **CRITICS), 60, id=f"{name}-options")
        for name in ("ddpg", "td3", "sac", "redq", "tqc", "mpo")
    ),
    pytest.param(LIBRARIES, task("dqn", huber=True), 60, id="dqn-huber"),
    pytest.param(LIBRARIES, task("pqn", dueling=True), 40, id="pqn-dueling"),
    *(
        pytest.param(LIBRARIES, task(name, **EVERY_OPTION), 100, id=f"{name}-options")
        for name in ("c51", "qr_dqn", "iqn", "rainbow")
    ),
    *(
        pytest.param(
            CASES["q_learning"].backends(), task("q_learning", method=method), 20, id=method
        )
        for method in ("sarsa", "expected_sarsa")
    ),
]


@pytest.mark.parametrize(
    ("backends", "task", "num_updates"),
    [*PAIRS, *(pytest.param(*one.values, id=one.id, marks=(*one.marks, slow)) for one in SLOW)],
)
def test_libraries_are_equal_bit_for_bit(
    backends: tuple[str, ...], task: dict[str, Any], num_updates: int, tmp_path: Path
) -> None:
    result = compare(
        backends, tmp_path, **task, arithmetic="canonical", num_seeds=1, num_updates=num_updates
    )
    assert result["identical"], result
