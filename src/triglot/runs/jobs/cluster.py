"""Jobs on a Ray cluster.

Each job is a Ray task, which starts the process that a local job runs in. Its checkpoints are in
the command's folder, on storage that all nodes share, so a task that Ray starts again on another
node continues there.
"""

import importlib
import logging
import os
import shutil
import socket
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ...core.errors import TriglotError, describe, require
from ...core.records import JSON
from ...shared.machine.files import UNFINISHED
from ...shared.machine.version import versions
from .job import Event, Outcome, Task
from .local import JobProcess

MAX_RETRIES = 3  # of a job whose process or machine died
POLL_SECONDS = 0.1
CONNECT_SECONDS = 10.0
CHECK_SECONDS = 180.0  # a node may have to start a process, and copy code
INSTALLED = ("site-packages", "dist-packages")
OURS = "triglot"
CARRIED = ("JAX_", "XLA_")  # environment variables that decide what is computed


class JobDied(RuntimeError):
    """The process of a job died; Ray starts the job again."""


def connect(address: str | None, jobs: int | None, custom: Iterable[str]) -> "RayExecutor":
    """Connect to a cluster, and send it custom code.

    Args:
      address: `auto` or None for the cluster that this machine belongs to, or HOST:PORT.
      jobs: the most jobs at the same time; None for as many as the cluster has cores.
      custom: names of custom components; see `custom_files`.

    Raises:
      TriglotError: if no cluster answers, or it has another version of Python or Ray.
      MissingExtra: if Ray is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = require("ray", "ray")
    modules = custom_files(custom)
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    host, _, port = where.rpartition(":")
    code = Path(tempfile.mkdtemp(prefix="triglot-code-"))
    try:
        if host and "/" not in where and port.isdigit():  # Ray itself tries for a minute
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        for name, file in modules.items():
            (code / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, code / name)
        ray.init(
            address=where,
            runtime_env={"working_dir": str(code)} if modules else None,
            logging_level=logging.CRITICAL,
            log_to_driver=False,
            configure_logging=True,
        )
    except (OSError, RuntimeError, ValueError, ConnectionError) as error:
        raise TriglotError(
            f"no Ray cluster that can be used answers at {where} ({describe(error)}): start one "
            "with `ray start --head`, give its HOST:PORT as --address, or leave out --executor ray."
        ) from None
    finally:
        shutil.rmtree(code, ignore_errors=True)  # Ray has a copy
    return RayExecutor(ray=ray, jobs=jobs, has_code=bool(modules))


@dataclass(frozen=True, kw_only=True)
class RayExecutor:
    """Runs each job as a Ray task on one core.

    Attributes:
      ray: the module, connected.
      jobs: the most jobs at the same time; None for what the cluster can do.
      has_code: whether custom code was sent.
      ahead: none: a job on the cluster never waits for its turn.
    """

    ray: ModuleType
    jobs: int | None
    has_code: bool
    ahead: int = 0

    @property
    def at_once(self) -> int:
        """The jobs that Ray may start or let wait."""
        return self.jobs or 1_000_000

    @property
    def bytes_per_job(self) -> int:
        """The smallest share of a node's memory per core."""
        resources = [node["Resources"] for node in self._nodes()]
        return min((int(node.get("memory", 0) / node["CPU"]) for node in resources), default=0)

    @property
    def title(self) -> str:
        """Describe the cluster."""
        nodes = self._nodes()
        cores = sum(node["Resources"]["CPU"] for node in nodes)
        return f"Ray, {len(nodes)} node{'' if len(nodes) == 1 else 's'} with {cores:.0f} cores"

    def _nodes(self) -> list[JSON]:
        """List the nodes that run jobs."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        return [node for node in nodes if node["Resources"].get("CPU")]

    def prepare(self, out: Path) -> None:
        """Check that each node reads what is written here, and has the same versions.

        Args:
          out: the command's folder; it need not exist.

        Raises:
          TriglotError: with the node's address.
        """
        nodes = self._nodes()
        if not nodes:
            raise TriglotError("the Ray cluster has no node with a CPU core for jobs.")
        folder = out.absolute()
        while not folder.is_dir():
            folder = folder.parent
        marker, text = folder / f"{UNFINISHED}shared-{uuid.uuid4().hex}", uuid.uuid4().hex
        try:
            marker.write_text(text)
            for node in nodes:
                self._check(node, marker, text)
        except OSError as error:
            raise TriglotError(f"{folder} cannot be written: {error.strerror}.") from None
        finally:
            marker.unlink(missing_ok=True)

    def _check(self, node: JSON, marker: Path, text: str) -> None:
        scheduling = require("ray.util.scheduling_strategies", "ray")

        where = f"the Ray node {node['NodeManagerAddress']} ({node['NodeManagerHostname']})"
        strategy = scheduling.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        look = self.ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(_look)
        try:
            content, theirs = self.ray.get(look.remote(str(marker)), timeout=CHECK_SECONDS)
        except self.ray.exceptions.RayError as error:
            raise TriglotError(
                f"{where} cannot run triglot ({describe(error)}): install the same version there."
            ) from None
        if content != text:
            raise TriglotError(
                f"{where} does not see {marker.parent}: choose an --out on storage that all nodes "
                "share, under the same path."
            )
        for package, ours in versions().items():
            if theirs.get(package) != ours:
                raise TriglotError(
                    f"{where} has {package} {theirs.get(package)}, and this machine has {ours}: "
                    "install the same version, since another one computes other numbers."
                )

    def start(self, task: Task, show: Callable[[Event], None]) -> "RayJob":
        """Give a job to Ray."""
        environment = {
            name: value for name, value in os.environ.items() if name.startswith(CARRIED)
        }
        run = self.ray.remote(num_cpus=1, max_retries=MAX_RETRIES, retry_exceptions=[JobDied])(
            _run
        ).options(name=f"triglot {task.label}")
        return RayJob(self.ray, run.remote(asdict(task), environment, self.has_code))

    def close(self) -> None:
        """Disconnect; Ray ends what still runs."""
        self.ray.shutdown()


@dataclass(frozen=True)
class RayJob:
    """A job that was given to Ray.

    Attributes:
      ray: the module.
      result: the reference to its outcome.
    """

    ray: ModuleType
    result: Any

    def poll(self) -> Outcome | None:
        """Return how it ended; None while it waits or runs."""
        if not self.ray.wait([self.result], timeout=0)[0]:
            return None
        try:
            return Outcome(**self.ray.get(self.result))
        except self.ray.exceptions.TaskCancelledError:
            return Outcome("stopped")
        except self.ray.exceptions.RayTaskError as error:
            return Outcome("died", f"{error.cause} Ray tried {1 + MAX_RETRIES} times.")
        except self.ray.exceptions.RayError as error:
            return Outcome("died", f"{describe(error)}. Ray tried {1 + MAX_RETRIES} times.")

    def go(self) -> None:
        """Do nothing: Ray chooses when a job begins, and it then goes on."""

    def stop(self) -> None:
        """Let it save a checkpoint and end."""
        self.ray.cancel(self.result, force=False)

    def kill(self) -> None:
        """End it at once."""
        if not self.ray.wait([self.result], timeout=0)[0]:
            self.ray.cancel(self.result, force=True)


def _look(marker: str) -> tuple[str | None, dict[str, str | None]]:
    """Read a file on a node, and look up its versions."""
    path = Path(marker)
    return path.read_text() if path.exists() else None, versions()


def _run(task: JSON, environment: Mapping[str, str], has_code: bool) -> JSON:
    """Run a job in a process of this node; a cancelled task stops it."""
    # Ray copied the code into the working directory of this task.
    process = JobProcess(Task(**task), environment, [os.getcwd()] if has_code else [])
    process.go()
    try:
        try:
            outcome = _wait(process)
        except KeyboardInterrupt:
            process.stop()
            outcome = _wait(process)
    finally:
        process.kill()
    if outcome.end == "died":
        raise JobDied(outcome.message)
    return asdict(outcome)


def _wait(process: JobProcess) -> Outcome:
    while (outcome := process.poll()) is None:
        time.sleep(POLL_SECONDS)
    return outcome


def custom_files(parts: Iterable[str]) -> dict[str, Path]:
    """List the files of custom components, and of the modules beside them that they import.

    Installed packages are left out: every machine needs them.

    Args:
      parts: each `package.module:object`, or `NAME=` and that; options may follow after a comma.

    Returns:
      Files by their path relative to the folder in which the module was found.
    """
    files: dict[str, Path] = {}
    for part in parts:
        name = part.rpartition("=")[2] if "=" in part.partition(",")[0] else part
        for module in name.partition(",")[0].split(":")[:-1]:  # gymnasium:my_file:MyEnv-v0 has two
            files |= _module_files(module)
    return files


def _module_files(module: str) -> dict[str, Path]:
    importlib.import_module(module)
    path = _file(module.partition(".")[0])
    if path is None or _is_installed(path):
        return {}
    is_package = path.name == "__init__.py"
    root = path.parent.parent if is_package else path.parent
    files = _below(path.parent, root) if is_package else {}
    for loaded in list(sys.modules):
        file = _file(loaded)
        if file is not None and file.is_relative_to(root) and not _is_installed(file):
            files[str(file.relative_to(root))] = file
    return files


def _file(module: str) -> Path | None:
    if module.partition(".")[0] == OURS:
        return None
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).absolute() if file else None


def _below(package: Path, root: Path) -> dict[str, Path]:
    """List a package's files; it may read data."""
    named = {path.relative_to(root): path for path in package.rglob("*") if path.is_file()}
    return {
        str(name): path
        for name, path in named.items()
        if not any(part.startswith((".", "__pycache__")) for part in name.parts)
    }


def _is_installed(file: Path) -> bool:
    return not set(INSTALLED).isdisjoint(file.parts) or file.is_relative_to(
        sysconfig.get_path("stdlib")
    )
