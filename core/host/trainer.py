"""Training where environments are stepped in Python: acting and learning are compiled.

Calling a compiled program costs more than such a small program takes. So there is one call per
step of all environments, it is given no more arrays than acting reads, and the only thing waited
for is the action; what a rollout brought goes to the device when it is whole.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..agent import Agent, Trajectory
from ..errors import TriglotError
from ..host_environment import HostEnvironment
from ..loop.callbacks import Callback
from ..loop.state import RunnerState, update_keys
from ..loop.trainer import vmap_seeds
from ..specs import zeros
from .actor import Actor, actor
from .vector import HostRunner, over_time

# What is told of a step, in the order in which it becomes known.
SEEN = ("obs", "first", "action", "reward", "terminated", "truncated", "next_obs")

PyTree: TypeAlias = Any
Metrics: TypeAlias = dict[str, np.ndarray]


class HostFailure(TriglotError):
    """An environment failed while an agent trained in it.

    Attributes:
      runner_state: from after the last whole update.
      metrics: of the updates that the call had done, `[S, updates]` each; empty before the first.
    """

    def __init__(self, message: str, runner_state: RunnerState, metrics: Metrics) -> None:
        super().__init__(message)
        self.runner_state = runner_state
        self.metrics = metrics


@dataclass(frozen=True)
class HostTrainer:
    """An agent in host environments; the counterpart of `Trainer`.

    Keys are used as `Trainer` uses them. The environments' own state is no part of `RunnerState`,
    since in general it cannot be saved: whoever goes on from a saved state begins new episodes.

    Attributes:
      agent: the algorithm.
      env: what it steps `agent.num_envs` of.
      chunk_size: most updates in one chunk.
      every_update: called after each update, see `train`; or None.
    """

    agent: Agent
    env: HostEnvironment
    chunk_size: int = 64
    every_update: Callback | None = None

    @property
    def steps_per_update(self) -> int:
        """Environment steps that one update consumes."""
        return self.agent.rollout_length * self.agent.num_envs

    def init(self, key: jax.Array, hyper: PyTree | None = None) -> RunnerState:
        """Make the agent; pure."""
        agent_key, _, run_key = jax.random.split(key, 3)
        agent_state = self.agent.init(agent_key, self.agent.num_envs, hyper)
        return RunnerState(
            key=run_key,
            agent=agent_state,
            carry=self.agent.initial_carry(agent_state, self.agent.num_envs),
            env=(),
            num_updates=jnp.zeros((), jnp.int32),
        )


class HostProgram:
    """Does updates of all seeds: for a `HostTrainer` what `train_seeds` is for a `Trainer`.

    The environments are opened at the first call, seeded from the states' keys, and go on from call
    to call. Each seed has environments of its own, side by side: one call acts for all seeds.
    """

    def __init__(self, trainer: HostTrainer) -> None:
        self._trainer = trainer
        self._state: Any = None
        self._runner: HostRunner | None = None
        self._actor: Actor | None = None
        self._learn: Callable[..., tuple] | None = None

    def compile(self, state: RunnerState) -> None:
        """Compile ahead of the first call, which otherwise does it.

        Args:
          state: `[S, ...]`, for its shapes.
        """
        agent, spec = self._trainer.agent, self._trainer.env.obs_spec
        shape = (state.num_updates.shape[0], agent.num_envs)
        num_steps = 1 if agent.online else agent.rollout_length
        built = self._find_actor(state)

        def example(state: RunnerState) -> tuple[tuple, tuple]:
            keys, _ = _keys(agent, state.key, state.num_updates)
            obs, first = zeros(spec, *shape), jnp.zeros(shape, bool)
            acting = (built.of(state.agent), state.carry, keys[:, 0], obs, first)
            action, _, extras = built.call(*acting)
            step = {"obs": obs, "next_obs": obs, "action": action, "extras": extras}
            step |= {"reward": jnp.zeros(shape)}
            step |= {name: first for name in ("first", "terminated", "truncated")}
            steps = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_steps, axis=1), step)
            return acting, (state.agent, _trajectory(steps, state.carry), keys[:, 0])

        acting, learning = jax.eval_shape(example, state)
        act: Any = built.call  # jitted
        _keys(agent, state.key, state.num_updates)
        self._actor = built._replace(call=act.lower(*acting).compile())
        self._learn = _learn.lower(agent, jax.random.key_impl(state.key), *learning).compile()

    def __call__(
        self, state: RunnerState, num_updates: int | np.integer
    ) -> tuple[RunnerState, Metrics]:
        """Do `num_updates` updates of every seed; the states given are used up.

        Returns:
          Where training stands then, and each metric `[S, num_updates]`.

        Raises:
          HostFailure: if an environment fails, changes its observations' shape, or gives numbers
            that are not finite; what was learned before is in it.
        """
        self._state = state
        history: list[dict[str, Any]] = []
        try:
            self._actor = self._actor or self._find_actor(state)
            self._runner = self._runner or self._open(state)
            if self._learn is None:
                impl = jax.random.key_impl(state.key)
                self._learn = functools.partial(_learn, self._trainer.agent, impl)
            for _ in range(int(num_updates)):
                history.append(self._update(self._actor, self._learn, self._runner))
                self._tell(history[-1])
        except TriglotError as error:
            raise HostFailure(str(error), self._state, _stacked(history)) from error
        return self._state, _stacked(history)

    def close(self) -> None:
        """Let go of the environments."""
        if self._runner is not None:
            self._runner.close()

    def _find_actor(self, state: RunnerState) -> Actor:
        agent, env = self._trainer.agent, self._trainer.env
        impl = jax.random.key_impl(state.key)
        return actor(agent, state.agent, env.obs_spec, agent.num_envs, explore=True, impl=impl)

    def _open(self, state: RunnerState) -> HostRunner:
        keys = jax.vmap(update_keys)(state.key, state.num_updates).start
        seeds = np.asarray(jax.vmap(jax.random.bits)(keys)).tolist()
        return HostRunner(self._trainer.env, self._trainer.agent.num_envs, seeds)

    def _update(
        self, actor: Actor, learn: Callable[..., tuple], runner: HostRunner
    ) -> dict[str, Any]:
        """Collect one rollout and learn from it, or in it where the agent is online."""
        agent, state = self._trainer.agent, self._state
        act_keys, learn_keys = map(np.asarray, _keys(agent, state.key, state.num_updates))
        per_update = 1 if agent.online else agent.rollout_length
        whole, learned = [], []
        for start in range(0, agent.rollout_length, per_update):
            read, carry, steps = actor.of(self._state.agent), self._state.carry, []
            for time in range(start, start + per_update):
                obs, first = runner.obs, runner.first
                action, carry, extras = actor.call(read, carry, act_keys[:, time], obs, first)
                on_host = np.asarray(action)
                steps.append(((obs, first, on_host, *runner.step(on_host)[:-1]), extras))
            told, extras = over_time(steps)
            seen: dict[str, Any] = dict(zip(SEEN, told, strict=True))
            runner.check_finite(seen)
            agent_state, metrics = learn(
                self._state.agent,
                _trajectory({**seen, "extras": extras}, self._state.carry),
                learn_keys[:, start],
            )
            whole.append(seen)
            learned.append(metrics)
            self._state = replace(self._state, agent=agent_state, carry=carry)
        self._state = replace(self._state, num_updates=state.num_updates + 1)
        metrics = learned[0] if len(learned) == 1 else _mean(jax.device_get(learned))
        return {**runner.episodes(_joined(whole)), **metrics}

    def _tell(self, metrics: dict[str, Any]) -> None:
        if self._trainer.every_update is not None:
            done, told = jax.device_get((self._state.num_updates, metrics))
            self._trainer.every_update(int(done[0]), told)


@functools.partial(jax.jit, static_argnums=0)
def _keys(agent: Agent, keys: jax.Array, num_updates: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Make the keys of each seed's next update, `[S]` keys, as `Trainer` and its rollout do.

    Returns:
      The data of the keys of acting and of learning, `[S, T, ...]` each; of learning only the
      first, where the agent is not online.
    """

    def split(key: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        own, count = update_keys(key, number), agent.rollout_length
        if agent.online:
            act_key, _, learn_key = jax.random.split(own.rollout, 3)
            act_keys = jax.random.split(act_key, count)
            learn_keys = jax.random.split(learn_key, count)
        else:
            act_keys = jax.vmap(lambda k: jax.random.split(k)[0])(
                jax.random.split(own.rollout, count)
            )
            learn_keys = own.learn[None]
        return jax.random.key_data(act_keys), jax.random.key_data(learn_keys)

    return jax.vmap(split)(keys, num_updates)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _learn(
    agent: Agent, impl: Any, agent_state: Any, trajectory: Trajectory, key_data: jax.Array
) -> tuple[Any, dict[str, jax.Array]]:
    """Learn from each seed's trajectory; the states given are used up."""

    def learn(given: tuple[Any, Trajectory, jax.Array]) -> tuple[Any, dict[str, jax.Array]]:
        state, trajectory, key_data = given
        return agent.update(state, trajectory, jax.random.wrap_key_data(key_data, impl=impl))

    return vmap_seeds(learn, (agent_state, trajectory, key_data))


def _trajectory(steps: dict[str, Any], carry: PyTree) -> Trajectory:
    return Trajectory(**steps, carry=carry, action_mask=None, next_action_mask=None)


def _stacked(history: list[dict[str, Any]]) -> Metrics:
    return over_time(jax.device_get(history)) if history else {}


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        name: np.concatenate([part[name] for part in parts], axis=1)
        for name in ("reward", "terminated", "truncated")
    }


def _mean(history: list[Metrics]) -> Metrics:
    return {name: np.mean([one[name] for one in history], axis=0) for name in history[0]}
