"""Act in host environments: the compiled policy, whole episodes, and frames of one."""

import functools
from collections.abc import Callable, Generator
from contextlib import closing
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..agent import Agent, PolicyInput
from ..host_environment import (
    HostEnvironment,
    HostRenderable,
    HostStep,
    HostVector,
    host_mask_size,
)
from ..loop.episode import Episode, Episodes
from ..specs import Spec, zeros
from ..tracing.hoist import vmap_seeds
from ..tracing.jaxprs import leaves_read, with_leaves
from ..types import AnyAgentState, Carry, KeyImpl, Obs, PyTree, PyTreeDef
from .vector import HostRunner


class Actor(NamedTuple):
    """A compiled `act` whose arguments are only the leaves of the agent state that it reads.

    Attributes:
      read: indices of these leaves among the state's leaves.
      call: `call(state_read, carry, key_data, obs, first, action_mask) -> (action, carry, extras)`,
        each `[S, ...]`; jitted.
    """

    read: tuple[int, ...]
    call: Callable[..., tuple[jax.Array, PyTree, dict[str, jax.Array]]]

    def of(self, agent_state: PyTree) -> list[jax.Array]:
        """Select the leaves that `call` reads."""
        leaves = jax.tree.leaves(agent_state)
        return [leaves[index] for index in self.read]


def actor(
    agent: Agent,
    agent_state: PyTree,
    env: HostEnvironment,
    num_envs: int,
    *,
    explore: bool,
    impl: KeyImpl,
) -> Actor:
    """Build an actor; the result is cached, so equal arguments compile once.

    Args:
      agent: the algorithm.
      agent_state: `[S, ...]`, read for its shapes only.
      env: of which the observations and the masks are.
      num_envs: `N`.
      explore: sample actions as in training instead of acting greedily.
      impl: the keys' implementation, see `jax.random.key_impl`.
    """
    one_seed = jax.eval_shape(lambda: jax.tree.map(lambda leaf: leaf[0], agent_state))
    leaves, treedef = jax.tree.flatten(one_seed)
    masked = host_mask_size(env)
    return _actor(agent, tuple(leaves), treedef, env.obs_spec, masked, num_envs, explore, impl)


@functools.lru_cache(maxsize=64)
def _actor(
    agent: Agent,
    shapes: tuple[jax.ShapeDtypeStruct, ...],
    treedef: PyTreeDef,
    obs_spec: Spec,
    num_masked: int | None,
    num_envs: int,
    explore: bool,
    impl: KeyImpl,
) -> Actor:
    def act(
        state: AnyAgentState,
        carry: Carry,
        key: jax.Array,
        obs: Obs,
        first: jax.Array,
        mask: jax.Array | None,
    ) -> tuple[jax.Array, Carry, dict[str, jax.Array]]:
        inputs = PolicyInput(obs=obs, first=first, action_mask=mask)
        output = agent.act(state, carry, inputs, key, explore=explore)
        return output.action, output.carry, output.extras

    state = treedef.unflatten(shapes)
    carry = jax.eval_shape(lambda state: agent.initial_carry(state, num_envs), state)
    key = jax.eval_shape(lambda: jax.random.key(0, impl=impl))
    obs = jax.eval_shape(lambda: zeros(obs_spec, num_envs))
    first = jax.ShapeDtypeStruct((num_envs,), bool)
    mask = None if num_masked is None else jax.ShapeDtypeStruct((num_envs, num_masked), bool)
    read = leaves_read(act, state, carry, key, obs, first, mask)

    def call(inputs: tuple) -> tuple:
        selected, carry, key_data, obs, first, mask = inputs
        key = jax.random.wrap_key_data(key_data, impl=impl)
        return act(with_leaves(treedef, shapes, read, selected), carry, key, obs, first, mask)

    return Actor(read, jax.jit(lambda *inputs: vmap_seeds(call, inputs)))


class Player:
    """A policy in `N` host environments, which stay open until `close`."""

    def __init__(
        self,
        agent: Agent,
        env: HostEnvironment,
        agent_state: AnyAgentState,
        key: jax.Array,
        num_envs: int,
        *,
        explore: bool,
        vector: HostVector | None = None,
    ) -> None:
        """Open the environments, or take the open `vector`, and reset them.

        Raises:
          TriglotError: if opening or resetting fails.
        """
        impl = jax.random.key_impl(key)
        one_seed = jax.tree.map(lambda leaf: leaf[None], agent_state)
        acting = actor(agent, one_seed, env, num_envs, explore=explore, impl=impl)
        self._act, self._read = acting.call, acting.of(one_seed)
        carry = agent.initial_carry(agent_state, num_envs)
        self._carry = jax.tree.map(lambda leaf: leaf[None], carry)
        reset_key, self._loop_key = jax.random.split(key)
        seeds = [int(jax.random.bits(reset_key))]
        self._runner = HostRunner(env, num_envs, seeds, [vector] if vector else [])

    def step(self) -> HostStep:
        """Take one step in each environment, `[N, ...]`.

        Raises:
          TriglotError: if an environment fails, or returns values that are not finite.
        """
        runner = self._runner
        key = jax.random.key_data(jax.random.fold_in(self._loop_key, runner.num_steps))
        observed = (runner.obs, runner.first, runner.action_mask)
        inputs = (self._read, self._carry, key[None], *observed)
        action, self._carry, _ = self._act(*inputs)
        step = runner.step(np.asarray(action))
        runner.check_finite(jax.tree.map(lambda leaf: leaf[:, None], step._asdict()))
        return HostStep(*(jax.tree.map(lambda leaf: leaf[0], part) for part in step))

    def close(self) -> None:
        """Close the environments."""
        self._runner.close()


def play_episodes(
    agent: Agent,
    env: HostEnvironment,
    agent_state: AnyAgentState,
    key: jax.Array,
    *,
    num_episodes: int,
    max_steps: int,
    explore: bool,
) -> Episodes:
    """Play `num_episodes` episodes in parallel; see `core.evaluate.evaluate`."""
    returns, lengths = np.zeros(num_episodes, np.float32), np.zeros(num_episodes, np.int32)
    running, num_steps = np.ones(num_episodes, bool), 0
    with closing(Player(agent, env, agent_state, key, num_episodes, explore=explore)) as player:
        while running.any() and num_steps < max_steps:
            step, num_steps = player.step(), num_steps + 1
            returns += np.where(running, step.reward, np.float32(0.0))
            lengths += running
            running &= ~(step.terminated | step.truncated)
    return Episodes(
        returns=jnp.asarray(returns), lengths=jnp.asarray(lengths), finished=jnp.asarray(~running)
    )


def film(
    agent: Agent,
    env: HostRenderable,
    agent_state: AnyAgentState,
    key: jax.Array,
    *,
    max_steps: int = 1000,
    explore: bool = False,
) -> Generator[np.ndarray, None, Episode]:
    """Play one episode of a host environment and yield a frame of each state.

    Args:
      agent: the algorithm.
      env: a single environment that renders frames.
      agent_state: the agent state of one seed.
      key: a typed key.
      max_steps: maximum number of steps.
      explore: sample actions as in training instead of acting greedily.

    Yields:
      Frames, uint8 `[height, width, 3]`, beginning with the initial state.

    Returns:
      The episode's return and length, without states.

    Raises:
      TriglotError: if the environment fails or cannot render.
    """
    vector = env.open_filmed()
    total, length, finished = 0.0, 0, False
    player = Player(agent, env, agent_state, key, 1, explore=explore, vector=vector)
    with closing(player):
        yield vector.frame()
        while not finished and length < max_steps:
            step = player.step()
            total, length = total + float(step.reward[0]), length + 1
            finished = bool(step.terminated[0] | step.truncated[0])
            yield vector.frame()
    return Episode(
        states=(),
        length=jnp.int32(length),
        episode_return=jnp.float32(total),
        finished=jnp.bool_(finished),
    )
