"""Time the parts of training and evaluation by themselves: the function of a measurement's jobs."""

import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ...core.agent import PolicyInput, PolicyOutput, Trajectory
from ...core.evaluate import evaluate
from ...core.experiment import updates_of
from ...core.loop.state import RunnerState, Updated, update_keys
from ...core.loop.trainer import CompiledProgram
from ...core.tracing.hoist import vmap_seeds
from ...core.types import AnyAgentState, Metrics
from ...shared.machine.files import write_json
from ..batches import collect
from ..rungs import rung_of_arithmetic
from ..start import Started
from ..training.library import LibraryExperiment
from ..training.measuring import compile_timed, peak_memory_bytes, timed
from ..training.train import build, share_weights

MIN_SECONDS = 0.02  # of one measurement, so that the clock's resolution does not matter
CALLS = 100  # of the policy in each round


def measure_one(started: Started) -> None:
    """Measure one library: first what happens once, then a round of the steady parts at each turn.

    Args:
      started: its arguments are `backend`; `number`, of the repetition; `rounds`, how many turns
        there are; `weights`, the file of the initial weights, which the first process writes; and
        `result`, the file for `facts` and, for each round, the seconds of each part, `times`.

    Raises:
      TriglotError: if the library cannot be trained.
    """
    options, arguments, running = started.options, started.arguments, started.running
    backend, weights = arguments["backend"], Path(arguments["weights"])
    rung = rung_of_arithmetic(options.arithmetic)
    library, facts = build(options, backend, rung, options.env, started.seconds)
    state, facts["init_seconds"] = timed(library.experiment.start)
    share_weights(weights, library.named_params(state))
    state = library.start_from(weights)
    program, seconds = compile_timed(library.experiment, state)
    session = CostSession(library, program, state)
    facts |= seconds
    facts["first_step_seconds"] = session.train(1)
    facts["peak_memory_bytes"] = peak_memory_bytes()
    parts, times = session.prepare(), defaultdict(list)
    rng = np.random.default_rng([options.seed, arguments["number"], *backend.encode()])
    for _ in range(arguments["rounds"]):
        running.wait_for_turn()
        for part in map(str, rng.permutation(parts)):
            times[part].append(session.time(part))
        times["dispatch"].append(statistics.median(session.dispatch(CALLS)))
    write_json(Path(arguments["result"]), {"facts": facts, "times": times})


@dataclass
class CostSession:
    """Times parts of a training. It is mutable, because a training donates its state.

    Attributes:
      library: what is trained.
      program: of its training, compiled.
      state: `[S, ...]`, the last one.
      parts: by name, what runs a part and returns its seconds; empty before `prepare`.
      calls: how often each part is run for one measurement.
    """

    library: LibraryExperiment
    program: CompiledProgram
    state: RunnerState
    parts: dict[str, Callable[[], float]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    def train(self, count: int) -> float:
        """Run `count` updates of every seed; return the seconds they took."""
        until, seconds = updates_of(self.state) + count, 0.0
        for chunk in self.library.experiment.chunks(self.state, program=self.program, until=until):
            self.state = chunk.runner_states
            seconds += chunk.seconds
        return seconds

    def prepare(self) -> list[str]:
        """Train until the agent learns, and compile the parts that `time` runs.

        Returns:
          The names of the parts; an online agent's rollout is a part of its update.
        """
        agent, steps_per_update = self.library.agent, self.library.experiment.steps_per_update
        self.train(-(-agent.learning_starts // steps_per_update) + 1)
        self.parts = {"evaluation": self._evaluation(), "training": lambda: self.train(1)}
        if agent.online:
            self.parts["update"] = self._online_update()
        else:
            self.parts["rollout"] = lambda: timed(lambda: self._collected(self.state))[1]
            self.parts["update"] = self._update()
        self.calls = {name: self._number_of_calls(run) for name, run in self.parts.items()}
        return list(self.parts)

    def time(self, part: str) -> float:
        """Run one part for about 0.02 s or once; return the seconds of one run."""
        calls = self.calls[part]
        return sum(self.parts[part]() for _ in range(calls)) / calls

    def dispatch(self, calls: int) -> list[float]:
        """Time single calls of the jitted `act` from Python, as in a notebook."""
        all_seeds = (self.state.agent, self.state.carry, self.state.env)
        state, carry, env = jax.tree.map(lambda leaf: leaf[0], all_seeds)
        inputs = PolicyInput.of(self.library.agent, env, env.first)
        key = jax.random.key(0)
        for _ in range(10):
            jax.block_until_ready(self._act(state, carry, inputs, key))
        return [timed(lambda: self._act(state, carry, inputs, key))[1] for _ in range(calls)]

    @functools.cached_property
    def _act(self) -> Callable[..., PolicyOutput]:
        return jax.jit(functools.partial(self.library.agent.act, explore=True))

    @functools.cached_property
    def _collected(self) -> Callable[[RunnerState], Trajectory]:
        return jax.jit(lambda states: vmap_seeds(self._collect, states))

    def _number_of_calls(self, run: Callable[[], float]) -> int:
        run()  # compiles
        # Not what `run` returns: of an evaluation, that is the time of one step.
        _, seconds = timed(run)
        return math.ceil(MIN_SECONDS / max(seconds, 1e-6))

    def _collect(self, state: RunnerState) -> Trajectory:
        return collect(self.library.trainer, state)[2]

    def _update(self) -> Callable[[], float]:
        trajectories = self._collected(self.state)
        keys = jax.vmap(update_keys)(self.state.key, self.state.num_updates).learn

        def learn(
            agent_states: AnyAgentState, trajectories: Trajectory, keys: jax.Array
        ) -> tuple[AnyAgentState, Metrics]:
            inputs = (agent_states, trajectories, keys)
            return vmap_seeds(lambda seed: self.library.agent.update(*seed), inputs)

        # The states are donated, as in training: a replay would be copied in every call otherwise.
        donating = jax.jit(learn, donate_argnums=0)

        def run() -> float:
            (agent, _), seconds = timed(lambda: donating(self.state.agent, trajectories, keys))
            self.state = replace(self.state, agent=agent)
            return seconds

        return run

    def _online_update(self) -> Callable[[], float]:
        def update_seeds(states: RunnerState) -> Updated:
            return vmap_seeds(self.library.trainer.update, states)

        update = jax.jit(update_seeds, donate_argnums=0)

        def run() -> float:
            (self.state, _), seconds = timed(lambda: update(self.state))
            return seconds

        return run

    def _evaluation(self) -> Callable[[], float]:
        library = self.library
        play = functools.partial(
            evaluate, library.agent, library.env, num_episodes=library.options.eval_episodes
        )
        keys = library.experiment.keys

        def steps(agent_states: AnyAgentState, keys: jax.Array) -> jax.Array:
            return jnp.max(jax.vmap(play)(agent_states, keys).lengths)

        compiled = jax.jit(steps)

        def run() -> float:
            # Per step: the policies differ, and so do the lengths of their episodes.
            count, seconds = timed(lambda: compiled(self.state.agent, keys))
            return seconds / int(count)

        return run
