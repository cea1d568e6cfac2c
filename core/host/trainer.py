"""Train in environments that are stepped in Python; acting and learning are compiled.

The call of a small compiled program takes longer than the program. So there is one call per step of
all environments of a group, its arguments are only the arrays that `act` reads, and only the action
is waited for. Rollouts are transferred to the device as a whole.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..agent import Agent, Trajectory
from ..errors import TriglotError
from ..host_environment import HostEnvironment, num_groups
from ..loop.callbacks import Callback
from ..loop.episode import Episodes
from ..loop.interface import OnStage, ignore_stage
from ..loop.state import RunnerState, first_state, update_keys
from ..loop.trainer import vmap_seeds
from ..specs import zeros
from ..types import PyTree
from .actor import Actor, actor
from .collected import EpisodeCounter, Metrics, check_finite, over_time
from .groups import HostGroups, part_of
from .player import play_episodes


class HostFailure(TriglotError):
    """A host environment failed during training.

    Attributes:
      runner_state: the state after the last whole update.
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

    Attributes:
      agent: the algorithm; it steps `agent.num_envs` environments.
      env: the single environment.
      chunk_size: maximum number of updates per chunk.
      every_update: called after each update, see `train`; or None.
    """

    agent: Agent
    env: HostEnvironment
    chunk_size: int = 64
    every_update: Callback | None = None

    steps_on_host = True
    sharding = None  # one process steps all environments

    @property
    def single_env(self) -> HostEnvironment:
        """The single environment."""
        return self.env

    @property
    def num_groups(self) -> int:
        """Groups of environments that are stepped at the same time."""
        return num_groups(self.env, self.agent.num_envs)

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
        jax.eval_shape(self.init, jax.random.key(0))

    def evaluate(self, agent_state: Any, key: jax.Array, **options: Any) -> Episodes:
        """Play `[E]` whole episodes with one seed's agent state; see `core.evaluate.evaluate`."""
        return play_episodes(self.agent, self.env, agent_state, key, **options)

    def evaluate_seeds(self, agent_states: Any, keys: jax.Array, **options: Any) -> Episodes:
        """Play `[S, E]` whole episodes, with one agent state and one key `[S]` per seed."""
        played = [
            self.evaluate(jax.tree.map(lambda leaf, s=seed: leaf[s], agent_states), key, **options)
            for seed, key in enumerate(keys)
        ]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *played)


class HostProgram:
    """The `Program` of a `HostTrainer`.

    The first call opens the environments, seeded from the states' keys; later calls continue with
    them. Each seed has separate environments, and one call of `act` serves a group of all seeds.
    """

    def __init__(self, trainer: HostTrainer) -> None:
        self._trainer = trainer
        self._state: Any = None
        self._groups: HostGroups | None = None
        self._episodes: EpisodeCounter | None = None
        self._actor: Actor | None = None
        self._learn: Callable[..., tuple] | None = None
        self._compiled = False

    def compile(self, state: RunnerState, on_stage: OnStage = ignore_stage) -> None:
        """Compile acting and learning before the first call; see `Program.compile`."""
        agent, spec = self._trainer.agent, self._trainer.env.obs_spec
        num_seeds, groups = state.num_updates.shape[0], self._trainer.num_groups
        num_steps = 1 if agent.online else agent.rollout_length
        built = self._find_actor(state)

        def observed(num_envs: int) -> tuple[PyTree, jax.Array]:
            return zeros(spec, num_seeds, num_envs), jnp.zeros((num_seeds, num_envs), bool)

        def example(state: RunnerState) -> tuple[tuple, tuple]:
            act_keys, learn_keys = _keys(agent, groups, state.key, state.num_updates)
            carry = part_of(state.carry, 0, groups)
            acting = (
                built.of(state.agent), carry, act_keys[:, 0, 0], *observed(agent.num_envs // groups)
            )  # fmt: skip
            seen = jax.tree.map(
                lambda leaf: jnp.concatenate([leaf] * groups, axis=1), built.call(*acting)
            )
            obs, first = observed(agent.num_envs)
            step = {"obs": obs, "next_obs": obs, "action": seen[0], "extras": seen[2]}
            step |= {"reward": jnp.zeros(first.shape)}
            step |= {name: first for name in ("first", "terminated", "truncated")}
            steps = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_steps, axis=1), step)
            return acting, (state.agent, _trajectory(steps, state.carry), learn_keys[:, 0])

        acting, learning = jax.eval_shape(example, state)
        act: Any = built.call  # jitted
        _keys(agent, groups, state.key, state.num_updates)
        self._actor = built._replace(call=act.lower(*acting).compile())
        self._learn = _learn.lower(agent, jax.random.key_impl(state.key), *learning).compile()
        self._compiled = True
        on_stage("compile")

    def __call__(self, state: RunnerState, num_updates: Any) -> tuple[RunnerState, Metrics]:
        """Run `num_updates` updates of every seed. The given states are donated.

        Returns:
          The new states, and each metric `[S, num_updates]`.

        Raises:
          HostFailure: if an environment raises, or returns observations of another shape or values
            that are not finite. It holds the state after the last whole update.
        """
        self._state = state
        history: list[dict[str, Any]] = []
        try:
            if self._learn is None:
                self._prepare(state)
            if self._groups is None:
                self._open(state)
            for _ in range(int(num_updates)):
                history.append(self._update())
                if self._trainer.every_update is not None:
                    done, on_host = jax.device_get((self._state.num_updates, history[-1]))
                    self._trainer.every_update(int(done[0]), on_host)
        except TriglotError as error:
            raise HostFailure(str(error), self._state, _stacked(history)) from error
        return self._state, _stacked(history)

    def close(self) -> None:
        """Close the environments."""
        if self._groups is not None:
            self._groups.close()

    def _prepare(self, state: RunnerState) -> None:
        """Make acting and learning ready; threads must find `act` compiled.

        JAX's debugging modes hold for one thread, and look into no compiled program.
        """
        debugging = jax.config.jax_disable_jit or jax.config.jax_debug_nans
        if self._trainer.num_groups > 1 and not debugging:
            return self.compile(state)
        self._actor = self._find_actor(state)
        impl = jax.random.key_impl(state.key)
        self._learn = functools.partial(_learn, self._trainer.agent, impl)

    def _find_actor(self, state: RunnerState) -> Actor:
        agent, env = self._trainer.agent, self._trainer.env
        impl, num_envs = jax.random.key_impl(state.key), agent.num_envs // self._trainer.num_groups
        return actor(agent, state.agent, env.obs_spec, num_envs, explore=True, impl=impl)

    def _open(self, state: RunnerState) -> None:
        num_envs, count = self._trainer.agent.num_envs, self._trainer.num_groups
        keys = jax.vmap(update_keys)(state.key, state.num_updates).start
        bits = jax.vmap(lambda key: jax.vmap(jax.random.bits)(_per_group(key, count)))(keys)
        seeds = np.asarray(bits).T.tolist()
        self._groups = HostGroups(self._trainer.env, num_envs, seeds)
        self._episodes = EpisodeCounter(len(keys), num_envs)

    def _update(self) -> dict[str, Any]:
        """Collect one rollout and learn from it; an online agent learns after every step."""
        agent, state, count = self._trainer.agent, self._state, self._trainer.num_groups
        groups, episodes, actor, learn = self._groups, self._episodes, self._actor, self._learn
        assert groups and episodes and actor and learn
        keys = map(np.asarray, _keys(agent, count, state.key, state.num_updates))
        act_keys, learn_keys = keys
        per_update = 1 if agent.online else agent.rollout_length
        rollouts, learned = [], []
        for start in range(0, agent.rollout_length, per_update):
            carry, seen, extras = groups.collect(
                actor,
                self._state.agent,
                self._state.carry,
                act_keys[:, start : start + per_update],
                at_once=self._compiled,
            )
            check_finite(self._trainer.env.name, seen, groups.num_steps)
            trajectory = _trajectory({**seen, "extras": extras}, self._state.carry)
            agent_state, metrics = learn(self._state.agent, trajectory, learn_keys[:, start])
            rollouts.append(seen)
            learned.append(metrics)
            self._state = replace(self._state, agent=agent_state, carry=carry)
        self._state = replace(self._state, num_updates=state.num_updates + 1)
        metrics = learned[0] if len(learned) == 1 else _mean(jax.device_get(learned))
        return {**episodes.add(_joined(rollouts)), **metrics}


def _per_group(key: jax.Array, count: int) -> jax.Array:
    """Make the keys of `count` groups; a single group has the key itself."""
    return key[None] if count == 1 else jax.random.split(key, count)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _keys(
    agent: Agent, groups: int, keys: jax.Array, num_updates: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Make the keys of each seed's next update from `[S]` keys, as `Trainer` and its rollout do.

    Returns:
      Key data for acting, `[S, T, G, ...]`, and for learning, `[S, T, ...]` if the agent is online
      and `[S, 1, ...]` otherwise.
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
        act_keys = jax.vmap(lambda key: _per_group(key, groups))(act_keys)
        return jax.random.key_data(act_keys), jax.random.key_data(learn_keys)

    return jax.vmap(split)(keys, num_updates)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _learn(
    agent: Agent, impl: Any, agent_state: Any, trajectory: Trajectory, key_data: jax.Array
) -> tuple[Any, dict[str, jax.Array]]:
    """Learn from each seed's trajectory; the given states are donated."""

    def learn(inputs: tuple[Any, Trajectory, jax.Array]) -> tuple[Any, dict[str, jax.Array]]:
        state, trajectory, key_data = inputs
        return agent.update(state, trajectory, jax.random.wrap_key_data(key_data, impl=impl))

    return vmap_seeds(learn, (agent_state, trajectory, key_data))


def _trajectory(steps: dict[str, Any], carry: PyTree) -> Trajectory:
    return Trajectory(**steps, carry=carry, action_mask=None, next_action_mask=None)


def _stacked(history: list[dict[str, Any]]) -> Metrics:
    return over_time(jax.device_get(history)) if history else {}


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("reward", "terminated", "truncated")
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in names}


def _mean(history: list[Metrics]) -> Metrics:
    return {name: np.mean([one[name] for one in history], axis=0) for name in history[0]}
