"""Time the parts of training and evaluation by themselves; runs in a worker process."""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ...core.agent import PolicyInput, Trajectory
from ...core.evaluate import evaluate
from ...core.loop.rollout import rollout
from ...core.loop.state import RunnerState, update_keys
from ...core.loop.trainer import vmap_seeds
from ..training.measure import peak_memory_bytes, timed
from ..training.session import Reply, Session

MIN_SECONDS = 0.02  # of one measurement, so that the clock's resolution does not matter


class CostSession(Session):
    """A session with the stages `prepare`, `time` and `memory`, after `compile`."""

    def prepare(self) -> Reply:
        """Train until the agent learns, and compile the parts that `time` runs.

        Returns:
          The names of the parts; an online agent's rollout is a part of its update.
        """
        needed = -(-self.agent.learning_starts // self.trainer.steps_per_update) + 1
        while needed > 0:
            count = min(needed, self.trainer.chunk_size)
            self.train(count)
            needed -= count
        self.parts: dict[str, Callable[[], float]] = {
            "evaluation": self._evaluation(),
            "training": lambda: self.train(1).facts["seconds"],
        }
        if self.agent.online:
            self.parts["update"] = self._online_update()
        else:
            self.parts |= {"rollout": self._rollout(), "update": self._update()}
        self.calls = {name: self._number_of_calls(run) for name, run in self.parts.items()}
        return Reply({"parts": list(self.parts)})

    def time(self, part: str) -> Reply:
        """Run one part for about 0.02 s or once; return the seconds of one run."""
        calls = self.calls[part]
        return Reply({"seconds": sum(self.parts[part]() for _ in range(calls)) / calls})

    def dispatch(self, calls: int) -> Reply:
        """Time single calls of the jitted `act` from Python, as in a notebook."""
        if not hasattr(self, "act"):
            self.act = jax.jit(functools.partial(self.agent.act, explore=True))
        all_seeds = (self.state.agent, self.state.carry, self.state.env)
        state, carry, env = jax.tree.map(lambda leaf: leaf[0], all_seeds)
        inputs = PolicyInput(obs=env.obs, first=env.first, action_mask=env.action_mask)
        key = jax.random.key(0)
        for _ in range(10):
            jax.block_until_ready(self.act(state, carry, inputs, key))
        seconds = [timed(lambda: self.act(state, carry, inputs, key))[1] for _ in range(calls)]
        return Reply({"seconds": seconds})

    def memory(self) -> Reply:
        """Return the peak memory of this process so far."""
        return Reply({"peak_memory_bytes": peak_memory_bytes()})

    def _number_of_calls(self, run: Callable[[], float]) -> int:
        run()  # compiles
        # Not what `run` returns: of an evaluation, that is the time of one step.
        _, seconds = timed(run)
        return math.ceil(MIN_SECONDS / max(seconds, 1e-6))

    def _rollout(self) -> Callable[[], float]:
        collect = jax.jit(lambda states: vmap_seeds(self._collect, states))
        return lambda: timed(lambda: collect(self.state))[1]

    def _collect(self, state: RunnerState) -> Trajectory:
        keys = update_keys(state.key, state.num_updates)
        env_state = self.trainer.env.refresh(state.env, keys.pool)
        start = (self.agent, self.trainer.env, state.agent, state.carry, env_state, keys.rollout)
        return rollout(*start)[2]

    def _update(self) -> Callable[[], float]:
        trajectories = jax.jit(lambda states: vmap_seeds(self._collect, states))(self.state)
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
        update = jax.jit(lambda states: vmap_seeds(self.trainer.update, states), donate_argnums=0)

        def run() -> float:
            (self.state, _), seconds = timed(lambda: update(self.state))
            return seconds

        return run

    def _evaluation(self) -> Callable[[], float]:
        play = functools.partial(
            evaluate, self.agent, self.env, num_episodes=self.options.eval_episodes
        )
        keys = jax.random.split(jax.random.key(self.options.seed), self.options.num_seeds)

        def steps(agent_states: Any, keys: jax.Array) -> jax.Array:
            return jnp.max(jax.vmap(play)(agent_states, keys).lengths)

        compiled = jax.jit(steps)

        def run() -> float:
            # Per step: the policies differ, and so do the lengths of their episodes.
            count, seconds = timed(lambda: compiled(self.state.agent, keys))
            return seconds / int(count)

        return run
