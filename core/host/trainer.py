"""Train in environments that are stepped in Python; acting and learning are compiled.

The call of a small compiled program takes longer than the program. So there is one call per step of
all environments, its arguments are only the arrays that `act` reads, and only the action is waited
for. Rollouts are transferred to the device as a whole.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from ..agent import Agent, Trajectory
from ..arguments import check_agent, check_env, check_fits
from ..errors import TriglotError
from ..host_environment import Arrays, HostEnvironment, host_mask_size
from ..loop.callbacks import Callback, OnStage, ignore_stage
from ..loop.episode import Episodes, PlayOptions
from ..loop.state import (
    RunnerState,
    first_state,
    reads_learning_rate,
    scheduled,
    update_keys,
    without_unread,
)
from ..specs import zeros
from ..tracing.hoist import vmap_seeds
from ..types import (
    AnyAgentState,
    AnyHyperparams,
    Carry,
    KeyImpl,
    PyTree,
    abstract_key,
    pytree_dataclass,
)
from .player import Actor, actor, play_episodes
from .vector import HostRunner, over_time

# The arrays that are recorded per step, in this order.
RECORDED = (
    "obs", "first", "action_mask", "action",
    "reward", "terminated", "truncated", "next_obs", "next_action_mask",
)  # fmt: skip

Metrics: TypeAlias = dict[str, np.ndarray]


class HostFailure(TriglotError):
    """A host environment failed during training.

    Attributes:
      runner_state: the state after the last whole update; of an online agent, which learns after
        every step, after the last step, with the counter of the last whole update.
      metrics: of the updates done in the failed call, `[S, updates]` each; empty if there are none.
    """

    def __init__(self, message: str, runner_state: RunnerState, metrics: Metrics) -> None:
        super().__init__(message)
        self.runner_state = runner_state
        self.metrics = metrics


@dataclass(frozen=True)
class HostTrainer:
    """An agent in host environments; it uses random keys as `Trainer` does.

    The environments' state is not part of `RunnerState`, because in general it cannot be saved: a
    resumed run starts new episodes.

    All environments are stepped in one group: acting with one half while the other steps was no
    faster (docs/design.md).

    Attributes:
      agent: the algorithm; it steps `agent.num_envs` environments.
      single_env: the environment.
      chunk_size: maximum number of updates per chunk.
      every_update: called after each update, see `train`; or None.
    """

    agent: Agent
    single_env: HostEnvironment
    chunk_size: int = 64
    every_update: Callback | None = None

    steps_on_host: ClassVar[bool] = True
    sharding: ClassVar[None] = None  # one process steps all environments

    def __post_init__(self) -> None:
        check_agent(self.agent)
        check_env(self.single_env)
        check_fits(self.agent, self.single_env)

    @property
    def steps_per_update(self) -> int:
        """Environment steps per update."""
        return self.agent.rollout_length * self.agent.num_envs

    def init(self, key: jax.Array, hyper: PyTree | None = None) -> RunnerState:
        """Initialize the agent; pure."""
        return first_state(self.agent, self.agent.num_envs, lambda _: (), key, hyper)

    def program(self) -> "HostProgram":
        """Build the program that trains all seeds."""
        return HostProgram(self)

    def check(self) -> None:
        """Trace the agent's `init` without running it."""
        jax.eval_shape(self.init, abstract_key())

    def evaluate(
        self, agent_state: AnyAgentState, key: jax.Array, **options: Unpack[PlayOptions]
    ) -> Episodes:
        """Play `[E]` whole episodes with one seed's agent state; see `core.evaluate.evaluate`."""
        return play_episodes(self.agent, self.single_env, agent_state, key, **options)

    def evaluate_seeds(
        self, agent_states: AnyAgentState, keys: jax.Array, **options: Unpack[PlayOptions]
    ) -> Episodes:
        """Play `[S, E]` whole episodes, with one agent state and one key `[S]` per seed."""
        played = [
            self.evaluate(jax.tree.map(lambda leaf, s=seed: leaf[s], agent_states), key, **options)
            for seed, key in enumerate(keys)
        ]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *played)


@pytree_dataclass
class _HyperOnly:
    """The part of an agent's state that schedules change."""

    hyper: AnyHyperparams


class HostProgram:
    """The updates of all seeds as one callable; as `CompiledProgram`.

    The first call opens the environments, seeded from the states' keys; later calls continue with
    them. Each seed has separate environments, and one call of `act` serves all seeds.
    """

    def __init__(self, trainer: HostTrainer) -> None:
        self._trainer = trainer
        self._state: RunnerState  # of the call in progress
        self._runner: HostRunner | None = None
        self._actor: Actor | None = None
        self._learn: Callable[..., tuple] | None = None
        self._shows_rate = reads_learning_rate(trainer.agent)
        # The last trajectory `[S, T, N]` and key data `[S, ...]`, by which a NaN is explained.
        self.learned_from: tuple[Trajectory, np.ndarray] | None = None

    def compile(self, state: RunnerState, on_stage: OnStage = ignore_stage) -> None:
        """Compile acting and learning before the first call; see `CompiledProgram`."""
        agent, spec = self._trainer.agent, self._trainer.single_env.obs_spec
        shape = (state.num_updates.shape[0], agent.num_envs)
        num_steps = 1 if agent.online else agent.rollout_length
        built, num_masked = self._find_actor(state), host_mask_size(self._trainer.single_env)

        def example(state: RunnerState) -> tuple[tuple, tuple]:
            keys, _ = _keys(agent, state.key, state.num_updates)
            obs, first = zeros(spec, *shape), jnp.zeros(shape, bool)
            mask = None if num_masked is None else jnp.zeros((*shape, num_masked), bool)
            acting = (built.of(state.agent), state.carry, keys[:, 0], obs, first, mask)
            action, _, extras = built.call(*acting)
            step = {"obs": obs, "next_obs": obs, "action": action, "extras": extras}
            step |= {"reward": jnp.zeros(shape), "action_mask": mask, "next_action_mask": mask}
            step |= {name: first for name in ("first", "terminated", "truncated")}
            steps = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_steps, axis=1), step)
            return acting, (state.agent, _trajectory(steps, state.carry), keys[:, 0])

        acting, learning = jax.eval_shape(example, state)
        act: Any = built.call  # jitted
        _keys(agent, state.key, state.num_updates)
        self._actor = built._replace(call=act.lower(*acting).compile())
        self._learn = _learn.lower(agent, jax.random.key_impl(state.key), *learning).compile()
        on_stage("compile")

    def __call__(
        self, state: RunnerState, num_updates: int | np.int32
    ) -> tuple[RunnerState, Metrics]:
        """Run `num_updates` updates of every seed. The given states are donated.

        Returns:
          The new states, and each metric `[S, num_updates]`.

        Raises:
          HostFailure: if an environment raises, or returns observations of another shape or values
            that are not finite. It holds the state after the last whole update.
        """
        self._state = state
        history: list[dict[str, jax.Array | np.ndarray]] = []
        try:
            self._actor = self._actor or self._find_actor(state)
            self._runner = self._runner or self._open(state)
            if self._learn is None:
                impl = jax.random.key_impl(state.key)
                self._learn = functools.partial(_learn, self._trainer.agent, impl)
            for _ in range(int(num_updates)):
                history.append(self._update(self._actor, self._learn, self._runner))
                if self._trainer.every_update is not None:
                    done, on_host = jax.device_get((self._state.num_updates, history[-1]))
                    self._trainer.every_update(int(done[0]), on_host)
        except TriglotError as error:
            raise HostFailure(str(error), self._state, _stacked(history)) from error
        return self._state, _stacked(history)

    def close(self) -> None:
        """Close the environments."""
        if self._runner is not None:
            self._runner.close()

    def _find_actor(self, state: RunnerState) -> Actor:
        agent, env = self._trainer.agent, self._trainer.single_env
        impl = jax.random.key_impl(state.key)
        return actor(agent, state.agent, env, agent.num_envs, explore=True, impl=impl)

    def _open(self, state: RunnerState) -> HostRunner:
        env, num_envs = self._trainer.single_env, self._trainer.agent.num_envs
        return HostRunner(env, num_envs, _env_seeds(state))

    def _update(
        self, actor: Actor, learn: Callable[..., tuple], runner: HostRunner
    ) -> dict[str, jax.Array | np.ndarray]:
        """Collect one rollout and learn from it; an online agent learns after every step."""
        agent, state = self._trainer.agent, self._state
        if agent.explores_by_parameters and runner.num_steps:  # it was opened with these seeds
            runner.restart(_env_seeds(state))
        act_keys, learn_keys = map(np.asarray, _keys(agent, state.key, state.num_updates))
        per_update = 1 if agent.online else agent.rollout_length
        rollouts, learned = [], []
        hyper: dict[str, jax.Array] = {}
        for start in range(0, agent.rollout_length, per_update):
            if self._state.schedules:
                self._state, values = _scheduled(agent, self._state, start * agent.num_envs)
                hyper = hyper or values
            read, carry, steps = actor.of(self._state.agent), self._state.carry, []
            for time in range(start, start + per_update):
                observed = (runner.obs, runner.first, runner.action_mask)
                action, carry, extras = actor.call(read, carry, act_keys[:, time], *observed)
                on_host = np.asarray(action)
                step = runner.step(on_host)
                after = (step.reward, step.terminated, step.truncated, step.next_obs)
                steps.append(((*observed, on_host, *after, step.next_action_mask), extras))
            arrays, extras = over_time(steps)
            recorded: dict[str, Arrays] = dict(zip(RECORDED, arrays, strict=True))
            runner.check_finite(recorded)
            trajectory = _trajectory({**recorded, "extras": extras}, self._state.carry)
            self.learned_from = trajectory, learn_keys[:, start]
            agent_state, metrics = learn(self._state.agent, trajectory, learn_keys[:, start])
            rollouts.append(recorded)
            learned.append(metrics)
            self._state = replace(self._state, agent=agent_state, carry=carry)
        self._state = replace(self._state, num_updates=state.num_updates + 1)
        metrics = learned[0] if len(learned) == 1 else _mean(jax.device_get(learned))
        episodes = runner.episodes(_joined(rollouts))
        all_metrics = {**episodes, **hyper, **metrics}
        return all_metrics if self._shows_rate else without_unread(agent, all_metrics)


def _env_seeds(state: RunnerState) -> list[int]:
    """Make the seed of each of the `S` vectors of environments, from the next update's keys."""
    keys = jax.vmap(update_keys)(state.key, state.num_updates).start
    return np.asarray(jax.vmap(jax.random.bits)(keys)).tolist()


@functools.partial(jax.jit, static_argnums=0)
def _keys(agent: Agent, keys: jax.Array, num_updates: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Make the keys of each seed's next update from `[S]` keys, as `Trainer` and its rollout do.

    Returns:
      Key data for acting, `[S, T, ...]`, and for learning, `[S, T, ...]` if the agent is online and
      `[S, 1, ...]` otherwise.
    """

    def split(key: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys, count = update_keys(key, number), agent.rollout_length
        if agent.online:
            act_key, _, learn_key = jax.random.split(keys.rollout, 3)
            act_keys = jax.random.split(act_key, count)
            learn_keys = jax.random.split(learn_key, count)
        else:
            step_keys = jax.random.split(keys.rollout, count)
            act_keys = jax.vmap(lambda key: jax.random.split(key)[0])(step_keys)
            learn_keys = keys.learn[None]
        return jax.random.key_data(act_keys), jax.random.key_data(learn_keys)

    return jax.vmap(split)(keys, num_updates)


def _scheduled(
    agent: Agent, state: RunnerState, num_steps: int
) -> tuple[RunnerState, dict[str, jax.Array]]:
    """Write the values of the schedules into each seed's agent state, as `Trainer` does."""
    # Only what changes goes through the program.
    small_state = replace(state, env=(), carry=(), agent=_HyperOnly(hyper=state.agent.hyper))
    per_update = agent.rollout_length * agent.num_envs
    hyper, values = _scheduled_hyper(per_update, small_state, jnp.float32(num_steps))
    return replace(state, agent=replace(state.agent, hyper=hyper)), values


@functools.partial(jax.jit, static_argnums=0)
def _scheduled_hyper(
    steps_per_update: int, states: RunnerState, num_steps: jax.Array
) -> tuple[AnyHyperparams, dict[str, jax.Array]]:
    def of_seed(state: RunnerState) -> tuple[AnyHyperparams, dict[str, jax.Array]]:
        state, values = scheduled(state, steps_per_update, num_steps)
        return state.agent.hyper, values

    return jax.vmap(of_seed)(states)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _learn(
    agent: Agent,
    impl: KeyImpl,
    agent_state: AnyAgentState,
    trajectory: Trajectory,
    key_data: jax.Array,
) -> tuple[AnyAgentState, dict[str, jax.Array]]:
    """Learn from each seed's trajectory; the given states are donated."""

    def learn(
        inputs: tuple[AnyAgentState, Trajectory, jax.Array],
    ) -> tuple[AnyAgentState, dict[str, jax.Array]]:
        state, trajectory, key_data = inputs
        return agent.update(state, trajectory, jax.random.wrap_key_data(key_data, impl=impl))

    return vmap_seeds(learn, (agent_state, trajectory, key_data))


def _trajectory(steps: dict[str, Arrays], carry: Carry) -> Trajectory:
    return Trajectory(**steps, carry=carry)


def _stacked(history: list[dict[str, jax.Array | np.ndarray]]) -> Metrics:
    return over_time(jax.device_get(history)) if history else {}


def _joined(parts: list[dict[str, Arrays]]) -> dict[str, np.ndarray]:
    names = ("reward", "terminated", "truncated")
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in names}


def _mean(history: list[Metrics]) -> Metrics:
    return {name: np.mean([metrics[name] for metrics in history], axis=0) for name in history[0]}
