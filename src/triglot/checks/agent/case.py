"""The calls with which `check_agent` tries an agent; each is computed once."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from ...core.agent import Agent, PolicyInput, PolicyOutput, Trajectory
from ...core.environment import Environment
from ...core.loop.state import RunnerState
from ...core.loop.trainer import Trainer
from ...core.loop.vectorize import VectorEnvironment, VectorState
from ...core.types import AnyAgentState, PyTree
from ..purity import Call, Case, Compiled, attempt
from ..trees import copied

SharedT = TypeVar("SharedT")

CHUNK_SIZE = 2


class AgentCase(Case):
    """An agent being checked, and the environment that it should act in."""

    vmap_traces_only = True

    def __init__(self, agent: Agent, env: Environment, seed: int) -> None:
        super().__init__(seed)
        self.agent, self.env = agent, env
        self._shared: dict[str, Any] = {}

    def shared(self, name: str, make: Callable[[], SharedT]) -> SharedT:
        """Return what several checks of one file share, made at its first use."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    @property
    def num_envs(self) -> int:
        return self.agent.num_envs

    @property
    def num_steps(self) -> int:
        """Steps in one trajectory, `T`."""
        return 1 if self.agent.online else self.agent.rollout_length

    @cached_property
    def vector(self) -> VectorEnvironment:
        vector = VectorEnvironment(self.env, self.num_envs)
        return vector.for_rollouts(self.agent.rollout_length)  # as in Trainer

    @cached_property
    def trainer(self) -> Trainer:
        return Trainer(self.agent, self.vector, chunk_size=CHUNK_SIZE)

    @cached_property
    def started(self) -> VectorState:
        """The environments after a reset."""
        return Compiled("the environment's `reset`", self.vector.reset)(self.key(0))

    @cached_property
    def inputs(self) -> PolicyInput:
        """What the policy observes at the start."""
        return PolicyInput.of(self.agent, self.started, self.started.first)

    @cached_property
    def init(self) -> Call:
        return Call(
            name="init",
            function=lambda key: self.agent.init(key, self.num_envs),
            args={"key": self.key(1)},
            constants=("num_envs",),
        )

    @property
    def initial_state(self) -> AnyAgentState:
        return self.init.result

    @cached_property
    def fresh(self) -> AnyAgentState:
        """The initial state for another key."""
        return self.init.run(self.key(8))

    @cached_property
    def carry(self) -> PyTree:
        text = "`initial_carry(state, num_envs)`"
        return attempt(text, self.agent.initial_carry, copied(self.initial_state), self.num_envs)

    @cached_property
    def acts(self) -> dict[bool, Call]:
        """The calls of `act`, exploring (True) and greedy (False)."""

        key = self.key(2)
        args = {"state": self.initial_state, "carry": self.carry, "inputs": self.inputs, "key": key}

        def call(explore: bool) -> Call:
            def act(*args: PyTree) -> PolicyOutput:
                return self.agent.act(*args, explore=explore)

            return Call(name="act", function=act, args=args, constants=(f"explore={explore}",))

        return {explore: call(explore) for explore in (True, False)}

    @cached_property
    def still(self) -> Trajectory:
        """A trajectory `[T, N]` that repeats the first step, with random rewards."""
        output, inputs = self.acts[True].result, self.inputs

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

    @cached_property
    def update(self) -> Call:
        return Call(
            name="update",
            function=self.agent.update,
            args={"state": self.initial_state, "trajectory": self.still, "key": self.key(4)},
            # Optimizers such as Adam amplify rounding errors of gradients near zero.
            compare=lambda result: result[0],
            rtol=1e-2,
            atol=1e-3,
        )

    @cached_property
    def start(self) -> RunnerState:
        """The training state before the first update."""
        return RunnerState(
            key=self.key(5),
            agent=self.initial_state,
            carry=self.carry,
            env=self.started,
            num_updates=jnp.zeros((), jnp.int32),
        )

    @cached_property
    def train_chunk(self) -> Compiled:
        """`CHUNK_SIZE` updates, compiled: runner state -> (runner state, metrics)."""
        return Compiled("training (`Trainer.train_chunk`)", self.trainer.train_chunk)

    @cached_property
    def first_chunk(self) -> tuple[RunnerState, dict[str, jax.Array]]:
        return self.train_chunk(self.start)

    @cached_property
    def second_chunk(self) -> tuple[RunnerState, dict[str, jax.Array]]:
        return self.train_chunk(self.first_chunk[0])

    def calls(self) -> tuple[Call, ...]:
        return (self.init, self.acts[True], self.acts[False], self.update)

    def key_sequences(self) -> list[tuple[Callable[..., PyTree], tuple[PyTree, ...]]]:
        def steps(trajectory: Trajectory, keys: list[jax.Array]) -> PyTree:
            state = self.agent.init(keys[0], self.num_envs)
            carry = self.agent.initial_carry(state, self.num_envs)
            output = self.agent.act(state, carry, self.inputs, keys[1], explore=True)
            state, _ = self.agent.update(state, trajectory, keys[2])
            return output, self.agent.update(state, trajectory, keys[3])

        return [(steps, (self.still, [self.key(number) for number in (30, 31, 32, 33)]))]

    def carried(self) -> Iterator[tuple[str, PyTree, PyTree]]:
        for call in self.acts.values():
            yield "the carry", self.carry, call.result.carry
        yield "state", self.initial_state, self.update.result[0]

    def run_loop(self) -> None:
        _ = self.first_chunk

    def repeated_calls(self) -> Iterator[tuple[str, Compiled, tuple[PyTree, ...]]]:
        yield "the initial state", self.train_chunk, (self.start,)
        after = self.first_chunk[0]
        yield "the state that training returned", self.train_chunk, (after,)
        fresh = replace(after, agent=self.fresh)
        yield "the state of another key", self.train_chunk, (fresh,)

    def stored(self) -> dict[str, PyTree]:
        return {"state": self.initial_state, "carry": self.carry, "env": self.started}
