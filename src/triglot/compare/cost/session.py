"""Time the parts of training and evaluation by themselves: the function of a measurement's jobs."""

import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.agent import PolicyInput, Trajectory
from ...core.evaluate import evaluate
from ...core.loop.state import RunnerState, update_keys
from ...core.tracing.hoist import vmap_seeds
from ...shared.machine.files import write_json
from ..batches import collect
from ..start import Started
from ..training.session import Session, peak_memory_bytes, timed
from ..training.train import share_weights

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
    session = CostSession(options, backend)
    share_weights(weights, session.init())
    session.load(weights)
    session.compile()
    found: dict[str, Any] = {**started.seconds, **session.facts}
    found["first_step_seconds"] = session.train(1)[0]["seconds"]
    found["peak_memory_bytes"] = peak_memory_bytes()
    parts, times = session.prepare(), defaultdict(list)
    rng = np.random.default_rng([options.seed, arguments["number"], *backend.encode()])
    for _ in range(arguments["rounds"]):
        running.wait_for_turn()
        for part in map(str, rng.permutation(parts)):
            times[part].append(session.time(part))
        times["dispatch"].append(statistics.median(session.dispatch(CALLS)))
    write_json(Path(arguments["result"]), {"facts": found, "times": times})


class CostSession(Session):
    """A session with the stages `prepare`, `time` and `dispatch`, after `compile`."""

    def prepare(self) -> list[str]:
        """Train until the agent learns, and compile the parts that `time` runs.

        Returns:
          The names of the parts; an online agent's rollout is a part of its update.
        """
        needed = -(-self.agent.learning_starts // self.experiment.steps_per_update) + 1
        while needed > 0:
            count = min(needed, self.experiment.chunk_size)
            self.train(count)
            needed -= count
        self._collected = jax.jit(lambda states: vmap_seeds(self._collect, states))
        self.parts: dict[str, Callable[[], float]] = {
            "evaluation": self._evaluation(),
            "training": lambda: self.train(1)[0]["seconds"],
        }
        if self.agent.online:
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
        inputs = PolicyInput.of(self.agent, env, env.first)
        key = jax.random.key(0)
        for _ in range(10):
            jax.block_until_ready(self._act(state, carry, inputs, key))
        return [timed(lambda: self._act(state, carry, inputs, key))[1] for _ in range(calls)]

    @functools.cached_property
    def _act(self) -> Any:
        return jax.jit(functools.partial(self.agent.act, explore=True))

    def _number_of_calls(self, run: Callable[[], float]) -> int:
        run()  # compiles
        # Not what `run` returns: of an evaluation, that is the time of one step.
        _, seconds = timed(run)
        return math.ceil(MIN_SECONDS / max(seconds, 1e-6))

    def _collect(self, state: RunnerState) -> Trajectory:
        return collect(self._trainer, state)[2]

    def _update(self) -> Callable[[], float]:
        trajectories = self._collected(self.state)
        keys = jax.vmap(update_keys)(self.state.key, self.state.num_updates).learn

        def learn(agent_states: Any, trajectories: Any, keys: jax.Array) -> Any:
            inputs = (agent_states, trajectories, keys)
            return vmap_seeds(lambda given: self.agent.update(*given), inputs)

        # The states are donated, as in training: a replay would be copied in every call otherwise.
        donating = jax.jit(learn, donate_argnums=0)

        def run() -> float:
            (agent, _), seconds = timed(lambda: donating(self.state.agent, trajectories, keys))
            self.state = replace(self.state, agent=agent)
            return seconds

        return run

    def _online_update(self) -> Callable[[], float]:
        update = jax.jit(lambda states: vmap_seeds(self._trainer.update, states), donate_argnums=0)

        def run() -> float:
            (self.state, _), seconds = timed(lambda: update(self.state))
            return seconds

        return run

    def _evaluation(self) -> Callable[[], float]:
        play = functools.partial(
            evaluate, self.agent, self.env, num_episodes=self.options.eval_episodes
        )
        keys = self.experiment.keys

        def steps(agent_states: Any, keys: jax.Array) -> jax.Array:
            return jnp.max(jax.vmap(play)(agent_states, keys).lengths)

        compiled = jax.jit(steps)

        def run() -> float:
            # Per step: the policies differ, and so do the lengths of their episodes.
            count, seconds = timed(lambda: compiled(self.state.agent, keys))
            return seconds / int(count)

        return run
