"""`--profile`: trace a few updates of a training with JAX's profiler."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import jax

from ..core.experiment import updates_of
from ..core.loop.chunks import Chunk
from ..core.loop.state import RunnerState

FOLDER = "profile"
TRACE = "plugins/profile/*/perfetto_trace.json.gz"
UPDATES = 10  # traced; a trace of a whole training would have gigabytes
SECONDS = 1.0  # traced, if updates are slow; at least one update is
OPEN = """profile of {count}: {path}
to open it: load the file in https://ui.perfetto.dev, or `pip install tensorboard xprof` and
`tensorboard --logdir {folder}`"""


class Profiler:
    """Runs the chunks of a training, and traces a few updates of them.

    The first update and those before learning starts are not traced, unless there are no others.
    The sizes of the chunks change no number. A context, whose end also ends a trace that is under
    way.

    Args:
      folder: of the traces, as TensorBoard reads it; each trace is a new folder in it.
      learns_after: updates before the first in which something is learned.
    """

    def __init__(self, folder: Path, learns_after: int) -> None:
        self._folder, self._learns_after = folder, learns_after
        self._num_traced = 0
        self._trace = ExitStack()

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(self, *error: object) -> None:
        self._trace.close()

    def chunks(
        self,
        run: Callable[..., Iterator[Chunk]],
        states: RunnerState,
        num_updates: int,
        *,
        target_seconds: float,
    ) -> Iterator[Chunk]:
        """Run chunks; `run` is `Experiment.chunks` with a program."""
        done = updates_of(states)
        start = min(max(done + 1, self._learns_after), num_updates - 1)
        count = 1
        for chunk in run(states, until=start, target_seconds=target_seconds):
            states, done = chunk.runner_states, chunk.num_updates
            count = max(1, min(UPDATES, int(SECONDS * chunk.count / chunk.seconds)))
            yield chunk
        stop = min(done + count, num_updates)
        self._trace.enter_context(jax.profiler.trace(self._folder, create_perfetto_trace=True))
        for chunk in run(states, until=stop):
            states, done = chunk.runner_states, chunk.num_updates
            self._num_traced += chunk.count
            yield chunk
        self._trace.close()
        yield from run(states, until=num_updates, target_seconds=target_seconds)

    def describe(self) -> str:
        """Say where the trace is and how to open it; empty if nothing was traced."""
        if not self._num_traced:
            return ""
        path = max(self._folder.glob(TRACE), key=lambda path: path.stat().st_mtime)
        count = f"{self._num_traced} update{'' if self._num_traced == 1 else 's'}"
        return OPEN.format(count=count, path=path, folder=self._folder)
