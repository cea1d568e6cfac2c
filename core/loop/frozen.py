"""A policy as it was at one moment: one function of the arrays that `act` reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp

from ..agent import Agent, PolicyInput
from ..environment import Environment
from ..errors import TriglotError
from ..host_environment import HostEnvironment, host_mask_size
from ..numerics import where_rows
from ..specs import zeros
from ..tracing.jaxprs import leaves_read, with_leaves
from ..types import AnyAgentState, Carry, Obs, PyTreeDef, abstract_key


@dataclass(frozen=True, eq=False)
class FrozenPolicy:
    """The policy of one seed, without what only learning needs, such as a replay.

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
    treedef: PyTreeDef
    shapes: tuple[jax.ShapeDtypeStruct, ...]
    read: tuple[int, ...]

    @classmethod
    def of_state(
        cls, agent: Agent, agent_state: AnyAgentState, num_actions: int | None, *, explore: bool
    ) -> Self:
        """Select the arrays of one seed's agent state that the policy reads; it may be traced.

        Raises:
          TriglotError: if the policy reads more than observations.
        """
        if agent.plans:
            raise TriglotError(
                f"{agent.name} plans with the environment's state, which a policy of "
                "observations alone does not see: export the weights (--format safetensors), or "
                "train MuZero, which learns its model."
            )
        leaves, treedef = jax.tree.flatten(agent_state)
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
        whole = cls(agent, num_actions, explore, (), treedef, shapes, tuple(range(len(shapes))))
        inputs = whole.example(1)
        key = abstract_key()

        def act(
            leaves: Sequence[jax.Array], carry: Carry, inputs: PolicyInput, key: jax.Array
        ) -> tuple[jax.Array, Carry]:
            return whole.act(leaves, carry, inputs, key)

        read = leaves_read(act, shapes, whole.carry(1), inputs, key)
        arrays = tuple(leaves[index] for index in read)
        return cls(agent, num_actions, explore, arrays, treedef, shapes, read)

    def example(self, batch: Any) -> PolicyInput:
        """Describe the inputs of `batch` environments, a number or a symbolic dimension."""
        obs = jax.eval_shape(lambda: zeros(self.agent.obs_spec, batch))
        first: Any = jax.ShapeDtypeStruct((batch,), bool)
        mask: Any = None
        if self.num_actions is not None:
            mask = jax.ShapeDtypeStruct((batch, self.num_actions), bool)
        return PolicyInput(obs=obs, first=first, action_mask=mask)

    def carry(self, batch: Any) -> Carry:
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
        self, arrays: Sequence[jax.Array], carry: Carry, inputs: PolicyInput, key: jax.Array
    ) -> tuple[jax.Array, Carry]:
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

    def play(
        self, arrays: Sequence[jax.Array], obs: Obs, mask: jax.Array | None, key: jax.Array
    ) -> jax.Array:
        """Choose the action of one player of a game, who sees `obs`; see `Player`.

        Args:
          arrays: the leaves that `read` lists, here or of another state of this agent.
          obs, mask: of one environment.
          key: a typed key.
        """
        state = with_leaves(self.treedef, self.shapes, self.read, arrays)
        inputs = PolicyInput(obs=obs, first=jnp.ones((), bool), action_mask=mask)
        batch = jax.tree.map(lambda leaf: leaf[None], inputs)
        carry = self.agent.initial_carry(state, 1)
        output = self.agent.act(state, carry, batch, key, explore=self.explore)
        return jax.tree.map(lambda leaf: leaf[0], output.action)


def check_plays(agent: Agent, game: Environment, what: str) -> None:
    """Reject agents that cannot play another seat of a game.

    Args:
      agent: the algorithm.
      game: what its policy must observe and do.
      what: what the policy is, for the message.

    Raises:
      TriglotError: if the policy keeps a carry, reads the environment's state, or observes or does
        something else than the game's players.
    """
    kind = agent.name
    if agent.plans:
        raise TriglotError(
            f"{what} cannot play: {kind} plans with the environment's state, and a player sees "
            "observations alone."
        )
    state = jax.eval_shape(lambda: agent.init(jax.random.key(0), 1))
    if jax.tree.leaves(jax.eval_shape(lambda state: agent.initial_carry(state, 1), state)):
        raise TriglotError(
            f"{what} cannot play: {kind}'s network is recurrent, and a player keeps no carry. "
            "Train a network without one."
        )
    check_same_specs(agent, game, what)


def check_same_specs(agent: Agent, game: Environment, what: str) -> None:
    """Reject a policy that observes or does something else than the players of a game.

    Raises:
      TriglotError: saying what `what`, the policy, has.
    """
    for name, spec, games in (
        ("observations", agent.obs_spec, game.obs_spec),
        ("actions", agent.action_spec, game.action_spec),
    ):
        if spec != games:
            raise TriglotError(
                f"{what} cannot play: its policy has the {name} {spec}, and a player of "
                f"{game.name} has {games}. Leave wrappers that change them out."
            )


def num_masked(env: Environment | HostEnvironment) -> int | None:
    """Return the number of actions in the masks that an environment gives; None without."""
    if isinstance(env, HostEnvironment):
        return host_mask_size(env)
    mask = jax.eval_shape(env.reset, abstract_key()).action_mask
    return None if mask is None else mask.shape[-1]
