"""A process that trains one backend for a comparison, and its parent's handle.

They exchange JSON lines. A request is `{"stage": name, "arguments": {...}}`; a reply is `{"facts":
{...}, "arrays": base64 of safetensors}` or `{"error": message}`.
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
from typing import IO, Any, NoReturn

import numpy as np

from ...backends import libraries
from ...core.errors import TriglotError
from ...jobs.process import cause_of_death
from ...machine.interrupt import SIGNALS
from ...registry.overrides import from_overrides
from ...training.devices import make
from ..options import CompareOptions
from ..rungs import rung_named

SESSION = "triglot.compare.training.session:Session"  # which class serves the stages


class WorkerDied(TriglotError):
    """A worker process exited early."""


class Worker:
    """The parent's handle on one backend's process.

    Use it as a context manager: the process ends with the block. It also exits when its parent
    dies, because its input closes.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (__exit__ closes it)
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            start_new_session=True,  # Ctrl-C goes to the parent only, which ends its workers
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.stderr.close()

    def ask(self, stage: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Run one stage and wait for its result: facts, and arrays by name.

        Raises:
          TriglotError: the worker's error message.
          WorkerDied: with the last lines of the worker's error output.
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
            raise WorkerDied(self._cause_of_death(stage))
        reply = json.loads(line)
        if "error" in reply:
            raise TriglotError(reply["error"])
        return reply["facts"], load(base64.b64decode(reply["arrays"]))

    def _cause_of_death(self, stage: str) -> str:
        self.process.wait()
        self.stderr.seek(0)
        printed = self.stderr.read().decode(errors="replace")
        what = f"the {self.backend} worker died during {stage!r}"
        return cause_of_death(what, self.process.returncode, printed)


def main() -> NoReturn:
    """Serve the parent until it closes this process's input."""
    # A cluster signals all processes of a job; the parent saves what this one has computed.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # Output of libraries goes to stderr, so that it does not mix with the replies.
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
    # On a separate thread, to notice the parent's death during a long stage.
    with os.fdopen(os.dup(0)) as lines:
        for line in lines:
            requests.put(json.loads(line))
    os._exit(0)


class _Stages:
    """The stages of a session; `start` creates it after timing the imports."""

    def __init__(self) -> None:
        self.session: Any = None

    def do(self, stage: str, arguments: dict[str, Any]) -> dict[str, Any]:
        from safetensors.numpy import save

        if stage == "start":
            facts, arrays = self._start(arguments), {}
        else:
            reply = getattr(self.session, stage)(**arguments)
            facts, arrays = reply.facts, reply.arrays
        return {"facts": facts, "arrays": base64.b64encode(save(arrays)).decode()}

    def _start(self, arguments: dict[str, Any]) -> dict[str, Any]:
        backend = arguments["backend"]
        library = libraries.find(backend).module  # imports neither JAX nor the library
        jax, jax_seconds = _import("jax")
        jax.config.update("jax_enable_compilation_cache", False)
        make(arguments["options"]["devices"] or 1)
        _, library_seconds = _import(library)
        module, _, session = arguments.get("session", SESSION).partition(":")
        imported, rest_seconds = _import(module)
        options = from_overrides(CompareOptions, arguments["options"])
        self.session = getattr(imported, session)(
            options,
            backend,
            env=arguments["env"],
            rung=rung_named(arguments["rung"]),
            reference=arguments["reference"],
        )
        facts = self.session.facts
        return {
            "import_jax_seconds": jax_seconds,
            "import_library_seconds": library_seconds,
            "import_seconds": jax_seconds + library_seconds + rest_seconds + facts["env_seconds"],
            **facts,
        }


def _import(module: str) -> tuple[Any, float]:
    start = time.perf_counter()
    imported = importlib.import_module(module)
    return imported, time.perf_counter() - start


if __name__ == "__main__":
    main()
