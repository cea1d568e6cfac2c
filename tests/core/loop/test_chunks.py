"""The chunk loop: sizes, resumption, and metrics cut to the updates that were run."""

import time
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load, save

from triglot.core.loop.chunks import run_chunk, run_chunks

SIZE = 8


class Counting:
    """A program whose state counts updates, and whose one metric is the number of the update."""

    def __init__(self, seconds_per_update: float = 0.0) -> None:
        self.sizes: list[int] = []
        self.seconds_per_update = seconds_per_update

    def __call__(self, state: Any, num_updates: Any) -> tuple[Any, dict[str, Any]]:
        assert num_updates.dtype == np.int32  # another dtype would compile another program
        self.sizes.append(int(num_updates))
        time.sleep(self.seconds_per_update * int(num_updates))
        return state + num_updates, {"update": state + jnp.arange(SIZE)[None]}


@pytest.mark.parametrize(
    ("num_updates", "done", "sizes"), [(20, 0, [8, 8, 4]), (20, 15, [5]), (20, 20, [])]
)
def test_chunks_cover_what_is_left(num_updates: int, done: int, sizes: list[int]) -> None:
    program, state = Counting(), jnp.int32(done)
    chunks: list[Any] = list(run_chunks(program, state, num_updates, SIZE, done=done))  # pyright: ignore[reportArgumentType]
    assert program.sizes == [chunk.count for chunk in chunks] == sizes
    seen = np.concatenate([[], *(chunk.metrics["update"][0] for chunk in chunks)])
    np.testing.assert_array_equal(seen, np.arange(done, num_updates))
    if chunks:
        assert int(chunks[-1].runner_states) == chunks[-1].num_updates == num_updates


def test_chunks_grow_to_the_time_they_should_take() -> None:
    program = Counting(seconds_per_update=0.02)
    state: Any = jnp.int32(0)
    list(run_chunks(program, state, 12, SIZE, target_seconds=0.09))
    assert program.sizes[0] == 1 and sum(program.sizes) == 12
    assert 1 < max(program.sizes[1:]) <= 4
    quick = Counting()
    list(run_chunks(quick, state, 40, SIZE, target_seconds=1e6))
    assert quick.sizes == [1, 8, 8, 8, 8, 7]


def test_the_metrics_of_a_short_chunk_survive_safetensors() -> None:
    """It writes the bytes behind an array, which of a strided view are other numbers."""

    def two_seeds(state: Any, num_updates: Any) -> tuple[Any, dict[str, Any]]:
        updates = jnp.arange(SIZE, dtype=jnp.float32)
        return state + num_updates, {"update": jnp.stack([updates, 100.0 + updates])}

    chunk = run_chunk(two_seeds, jnp.int32(0), 3)  # pyright: ignore[reportArgumentType]
    read = load(save(chunk.metrics))
    np.testing.assert_array_equal(read["update"], [[0, 1, 2], [100, 101, 102]])
