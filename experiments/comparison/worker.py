"""A process that trains one backend for a comparison, and the handle its parent holds.

They speak JSON lines: `{"stage": name, "arguments": {...}}` one way, `{"facts": {...}, "arrays":
base64 of safetensors}` or `{"error": message}` the other.
"""

import base64
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from typing import IO, TYPE_CHECKING, Any, NoReturn

from ...backends import libraries
from ...core.errors import TriglotError

if TYPE_CHECKING:
    import numpy as np

STAGES = ("init", "load", "compile", "train", "dispatch", "finish")
LAST_LINES = 12


class WorkerDied(TriglotError):
    """A worker ended before its work was done."""


class Worker:
    """The parent's handle on one backend's process.

    Use it as a context manager: the process ends with the block, however the block ends. It also
    ends by itself when its parent is gone, since its input then closes.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (__exit__ closes it)
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            start_new_session=True,  # Ctrl-C reaches the parent only, which ends its workers
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.stderr.close()

    def ask(self, stage: str, **arguments: Any) -> "tuple[dict[str, Any], dict[str, np.ndarray]]":
        """Have one stage done and wait for what it found.

        Raises:
          TriglotError: what the worker could not accept, in its words.
          WorkerDied: with the last lines of its error output.
        """
        from safetensors.numpy import load

        assert self.process.stdin is not None and self.process.stdout is not None
        request = json.dumps({"stage": stage, "arguments": arguments})
        try:
            self.process.stdin.write(request.encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise WorkerDied(self._last_words(stage))
        reply = json.loads(line)
        if "error" in reply:
            raise TriglotError(reply["error"])
        return reply["facts"], load(base64.b64decode(reply["arrays"]))

    def _last_words(self, stage: str) -> str:
        code = self.process.wait()
        ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if code == -signal.SIGKILL:
            ending += ", which is also how a machine ends what takes too much memory"
        self.stderr.seek(0)
        lines = self.stderr.read().decode(errors="replace").splitlines()[-LAST_LINES:]
        said = "\n  ".join(["Its last words:", *lines]) if lines else "It said nothing."
        return f"the {self.backend} worker died during {stage!r} ({ending}). {said}"


def main() -> NoReturn:
    """Serve a parent until it closes our input."""
    # What libraries print must not come between the replies.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    try:
        stages = _Stages()
        while True:
            request = requests.get()
            try:
                reply = stages.do(request["stage"], request["arguments"])
            except TriglotError as error:
                reply = {"error": str(error)}
            print(json.dumps(reply), file=replies, flush=True)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _read(requests: "queue.SimpleQueue[dict[str, Any]]") -> None:
    # A thread of its own, so that a parent's end is noticed in the middle of a long stage.
    with os.fdopen(os.dup(0)) as lines:
        for line in lines:
            requests.put(json.loads(line))
    os._exit(0)


class _Stages:
    """The stages of a session, which `start` makes after timing the imports."""

    def __init__(self) -> None:
        self.session: Any = None

    def do(self, stage: str, arguments: dict[str, Any]) -> dict[str, Any]:
        from safetensors.numpy import save

        if stage == "start":
            return {"facts": self._start(arguments), "arrays": _encoded(save({}))}
        assert stage in STAGES, stage
        reply = getattr(self.session, stage)(**arguments)
        return {"facts": reply.facts, "arrays": _encoded(save(reply.arrays))}

    def _start(self, task: dict[str, Any]) -> dict[str, Any]:
        library = libraries.find(task["backend"]).module  # imports neither JAX nor the library
        jax, jax_seconds = _import("jax")
        jax.config.update("jax_enable_compilation_cache", False)
        _, library_seconds = _import(library)
        costs, rest_seconds = _import("triglot.experiments.comparison.session")
        self.session = costs.Session(costs.Task(**task))
        facts = self.session.facts
        return {
            "import_jax_seconds": jax_seconds,
            "import_library_seconds": library_seconds,
            "import_seconds": jax_seconds + library_seconds + rest_seconds + facts["env_seconds"],
            **facts,
        }


def _import(module: str) -> tuple[Any, float]:
    start = time.perf_counter()
    found = importlib.import_module(module)
    return found, time.perf_counter() - start


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


if __name__ == "__main__":
    main()
