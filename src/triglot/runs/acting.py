"""An agent's `act` as one function of the arrays that it reads."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import export as jax_export

from ..backends.calling import describe_inputs
from ..core.agent import PolicyInput
from ..core.errors import TriglotError, describe
from ..core.loop.frozen import FrozenPolicy, num_masked
from ..core.types import Obs, PyTree
from .load import Run

TraceT = TypeVar("TraceT")


@dataclass(frozen=True, eq=False)
class Acting(FrozenPolicy):
    """The policy of one seed of a run, as a function to export."""

    @classmethod
    def of(cls, run: Run, seed_index: int, *, explore: bool = False) -> "Acting":
        """Select the arrays of one seed that its policy reads.

        Raises:
          TriglotError: if the policy reads more than observations.
        """
        leaves, treedef = jax.tree.flatten(run.agent_states)
        shapes = [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in leaves]
        state, masked = treedef.unflatten(shapes), num_masked(run.env)
        acting = cls.of_state(run.agent, state, masked, explore=explore)
        return replace(acting, arrays=tuple(leaves[index][seed_index] for index in acting.read))

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

    def as_function(self, batch: object) -> tuple[Callable[..., PyTree], list[PyTree]]:
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
        arguments = [inputs.obs] + ([] if inputs.action_mask is None else [inputs.action_mask])
        arguments += [inputs.first, tuple(leaves)] if leaves else []

        def policy(obs: Obs, *rest: PyTree) -> PyTree:
            mask, rest = (rest[0], rest[1:]) if self.num_actions is not None else (None, rest)
            first, carry = rest if leaves else (jnp.ones((batch,), bool), ())
            inputs_now = PolicyInput(obs=obs, first=first, action_mask=mask)
            carry = jax.tree.unflatten(structure, carry)
            action, carry = self.act(self.arrays, carry, inputs_now, jax.random.key(0))
            return (action, tuple(jax.tree.leaves(carry))) if leaves else action

        return policy, arguments

    def for_any_batch(
        self, trace: Callable[[Callable[..., PyTree]], Callable[..., TraceT]]
    ) -> tuple[TraceT, list[PyTree]]:
        """Trace the policy for a symbolic number of environments.

        Args:
          trace: `trace(policy)(*arguments)` traces a function, such as `jax.make_jaxpr`.

        Returns:
          What it returned, and the descriptions of the arguments, as `as_function` builds them.

        Raises:
          TriglotError: if the network cannot be traced for an unknown batch size.
        """
        (batch,) = jax_export.symbolic_shape("b")
        policy, arguments = self.as_function(batch)
        try:
            return trace(policy)(*arguments), arguments
        except Exception as error:  # JAX raises many types
            network = self.agent.network
            raise TriglotError(
                f"the {network.backend} network {network.name!r} cannot be exported for any batch "
                f"size: {describe(error)}. Write it without Python decisions on the size of the "
                "batch."
            ) from error
