"""The stages of a training of one library on one rung."""

import functools
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil
from safetensors.numpy import load_file

from ...core.errors import TriglotError
from ...core.experiment import Experiment, evaluation_key
from ...core.loop import checkpoint
from ...core.loop.chunks import run_chunk
from ...core.loop.state import RunnerState
from ...core.loop.trainer import CompiledProgram, Trainer
from ...core.network import Variables
from ...runs import identity
from ...runs.registry.environments import make_env
from ...shared.machine import version
from ...shared.machine.files import write_json
from ..options import CompareOptions
from ..programs import Program, describe, program_text
from ..results import Arrays
from ..rungs import Rung, rung_of_arithmetic
from . import networks, probes
from .random_policy import random_return

MAX_CHUNK_UPDATES, MIN_CHUNKS = 64, 16
STATE, ORIGIN = "state", "origin.json"  # in the folder of a checkpoint


class Session:
    """Runs the stages of a training: `init`, `load`, `probe`, `compile`, `train`, `snapshot` and
    `save` repeatedly, `finish`. A training that is continued calls `restore` after `compile`.

    It is mutable, because compiled programs and donated buffers pass from stage to stage. The
    caller is responsible for the order.

    Attributes:
      facts: what was measured and found so far, as JSON values.
    """

    def __init__(
        self,
        options: CompareOptions,
        backend: str,
        *,
        env: str | None = None,
        rung: Rung | None = None,
    ) -> None:
        """Build the agent.

        Args:
          options: of the comparison.
          backend: the library.
          env: one of its environments; None for the first.
          rung: what all libraries share; None for what `options.arithmetic` says.
        """
        self.env, seconds = timed(lambda: make_env(env or options.env))
        self.facts: dict[str, Any] = {"env_seconds": seconds}
        self.facts["device"] = version.device()  # starts XLA, outside the timed construction
        self.options, self.backend = options, backend
        self.peak_memory: int | None = None  # measured before orbax takes memory
        self.saving_bytes = 0
        self.rung = rung or rung_of_arithmetic(options.arithmetic)

        self.agent, seconds = timed(
            lambda: networks.build_agent(options, self.env, backend, self.rung)
        )
        self.facts["construct_seconds"] = seconds
        self.names = networks.names_of(options, self.env, backend, self.agent, self.rung)
        self.facts["guessed"] = self.names.guessed
        experiment = Experiment(
            self.agent,
            self.env,
            key=jax.random.key(options.seed),
            total_steps=options.total_steps,
            num_seeds=options.num_seeds,
            most_devices=options.devices or 1,
            monitor=identity.fingerprints(self.names.encode),
        )
        chunk_size = max(1, min(MAX_CHUNK_UPDATES, experiment.num_updates // MIN_CHUNKS))
        self.experiment = replace(experiment, chunk_size=chunk_size)
        self.outputs = probes.Outputs(self.agent, self.env)
        self.facts |= {
            "num_updates": experiment.num_updates,
            "chunk_size": chunk_size,
            "steps_per_update": experiment.steps_per_update,
        }

    def init(self) -> Arrays:
        """Initialize every seed with the network's own initializers; return the weights."""
        self.state, seconds = timed(self.experiment.start)
        self.facts["init_seconds"] = seconds
        return self.named_params()

    @property
    def _trainer(self) -> Trainer:
        trainer = self.experiment.trainer
        assert isinstance(trainer, Trainer)  # a comparison needs environments in JAX
        return trainer

    def load(self, path: Path) -> None:
        """Replace the weights by those of a safetensors file, `[S, ...]` by shared names.

        Raises:
          TriglotError: if the architectures differ.
        """
        given = load_file(path)
        own, wanted = (
            {name: array.shape for name, array in arrays.items()}
            for arrays in (self.named_params(), given)
        )
        identity.check_architecture(self.backend, own, wanted)
        params = jax.vmap(self.names.decode)({n: jax.numpy.asarray(a) for n, a in given.items()})

        def start(inputs: tuple[jax.Array, Any]) -> RunnerState:
            key, params = inputs
            weights = Variables(params=params, state=self.agent.network.init(key).state)
            hyper = self.experiment.hyperparams
            return networks.begin(self._trainer, weights, key, hyper)

        start_all = jax.jit(lambda *inputs: jax.lax.map(start, inputs))
        self.state = start_all(self.experiment.keys, params)

    def probe(self) -> Arrays:
        """Compute the parts of the first update for the first seed; see `probes`."""
        state = jax.tree.map(lambda leaf: leaf[0], self.state)
        variables = identity.learned(state.agent)
        return probes.probe(self.agent, state, variables, self.names, self.outputs)

    def compile(self) -> None:
        """Trace, lower and compile the training program, without a cache."""
        self.program = CompiledProgram(self._trainer)
        traced, trace_seconds = timed(lambda: self.program.trace(self.state))
        lowered, lower_seconds = timed(traced.lower)
        cpu = time.process_time()
        self.program.compiled, compile_seconds = timed(lowered.compile)
        self.facts |= {
            "trace_seconds": trace_seconds,
            "lower_seconds": lower_seconds,
            "compile_seconds": compile_seconds,
            "compile_cpu_seconds": time.process_time() - cpu,
        }

    def train(self, count: int) -> tuple[dict[str, Any], Arrays]:
        """Run `count` updates of every seed; return seconds and memory, and the metrics."""
        chunk = run_chunk(self.program, self.state, count)
        self.state = chunk.runner_states
        resident = _resident_bytes() - self.saving_bytes
        return {"seconds": chunk.seconds, "resident_bytes": resident}, chunk.metrics

    def save(self, folder: Path) -> None:
        """Write the states of all seeds to a folder, with what `restore` checks.

        Raises:
          CannotWrite: if the disk is full, or the folder is read-only.
        """
        if self.peak_memory is None:
            self.peak_memory = peak_memory_bytes()
        before = _resident_bytes()
        checkpoint.save(folder / STATE, self.whole)
        write_json(folder / ORIGIN, self.origin)
        self.saving_bytes += _resident_bytes() - before

    def restore(self, folder: Path) -> None:
        """Continue from what `save` wrote; a failure changes nothing.

        Raises:
          TriglotError: if another program wrote it, or it is damaged.
        """
        found = json.loads((folder / ORIGIN).read_text())
        for name, value in self.origin.items():
            if found.get(name) != value:
                raise TriglotError(f"its checkpoint was written with another {name}.")
        self.state = checkpoint.restore(folder / STATE, self.whole)

    @functools.cached_property
    def origin(self) -> dict[str, Any]:
        """What must be equal, so that a training that continues has the same numbers."""
        versions = {f"version of {name}": found for name, found in version.versions().items()}
        # Names and places in the source differ between a compiled program and one from the cache.
        program = Program(program_text(self.program.compiled))
        return {**versions, "device": self.facts["device"], "compiled program": program.sha256}

    def snapshot(self) -> Arrays:
        """Return every seed's parameters, and the network's outputs on the fixed inputs."""
        outputs = self._vmapped_outputs(self._learned())
        return {
            **{f"params/{name}": array for name, array in self.named_params().items()},
            **{f"outputs/{name}": np.asarray(array) for name, array in outputs.items()},
        }

    @functools.cached_property
    def _vmapped_outputs(self) -> Any:
        return jax.jit(jax.vmap(self.outputs))

    def finish(self) -> Arrays:
        """Evaluate greedily and describe the program; return the final parameters."""
        # Before the evaluation below; saving takes memory that training does not need.
        self.facts["peak_memory_bytes"] = self.peak_memory or peak_memory_bytes()
        params = self.named_params()
        names = ("final_returns", "final_returns_unseen")
        returns = self.experiment.greedy_returns(self.state, self.options.eval_episodes)
        self.facts |= {name: each.tolist() for name, each in zip(names, returns, strict=False)}
        self.facts |= {
            "num_params": sum(array[0].size for array in params.values()),
            "params_sha256": identity.params_sha256(params),
            "program": describe(self.program.compiled),
        }
        return params

    def random_return(self) -> float:
        """Estimate the return of uniformly random actions."""
        key = evaluation_key(self.experiment.key, self.options.num_seeds, 1)
        return random_return(self.env, key, num_episodes=self.options.eval_episodes)

    def named_params(self) -> Arrays:
        """Encode every seed's parameters by shared names, `[S, ...]`."""
        return {name: np.asarray(a) for name, a in self._encode(self._learned().params).items()}

    def _learned(self) -> Variables:
        return self.experiment.whole(identity.learned(self.state.agent))

    @property
    def whole(self) -> RunnerState:
        """The states of all seeds on one device."""
        return self.experiment.whole(self.state)

    @functools.cached_property
    def _encode(self) -> Any:
        return jax.jit(jax.vmap(self.names.encode))


def _resident_bytes() -> int:
    return psutil.Process().memory_info().rss


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Call a function, wait for its arrays, and return them with the seconds it took."""
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return result, time.perf_counter() - start


def peak_memory_bytes() -> int | None:
    """Return this process's peak memory; None where the system does not report it (Windows).

    On Linux, `ru_maxrss` includes the parent's memory at the time of the fork, so the kernel's
    high-water mark of this process is read instead.
    """
    status = Path("/proc/self/status")
    if status.exists():
        mark = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if mark:
            return int(mark[1]) * 1024
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
