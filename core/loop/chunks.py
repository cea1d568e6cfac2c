"""Run a training chunk by chunk: one compiled call per chunk, with host work in between."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax
import numpy as np

from .sharding import on_host
from .state import RunnerState, Updated

Call: TypeAlias = Callable[[RunnerState, np.int32], Updated]


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """The result of one chunk.

    Attributes:
      runner_states: `[S, ...]`, after the chunk.
      metrics: by name, `[S, count]`, on the host.
      count: updates in this chunk.
      num_updates: updates done so far, including this chunk.
      seconds: wall-clock time of the compiled call.
    """

    runner_states: RunnerState
    metrics: dict[str, np.ndarray]
    count: int
    num_updates: int
    seconds: float


def run_chunk(call: Call, runner_states: RunnerState, count: int, done: int = 0) -> Chunk:
    """Run one chunk and wait for it.

    Args:
      call: a `Program`, or a compiled `train_seeds`.
      runner_states: `[S, ...]`; donated.
      count: updates to run.
      done: updates done before.
    """
    start = time.perf_counter()
    runner_states, buffers = jax.block_until_ready(call(runner_states, np.int32(count)))
    seconds = time.perf_counter() - start
    # Contiguous copies: safetensors would write the bytes behind a strided view.
    metrics = {name: np.ascontiguousarray(on_host(v)[:, :count]) for name, v in buffers.items()}
    return Chunk(
        runner_states=runner_states,
        metrics=metrics,
        count=count,
        num_updates=done + count,
        seconds=seconds,
    )


def run_chunks(
    call: Call,
    runner_states: RunnerState,
    num_updates: int,
    chunk_size: int,
    *,
    done: int = 0,
    target_seconds: float | None = None,
    boundaries: Sequence[int] = (),
) -> Iterator[Chunk]:
    """Run chunks until `num_updates` updates are done. The chunk sizes do not change any number.

    Args:
      call: a `Program`.
      runner_states: `[S, ...]`; donated.
      num_updates: updates of the whole training.
      chunk_size: maximum updates per chunk.
      done: updates done before.
      target_seconds: choose chunk sizes that take about this long, beginning with one update; None
        for `chunk_size` always.
      boundaries: end a chunk at each multiple of each of these numbers of updates.
    """
    size = chunk_size if target_seconds is None else 1
    while done < num_updates:
        stop = min([num_updates, *(done - done % period + period for period in boundaries)])
        chunk = run_chunk(call, runner_states, min(size, stop - done), done)
        runner_states, done = chunk.runner_states, chunk.num_updates
        if target_seconds is not None:
            size = max(1, min(int(chunk.count / chunk.seconds * target_seconds), chunk_size))
        yield chunk
