"""What `check_network` tries a network with: batches and calls, each made once."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import jax

from ...core import specs
from ...core.network import Network, Variables
from ..shared import Case, compiled, copied

PyTree: TypeAlias = Any

BATCH_SIZE = 5  # a number that is seldom one of actions or units, so that axes are told apart


class NetworkCase(Case):
    """One network under examination, and the observations it should read."""

    def __init__(self, network: Network, obs_spec: Any, seed: int) -> None:
        super().__init__(seed)
        self.network, self.obs_spec = network, obs_spec

    @property
    def init_key(self) -> jax.Array:
        return self.key(0)

    @property
    def other_key(self) -> jax.Array:
        return self.key(1)

    @property
    def training_key(self) -> jax.Array:
        return self.key(2)

    def init(self, key: jax.Array) -> Variables:
        """Call `init`, eagerly."""
        return self.call("`init(key)`", self.network.init, key)

    def apply(self, variables: Variables, inputs: PyTree, *, train: bool = False) -> Any:
        """Call `apply` on copies of the arguments, eagerly."""
        return self.call(
            f"`apply{self.in_words(train)}`",
            self.training if train else self.evaluation,
            copied(variables),
            copied(inputs),
        )

    def in_words(self, train: bool) -> str:
        """Spell the call."""
        return "(variables, inputs, key=key, train=True)" if train else "(variables, inputs)"

    def evaluation(self, variables: Variables, inputs: PyTree) -> Any:
        """Apply as in evaluation."""
        return self.network.apply(variables, inputs)

    def training(self, variables: Variables, inputs: PyTree) -> Any:
        """Apply as in training."""
        return self.network.apply(variables, inputs, key=self.training_key, train=True)

    @cached_property
    def made(self) -> Variables:
        return self.init(self.init_key)

    @property
    def variables(self) -> Variables:
        """A copy of the variables, for whoever may change it."""
        return copied(self.made)

    @cached_property
    def obs(self) -> PyTree:
        """A batch of observations, `[B, ...]`; a tuple of them for several inputs."""
        return self.sample(self.key(3), BATCH_SIZE)

    def sample(self, key: jax.Array, *leading: int) -> PyTree:
        """Draw observations `[*leading, ...]` from the spec."""
        size = 1
        for axis in leading:
            size *= axis
        several = self.obs_spec if isinstance(self.obs_spec, tuple) else (self.obs_spec,)
        drawn = tuple(
            jax.vmap(lambda k, spec=spec: specs.sample(spec, k))(jax.random.split(key, size))
            for spec, key in zip(several, jax.random.split(key, len(several)), strict=True)
        )
        drawn = jax.tree.map(lambda leaf: leaf.reshape((*leading, *leaf.shape[1:])), drawn)
        return drawn if isinstance(self.obs_spec, tuple) else drawn[0]

    def initial_carry(self, num_envs: int) -> PyTree:
        """Call `initial_carry`."""
        what = f"`initial_carry(variables, {num_envs})`"
        return self.call(what, self.network.initial_carry, self.variables, num_envs)

    @cached_property
    def inputs(self) -> PyTree:
        """What `apply` reads: the observations, with a carry where the network is recurrent."""
        if not self.network.recurrent:
            return self.obs
        return (self.obs, self.initial_carry(BATCH_SIZE))

    @cached_property
    def evaluated(self) -> tuple[PyTree, PyTree]:
        """Outputs and state of an eager call in evaluation."""
        return self.apply(self.made, self.inputs)

    @cached_property
    def trained(self) -> tuple[PyTree, PyTree]:
        """Outputs and state of an eager call in training."""
        return self.apply(self.made, self.inputs, train=True)

    def heads(self, outputs: PyTree) -> PyTree:
        """Part a recurrent network's outputs from its carry."""
        return outputs[0] if self.network.recurrent else outputs

    def jitted(self, what: str, function: Callable[..., Any], *args: PyTree) -> Any:
        """Compile and call one of the network's functions."""
        return self.call(f"{what} under jax.jit", compiled(function), *args)
