"""An agent's `act` as one function of the arrays that it reads."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ...core.agent import Agent, PolicyInput
from ...core.host_environment import HostEnvironment
from ...core.networks.unroll import restart
from ...core.specs import zeros
from ...core.tracing.jaxprs import leaves_read
from ...core.types import PyTree
from ..runs.load import Run


@dataclass(frozen=True, eq=False)
class Acting:
    """The policy of one seed of a run.

    Attributes:
      agent: the algorithm with its network.
      num_actions: of the action mask that the environment gives; None if it gives none.
      explore: whether actions are sampled.
      arrays: the leaves of the agent state that `act` reads; a replay is not among them.
      treedef: the structure of the agent state.
      shapes: all leaves of the agent state.
      read: the indices of `arrays` among them.
    """

    agent: Agent
    num_actions: int | None
    explore: bool
    arrays: tuple[jax.Array, ...]
    treedef: Any
    shapes: tuple[jax.ShapeDtypeStruct, ...]
    read: tuple[int, ...]

    @classmethod
    def of(cls, run: Run, seed_index: int, *, explore: bool = False) -> "Acting":
        """Select the arrays of one seed that its policy reads."""
        leaves, treedef = jax.tree.flatten(run.agent_states)
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in leaves)
        masked = num_masked(run)
        whole = cls(run.agent, masked, explore, (), treedef, shapes, tuple(range(len(shapes))))
        inputs = whole.example(1)
        key = jax.eval_shape(lambda: jax.random.key(0))

        def act(leaves: Any, carry: PyTree, inputs: PolicyInput, key: jax.Array) -> Any:
            return whole.act(leaves, carry, inputs, key)

        read = leaves_read(act, shapes, whole.carry(1), inputs, key)
        arrays = tuple(leaves[index][seed_index] for index in read)
        return cls(run.agent, masked, explore, arrays, treedef, shapes, read)

    def example(self, batch: Any) -> PolicyInput:
        """Describe the inputs of `batch` environments, a number or a symbolic dimension."""
        obs = jax.eval_shape(lambda: zeros(self.agent.obs_spec, batch))
        first: Any = jax.ShapeDtypeStruct((batch,), bool)
        mask: Any = None
        if self.num_actions is not None:
            mask = jax.ShapeDtypeStruct((batch, self.num_actions), bool)
        return PolicyInput(obs=obs, first=first, action_mask=mask)

    def carry(self, batch: Any) -> PyTree:
        """Describe the carry of `batch` environments."""
        return jax.eval_shape(
            lambda leaves: self.agent.initial_carry(self.treedef.unflatten(leaves), batch),
            self.shapes,
        )

    @property
    def recurrent(self) -> bool:
        """Whether the policy has a carry."""
        return bool(jax.tree.leaves(self.carry(1)))

    def act(
        self, arrays: Any, carry: PyTree, inputs: PolicyInput, key: jax.Array
    ) -> tuple[jax.Array, PyTree]:
        """Choose actions, `[N, ...]`.

        Args:
          arrays: the leaves that `read` lists.
          carry: `[N, ...]`; where `inputs.first` is True the initial one is used instead.
          inputs: `[N, ...]`.
          key: a typed key.

        Returns:
          The actions, and the carry for the next step.
        """
        leaves = [jnp.zeros(shape.shape, shape.dtype) for shape in self.shapes]
        for index, array in zip(self.read, arrays, strict=True):
            leaves[index] = array
        state = self.treedef.unflatten(leaves)
        initial = self.agent.initial_carry(state, inputs.first.shape[0])
        carry = restart(inputs.first, initial, carry)
        output = self.agent.act(state, carry, inputs, key, explore=self.explore)
        return output.action, output.carry


def num_masked(run: Run) -> int | None:
    """Return the number of actions in the masks that a run's environment gives; None without."""
    if isinstance(run.env, HostEnvironment):
        return None
    mask = jax.eval_shape(run.env.reset, jax.random.key(0)).action_mask
    return None if mask is None else mask.shape[-1]
