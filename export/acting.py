"""An agent's `act` as one function of the arrays that it reads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import export as jax_export

from ..backends.calling import describe_inputs
from ..core.agent import Agent, PolicyInput
from ..core.errors import TriglotError, describe
from ..core.host_environment import HostEnvironment
from ..core.numerics import where_rows
from ..core.specs import zeros
from ..core.tracing.jaxprs import leaves_read, with_leaves
from ..core.types import PyTree
from ..training.load import Run


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
        """Select the arrays of one seed that its policy reads.

        Raises:
          TriglotError: if the policy reads more than observations.
        """
        if getattr(run.agent, "plans", False):
            raise TriglotError(
                f"{type(run.agent).__name__} plans with the environment's state, which a policy of "
                "observations alone does not see: export the weights (--format safetensors), or "
                "train MuZero, which learns its model."
            )
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

    @property
    def usage(self) -> str:
        """Describe the exported function and its arguments, for the head of its loader."""
        masked = self.num_actions is not None
        mask = ", action_mask" if masked else ""
        actions = f"actions, {describe_inputs(self.agent.action_spec)}"
        lines = [f"policy(obs{mask}) -> {actions}"]
        if self.recurrent:
            lines = [f"step(obs{mask}, first, carry) -> ({actions}; the next carry)"]
        lines.append(f"obs: {describe_inputs(self.agent.obs_spec)}")
        if masked:
            lines.append(f"action_mask: bool [B, {self.num_actions}], True where allowed")
        if self.recurrent:
            lines.append(
                "first: bool [B], True where an episode starts; carry: initial_carry(B) then"
            )
        return "\n".join(lines)

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
        state = with_leaves(self.treedef, self.shapes, self.read, arrays)
        initial = self.agent.initial_carry(state, inputs.first.shape[0])
        carry = where_rows(inputs.first, initial, carry)
        output = self.agent.act(state, carry, inputs, key, explore=self.explore)
        return output.action, output.carry

    def as_function(self, batch: Any) -> tuple[Callable[..., Any], list[Any]]:
        """Build the policy as a function of what changes between calls, its arrays being constants.

        Args:
          batch: the number of environments, or a symbolic dimension.

        Returns:
          The function, and descriptions of its arguments: the observations, the action mask if the
          environment gives one, and for a recurrent policy `first` and the carry, a tuple of
          arrays. It returns the actions, and the next carry of a recurrent policy.
        """
        inputs = self.example(batch)
        leaves, structure = jax.tree.flatten(self.carry(batch))
        given = [inputs.obs] + ([] if inputs.action_mask is None else [inputs.action_mask])
        given += [inputs.first, tuple(leaves)] if leaves else []

        def policy(obs: Any, *rest: Any) -> Any:
            mask, rest = (rest[0], rest[1:]) if self.num_actions is not None else (None, rest)
            first, carry = rest if leaves else (jnp.ones((batch,), bool), ())
            seen = PolicyInput(obs=obs, first=first, action_mask=mask)
            carry = jax.tree.unflatten(structure, carry)
            action, carry = self.act(self.arrays, carry, seen, jax.random.key(0))
            return (action, tuple(jax.tree.leaves(carry))) if leaves else action

        return policy, given

    def for_any_batch(self, trace: Callable[..., Any]) -> tuple[Any, list[Any]]:
        """Trace the policy for a symbolic number of environments.

        Args:
          trace: `trace(policy)(*arguments)` traces a function, such as `jax.make_jaxpr`.

        Returns:
          What it returned, and the descriptions of the arguments, as `as_function` builds them.

        Raises:
          TriglotError: if the network cannot be traced for an unknown batch size.
        """
        (batch,) = jax_export.symbolic_shape("b")
        policy, given = self.as_function(batch)
        try:
            return trace(policy)(*given), given
        except Exception as error:  # JAX raises many types
            network = self.agent.network
            raise TriglotError(
                f"the {network.backend} network {network.name!r} cannot be exported for any batch "
                f"size: {describe(error)}. Write it without Python decisions on the size of the "
                "batch."
            ) from error


def num_masked(run: Run) -> int | None:
    """Return the number of actions in the masks that a run's environment gives; None without."""
    if isinstance(run.env, HostEnvironment):
        return None
    mask = jax.eval_shape(run.env.reset, jax.random.key(0)).action_mask
    return None if mask is None else mask.shape[-1]
