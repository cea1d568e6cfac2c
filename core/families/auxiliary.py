"""Auxiliary losses: shape an agent's own features by predicting something else from them."""

from collections.abc import Mapping
from dataclasses import replace

import jax

from ..agent import Agent, Extensible, Trajectory
from ..errors import TriglotError
from ..learner import Learner, LearnerState
from ..network import Network, Variables
from ..networks.architecture import Head, NetworkSpec, Table
from ..networks.combinators import join_parts, part_of
from ..networks.heads import merge_heads
from ..networks.unroll import carries
from ..rl.minibatches import flatten
from ..rl.optimizers import adam
from ..specs import Spec, one_hot, one_hot_spec
from ..types import AnyAgentState, AnyConfig, AnyHyperparams, Metrics, PyTree
from .extension import ExtendedState, Extension


class AuxiliaryLoss(Extension):
    """A loss of heads that it adds to an agent's network, on the features that the agent acts by.

    After each update of the agent, an optimizer of its own takes one gradient step of the loss on
    the rollout, through the heads and the torso. The network is the one that the algorithm lists
    first: the actor, or the one that has all heads.

    A subclass defines `name`, `Config`, `Hyperparams` with `NAME_learning_rate`, `heads` and
    `loss`. It is refused where the network is a table. A recurrent network computes its carries
    through the rollout, from the one at the rollout's start.

    Source: Jaderberg et al. 2016, https://arxiv.org/abs/1611.05397, section 3.
    Difference: a gradient step of its own by Adam, instead of a weighted sum of losses, so that any
    agent takes it; its size is `NAME_learning_rate`.
    """

    @classmethod
    def heads(cls, obs_spec: Spec, action_spec: Spec, config: AnyConfig) -> Mapping[str, Head]:
        """Describe the heads that it adds, whose names begin with its own."""
        raise NotImplementedError

    def loss(
        self,
        outputs: Mapping[str, jax.Array],
        next_outputs: Mapping[str, jax.Array],
        steps: Trajectory,
        hyper: AnyHyperparams,
    ) -> tuple[jax.Array, Metrics]:
        """Compute the loss of a rollout.

        Args:
          outputs: of its heads for each observation, float32 `[T, N, ...]`.
          next_outputs: those for the true successors.
          steps: the rollout `[T, N, ...]`.
          hyper: hyperparameters, float32 `[]` each, with the algorithm's.

        Returns:
          The loss, float32 `[]`, and scalar metrics.
        """
        raise NotImplementedError

    @classmethod
    def described(
        cls,
        networks: Mapping[str, NetworkSpec | Network],
        obs_spec: Spec,
        action_spec: Spec,
        config: AnyConfig,
    ) -> dict[str, NetworkSpec | Network]:
        """Add the heads to the algorithm's first network."""
        name, spec = next(iter(networks.items()))
        why = "is a table, which has no features"
        if isinstance(spec, NetworkSpec) and not isinstance(spec.torso, Table):
            if spec.obs_spec in (obs_spec, one_hot_spec(obs_spec)):
                added = tuple(cls.heads(obs_spec, action_spec, config).items())
                return {**networks, name: replace(spec, heads=(*spec.heads, *added))}
            why = "reads more than an observation"
        raise TriglotError(
            f"{cls.name} adds heads to a network of layers that reads one observation, and "
            f"{name} {why}: leave out +{cls.name}, or choose another algorithm or network."
        )

    def start(
        self,
        agent: Agent,
        state: AnyAgentState,
        key: jax.Array,
        num_envs: int,
        hyper: AnyHyperparams,
    ) -> LearnerState:
        """Start the optimizer of the agent's variables, which stay in the agent's state."""
        del key, num_envs
        name, network, _ = _shaped(agent)
        learner = Learner(network, adam)
        began = learner.start(_variables(state, name), self.step_hyper(hyper))
        return replace(began, variables=NOTHING)

    def update(
        self, state: PyTree, trajectory: Trajectory, key: jax.Array, hyper: AnyHyperparams
    ) -> tuple[Trajectory, PyTree, Metrics]:
        del key, hyper
        return trajectory, state, {}

    def after(
        self,
        agent: Extensible,
        agent_state: AnyAgentState,
        state: AnyAgentState,
        trajectory: Trajectory,
        key: jax.Array,
        hyper: AnyHyperparams,
    ) -> tuple[AnyAgentState, LearnerState, Metrics]:
        """Take one gradient step on the agent's variables."""
        name, network, reads = _shaped(agent)
        names = self.heads(self.obs_spec, agent.action_spec, self.config)
        shape = trajectory.reward.shape

        def network_obs(obs: PyTree) -> PyTree:
            normalized = agent.network_obs(agent_state, flatten(obs))
            normalized = (
                normalized if reads == self.obs_spec else one_hot(self.obs_spec, normalized)
            )
            return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), normalized)

        obs, next_obs = network_obs(trajectory.obs), network_obs(trajectory.next_obs)

        def loss(
            variables: Variables, batch: PyTree, own_key: jax.Array
        ) -> tuple[jax.Array, tuple[Metrics, PyTree]]:
            del batch
            inputs, next_inputs = obs, next_obs
            if network.recurrent:
                carry = trajectory.carry if name is None else trajectory.carry[name]
                before, later = carries(network, variables, obs, trajectory.first, carry)
                inputs, next_inputs = (obs, before), (next_obs, later)

            def outputs(
                network_inputs: PyTree, key: jax.Array
            ) -> tuple[dict[str, jax.Array], PyTree]:
                heads_and_carry, new_state = network.apply(
                    variables, flatten(network_inputs), key=key, train=True
                )
                heads = merge_heads(heads_and_carry[0] if network.recurrent else heads_and_carry)
                return {n: heads[n].reshape(*shape, *heads[n].shape[1:]) for n in names}, new_state

            key, next_key = jax.random.split(own_key)
            (now, new_state), (after, _) = outputs(inputs, key), outputs(next_inputs, next_key)
            value, metrics = self.loss(now, after, trajectory, hyper)
            return value, (metrics, new_state)

        learner_state = replace(state, variables=_variables(agent_state, name))
        learner_state, metrics = Learner(network, adam).step(
            learner_state, loss, (), key, self.step_hyper(hyper)
        )
        agent_state = _with_variables(agent_state, name, learner_state.variables)
        return agent_state, replace(learner_state, variables=NOTHING), metrics


NOTHING = Variables(params=(), state=())


def _shaped(agent: Agent) -> tuple[str | None, Network, Spec | tuple[Spec, ...]]:
    """Choose the network whose features are shaped.

    Returns:
      Its name where there are several, the network, and the spec that it reads.
    """
    network = agent.network
    described = agent.networks(agent.obs_spec, agent.action_spec, agent.config)
    name, spec = next(iter(described.items()))
    assert isinstance(spec, NetworkSpec)  # `described` refuses another
    if name in network.parts:
        return name, network.parts[name], spec.obs_spec
    return None, network, spec.obs_spec


def _variables(state: AnyAgentState, name: str | None) -> Variables:
    if isinstance(state, ExtendedState):
        return _variables(state.agent, name)
    if hasattr(state, "learners"):
        return state.learners[name].variables
    if not hasattr(state, "learner"):
        raise TriglotError(
            f"{type(state).__name__} has neither learner nor learners, whose variables an "
            "auxiliary loss trains: keep them in one, as rl.AgentState does."
        )
    variables = state.learner.variables
    return variables if name is None else part_of(variables, name)


def _with_variables(state: AnyAgentState, name: str | None, variables: Variables) -> AnyAgentState:
    if isinstance(state, ExtendedState):
        return replace(state, agent=_with_variables(state.agent, name, variables))
    if hasattr(state, "learners"):
        learner = replace(state.learners[name], variables=variables)
        return replace(state, learners={**state.learners, name: learner})
    whole = state.learner.variables
    if name is not None:
        variables = join_parts(
            {part: part_of(whole, part) for part in whole.params} | {name: variables}
        )
    return replace(state, learner=replace(state.learner, variables=variables))
