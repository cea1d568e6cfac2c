"""Start the process of a training or of a measurement: import JAX and the library, timed.

Nothing is imported above that imports either of them.
"""

import importlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from ..backends import libraries
from ..core.records import JSON
from ..runs.devices import make
from ..runs.jobs.job import RunningJob
from ..runs.registry.overrides import from_overrides
from .options import CompareOptions


@dataclass(frozen=True)
class Started:
    """What the function of a training or of a measurement gets.

    Attributes:
      options: of the comparison.
      arguments: of the job.
      running: the job.
      seconds: what imports took, by name.
    """

    options: CompareOptions
    arguments: JSON
    running: RunningJob
    seconds: Mapping[str, float]


def start(arguments: JSON, running: RunningJob) -> None:
    """Import what a job needs, and run it; see `Task`.

    Args:
      arguments: `options` of the comparison; `backend`, the library; `function`, the
        `package.module:function` that is called with a `Started`.
      running: the job.
    """
    running.enter("import and build")
    options = from_overrides(CompareOptions, arguments["options"])
    library = libraries.find(arguments["backend"]).module
    module, _, name = arguments["function"].partition(":")
    jax, jax_seconds = _import("jax")
    jax.config.update("jax_enable_compilation_cache", False)
    make(options.devices or 1)
    _, library_seconds = _import(library)
    imported, rest_seconds = _import(module)
    seconds = {
        "import_jax_seconds": jax_seconds,
        "import_library_seconds": library_seconds,
        "import_seconds": jax_seconds + library_seconds + rest_seconds,
    }
    getattr(imported, name)(Started(options, arguments, running, seconds))


def _import(module: str) -> tuple[ModuleType, float]:
    start = time.perf_counter()
    imported = importlib.import_module(module)
    return imported, time.perf_counter() - start
