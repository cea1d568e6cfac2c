"""PPO on four libraries: equal bit for bit, or known to diverge, with the reason.

Every case trains in this process, from the first library's weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from triglot.compare.options import CompareOptions
from triglot.compare.training.library import LibraryExperiment
from triglot.runs.identity import Trace, compare_traces

pytestmark = pytest.mark.optimized

FOUR = ("haiku", "linen", "nnx", "equinox")
STEPS_PER_UPDATE = 512  # of PPO's default configuration


@contextmanager
def unoptimized() -> Iterator[None]:
    """Compile fast."""
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


def train(
    backend: str,
    weights: Path,
    *,
    num_updates: int,
    algorithm: str = "ppo",
    steps_per_update: int = STEPS_PER_UPDATE,
    **task: Any,
) -> Trace:
    """Train one backend; the first one writes `weights`, the others start from them."""
    total_steps = num_updates * steps_per_update
    library = LibraryExperiment.build(
        CompareOptions(algorithm=algorithm, seed=0, total_steps=total_steps, **task), backend
    )
    with unoptimized():  # the training alone must be the program that users run
        if not weights.exists():
            save_file(library.named_params(library.experiment.start()), weights)
        state = library.start_from(weights)
    history = []
    for chunk in library.experiment.chunks(state, until=num_updates):
        state = chunk.runner_states
        history.append(chunk.metrics)
    metrics = {name: np.concatenate([m[name] for m in history], axis=1) for name in history[0]}
    return Trace(metrics=metrics, params=library.named_params(state))


def compare(backends: tuple[str, ...], folder: Path, **task: Any) -> dict[str, Any]:
    """Train the backends one after the other and compare their metrics and parameters."""
    weights = folder / "weights.safetensors"
    traces = {backend: train(backend, weights, **task) for backend in backends}
    for trace in traces.values():
        for name, values in trace.metrics.items():
            assert values.shape == (task["num_seeds"], task["num_updates"]), name
    return compare_traces(traces, task.get("steps_per_update", STEPS_PER_UPDATE))


@pytest.mark.parametrize(
    ("backends", "env", "num_seeds", "num_updates"),
    [
        pytest.param(FOUR, "gymnax:CartPole-v1", 1, 30, id="mlp"),
        pytest.param(
            ("linen", "equinox"),
            "tests.conformance.pictures:Pictures",
            1,
            10,
            id="cnn-continuous",
            marks=pytest.mark.slow,
        ),
        pytest.param(FOUR, "gymnax:CartPole-v1", 1, 500, id="mlp-500", marks=pytest.mark.slow),
        pytest.param(FOUR, "gymnax:CartPole-v1", 4, 500, id="mlp-4-seeds", marks=pytest.mark.slow),
        pytest.param(FOUR, "gymnax:Breakout-MinAtar", 1, 100, id="cnn-100", marks=pytest.mark.slow),
        pytest.param(
            FOUR, "gymnax:Breakout-MinAtar", 4, 20, id="cnn-4-seeds", marks=pytest.mark.slow
        ),
    ],
)
def test_canonical_arithmetic_is_equal_bit_for_bit(
    backends: tuple[str, ...], env: str, num_seeds: int, num_updates: int, tmp_path: Path
) -> None:
    result = compare(
        backends,
        tmp_path,
        env=env,
        arithmetic="canonical",
        num_seeds=num_seeds,
        num_updates=num_updates,
    )
    assert result["identical"], result


@pytest.mark.slow
def test_an_auxiliary_loss_through_a_cell_is_equal_bit_for_bit(tmp_path: Path) -> None:
    result = compare(
        ("linen", "equinox"),
        tmp_path,
        algorithm="ppo+contrast",
        env="gymnax:CartPole-v1",
        config={"cell": "lstm", "cell_size": 8, "num_envs": 4, "rollout_length": 16},
        steps_per_update=64,
        num_seeds=1,
        num_updates=3,
    )
    assert result["identical"], result


@pytest.mark.slow
@pytest.mark.parametrize("env", ["gymnax:CartPole-v1", "gymnax:Breakout-MinAtar"])
@pytest.mark.parametrize("arithmetic", ["native", "leaf_order"])
@pytest.mark.parametrize(
    "backends",
    [
        pytest.param(("haiku", "linen", "nnx"), id="inputs-times-kernel"),
        pytest.param(
            ("haiku", "equinox"),
            id="equinox",
            marks=pytest.mark.xfail(
                reason="Equinox keeps weights as [out, in] and multiplies them from the left, for "
                "which XLA sums in another order: it diverges in the first update"
            ),
        ),
    ],
)
def test_native_arithmetic(
    backends: tuple[str, ...], arithmetic: str, env: str, tmp_path: Path
) -> None:
    result = compare(
        backends, tmp_path, env=env, arithmetic=arithmetic, num_seeds=1, num_updates=10
    )
    assert result["identical"], result
