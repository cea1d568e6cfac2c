"""What `check_agent` tries an agent with: its calls, eager and compiled, each made once."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ...core.agent import Agent, PolicyInput, PolicyOutput, Trajectory, is_online
from ...core.environment import Environment
from ...core.loop.state import RunnerState
from ...core.loop.trainer import Trainer
from ...core.loop.vectorize import VectorEnvironment, VectorState
from ..shared import Case, compiled, copied
from .feeder import Feeder

PyTree: TypeAlias = Any

CHUNK_SIZE = 2


@dataclass(frozen=True)
class Called:
    """One eager call: what it returned, and its arguments as they were afterwards."""

    result: Any
    args: tuple[PyTree, ...]


class AgentCase(Case):
    """One agent under examination, and the environment it should act in."""

    def __init__(self, agent: Agent, env: Environment, seed: int) -> None:
        super().__init__(seed)
        self.agent, self.env = agent, env

    @property
    def num_envs(self) -> int:
        return self.agent.num_envs

    @property
    def num_steps(self) -> int:
        """Steps in one trajectory, `T`."""
        return 1 if is_online(self.agent) else self.agent.rollout_length

    @cached_property
    def vector(self) -> VectorEnvironment:
        return VectorEnvironment(self.env, self.num_envs)

    @cached_property
    def trainer(self) -> Trainer:
        return Trainer(self.agent, self.vector, chunk_size=CHUNK_SIZE)

    @cached_property
    def started(self) -> VectorState:
        """The environments after a reset."""
        return self.call("the environment's `reset`", compiled(self.vector.reset), self.key(0))

    @cached_property
    def inputs(self) -> PolicyInput:
        """What the policy sees at the start."""
        start = self.started
        return PolicyInput(obs=start.obs, first=start.first, action_mask=start.action_mask)

    def init(self, key: jax.Array) -> Any:
        """Call `init`, eagerly."""
        return self.call("`init(key, num_envs)`", self.agent.init, key, self.num_envs)

    @cached_property
    def made(self) -> Any:
        return self.init(self.key(1))

    @cached_property
    def carry(self) -> PyTree:
        what = "`initial_carry(state, num_envs)`"
        return self.call(what, self.agent.initial_carry, copied(self.made), self.num_envs)

    def act(
        self, state: Any, carry: PyTree, inputs: PolicyInput, key: jax.Array, explore: bool
    ) -> PolicyOutput:
        """Call `act` under whatever transformation."""
        return self.agent.act(state, carry, inputs, key, explore=explore)

    def eager_act(self, explore: bool) -> Called:
        """Call `act` on copies of its arguments."""
        args = copied((self.made, self.carry, self.inputs))
        what = f"`act(state, carry, inputs, key, explore={explore})`"
        return Called(self.call(what, self.act, *args, self.key(2), explore), args)

    @cached_property
    def explored(self) -> Called:
        return self.eager_act(True)

    @cached_property
    def greedy(self) -> Called:
        return self.eager_act(False)

    @cached_property
    def still(self) -> Trajectory:
        """A trajectory `[T, N]` in which the first step is repeated, for other rewards each."""
        output, inputs = self.explored.result, self.inputs

        def over_time(leaf: jax.Array) -> jax.Array:
            return jnp.broadcast_to(leaf, (self.num_steps, *leaf.shape))

        step = {
            "obs": inputs.obs,
            "first": inputs.first,
            "action_mask": inputs.action_mask,
            "action": output.action,
            "terminated": inputs.first,
            "truncated": jnp.zeros_like(inputs.first),
            "next_obs": inputs.obs,
            "next_action_mask": inputs.action_mask,
            "extras": output.extras,
        }
        reward = jax.random.normal(self.key(3), (self.num_steps, self.num_envs))
        return Trajectory(**jax.tree.map(over_time, step), reward=reward, carry=self.carry)

    def eager_update(self) -> Called:
        """Call `update` on copies of its arguments."""
        args = copied((self.made, self.still))
        what = "`update(state, trajectory, key)`"
        return Called(self.call(what, self.agent.update, *args, self.key(4)), args)

    @cached_property
    def updated(self) -> Called:
        return self.eager_update()

    @cached_property
    def jitted_init(self) -> Callable[[jax.Array], Any]:
        return self.jitted("`init`", lambda key: self.agent.init(key, self.num_envs))

    @cached_property
    def jitted_act(self) -> Callable[..., PolicyOutput]:
        return self.jitted("`act`", self.act, static_argnums=4)

    @cached_property
    def jitted_update(self) -> Callable[..., tuple[Any, dict[str, jax.Array]]]:
        return self.jitted("`update`", self.agent.update)

    def jitted(self, what: str, function: Callable[..., Any], **options: Any) -> Any:
        """Compile a function, whose exceptions are retold as findings."""
        quickly = compiled(function, **options)
        return lambda *args: self.call(f"{what} under jax.jit", quickly, *args)

    @cached_property
    def start(self) -> RunnerState:
        """Where training starts, without compiling it again."""
        return RunnerState(
            key=self.key(5),
            agent=self.made,
            carry=self.carry,
            env=self.started,
            num_updates=jnp.zeros((), jnp.int32),
        )

    @cached_property
    def traces(self) -> list[str]:
        """One entry for each time that `train_chunk` was traced."""
        return []

    @cached_property
    def train_chunk(self) -> Callable[[RunnerState], tuple[RunnerState, dict[str, jax.Array]]]:
        """Do `CHUNK_SIZE` updates, compiled."""

        def train_chunk(state: RunnerState) -> tuple[RunnerState, dict[str, jax.Array]]:
            self.traces.append("train_chunk")
            return self.trainer.train_chunk(state)

        return self.jitted("training (`Trainer.train_chunk`)", train_chunk)

    @cached_property
    def first_chunk(self) -> tuple[RunnerState, dict[str, jax.Array]]:
        return self.train_chunk(self.start)

    @cached_property
    def second_chunk(self) -> tuple[RunnerState, dict[str, jax.Array]]:
        return self.train_chunk(self.first_chunk[0])

    @cached_property
    def feeder(self) -> Feeder:
        return Feeder(self)
