"""The calls and batches with which `check_network` tries a network; each is computed once."""

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from ...core import specs
from ...core.network import Network, Variables
from ...core.networks.unroll import unroll
from ...core.types import Carry, Obs, PyTree
from ..purity import Call, Case, Compiled, attempt
from ..report import reject
from ..trees import copied, find_type_change

BATCH_SIZE = 5  # rarely a number of actions or units, so that swapped axes are found
NUM_STEPS = 4


class NetworkCase(Case):
    """A network being checked, and the observations that it should accept."""

    def __init__(self, network: Network, obs_spec: Any, seed: int) -> None:
        super().__init__(seed)
        self.network, self.obs_spec = network, obs_spec

    @cached_property
    def init(self) -> Call:
        return Call(name="init", function=self.network.init, args={"key": self.key(0)})

    @property
    def variables(self) -> Variables:
        return self.init.result

    @cached_property
    def fresh(self) -> Variables:
        """Variables from another key."""
        return self.init.run(self.key(1))

    def evaluate(self, variables: Variables, inputs: PyTree) -> tuple[PyTree, PyTree]:
        """Apply the network in evaluation mode."""
        return self.network.apply(variables, inputs)

    def train(self, variables: Variables, inputs: PyTree, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Apply the network in training mode."""
        return self.network.apply(variables, inputs, key=key, train=True)

    @cached_property
    def evaluation(self) -> Call:
        args = {"variables": self.variables, "inputs": self.inputs}
        return Call(name="apply", function=self.evaluate, args=args)

    @cached_property
    def training(self) -> Call:
        args = {"variables": self.variables, "inputs": self.inputs, "key": self.key(2)}
        return Call(name="apply", function=self.train, args=args, constants=("train=True",))

    @cached_property
    def obs(self) -> PyTree:
        """A batch of observations `[B, ...]`; a tuple of them for several inputs."""
        return self.sample(self.key(3), BATCH_SIZE)

    def sample(self, key: jax.Array, *leading: int) -> PyTree:
        """Draw observations `[*leading, ...]` from the spec."""
        size = math.prod(leading)
        several = self.obs_spec if isinstance(self.obs_spec, tuple) else (self.obs_spec,)
        drawn = tuple(
            jax.vmap(lambda k, spec=spec: specs.sample(spec, k))(jax.random.split(key, size))
            for spec, key in zip(several, jax.random.split(key, len(several)), strict=True)
        )
        drawn = jax.tree.map(lambda leaf: leaf.reshape((*leading, *leaf.shape[1:])), drawn)
        return drawn if isinstance(self.obs_spec, tuple) else drawn[0]

    def initial_carry(self, num_envs: int) -> PyTree:
        """Call `initial_carry`."""
        text = f"`initial_carry(variables, {num_envs})`"
        return attempt(text, self.network.initial_carry, copied(self.variables), num_envs)

    @cached_property
    def inputs(self) -> PyTree:
        """The inputs of `apply`: observations, with a carry if the network is recurrent."""
        if not self.network.recurrent:
            return self.obs
        return (self.obs, self.initial_carry(BATCH_SIZE))

    def heads(self, outputs: PyTree) -> PyTree:
        """Return the outputs without the carry of a recurrent network."""
        return outputs[0] if self.network.recurrent else outputs

    def calls(self) -> tuple[Call, ...]:
        return (self.init, self.evaluation, self.training)

    def key_sequences(self) -> list[tuple[Callable[..., PyTree], tuple[PyTree, ...]]]:
        return [(call.function, tuple(call.args.values())) for call in (self.init, self.training)]

    def carried(self) -> Iterator[tuple[str, PyTree, PyTree]]:
        yield "state", self.variables.state, self.training.result[1]
        if self.network.recurrent:
            yield "the carry", self.inputs[1], self.evaluation.result[0][1]

    def run_loop(self) -> None:
        def step(state: PyTree, key: jax.Array) -> tuple[PyTree, PyTree]:
            variables = Variables(params=self.variables.params, state=state)
            outputs, state = self.train(variables, self.inputs, key)
            return state, outputs

        keys = jax.random.split(self.key(2), NUM_STEPS)
        loop = Compiled("`apply` in a jax.lax.scan", lambda state: jax.lax.scan(step, state, keys))
        loop(self.variables.state)
        if self.network.recurrent:
            self._run_unroll()

    def _run_unroll(self) -> None:
        obs = self.sample(self.key(4), NUM_STEPS, BATCH_SIZE)
        first = jnp.eye(NUM_STEPS, BATCH_SIZE, dtype=bool)

        def run(variables: Variables, obs: Obs, carry: Carry) -> PyTree:
            return unroll(self.network, variables, obs, first, carry, key=self.key(2), train=True)

        _, carry, _ = Compiled("`core.unroll`", run)(self.variables, obs, self.inputs[1])
        reject(find_type_change("the carry", self.inputs[1], carry), f"after {NUM_STEPS} steps, ")

    def repeated_calls(self) -> Iterator[tuple[str, Compiled, tuple[PyTree, ...]]]:
        function, more = self.training.compiled, (self.inputs, self.key(2))
        yield "the initial variables", function, (self.variables, *more)
        yield "the variables of another key", function, (self.fresh, *more)
        after = Variables(params=self.variables.params, state=self.training.compiled_result[1])
        yield "the state that apply returned", function, (after, *more)

    def stored(self) -> dict[str, PyTree]:
        carry = {"carry": self.inputs[1]} if self.network.recurrent else {}
        return {"params": self.variables.params, "state": self.variables.state, **carry}

    def strongly_typed(self) -> dict[str, PyTree]:
        # Equinox's BatchNorm keeps a weakly typed counter, which stays weakly typed.
        return {"params": self.variables.params}
