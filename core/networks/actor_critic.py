"""The default networks of actor-critic algorithms, and what they require of custom ones."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..hyper import between, one_of, only_for
from ..network import Network
from ..specs import Box, Discrete, Spec
from ..types import AnyConfig
from .architecture import (
    MLP,
    Head,
    NetworkSpec,
    RecurrentCell,
    Table,
    Torso,
    default_torso,
    policy_head,
    q_head,
    value_head,
)
from .combinators import scalar
from .heads import check_heads, policy_heads, require_parts, require_single_steps
from .inputs import images

TWIN = 2


@dataclass(frozen=True, kw_only=True)
class CriticConfig:
    """Options of an off-policy actor-critic's critics.

    Attributes:
      critic_normalization: of the outputs of each of their layers before the activation: `layer` or
        `none`.
      critic_dropout: probability with which each of these outputs is 0, before the normalization,
        wherever a loss applies critics or their targets.
    """

    critic_normalization: str = only_for("networks", one_of("none", "layer"))
    critic_dropout: float = only_for("networks", between(0.0, 0.0, 0.9))

    def apply(self, critic: NetworkSpec) -> NetworkSpec:
        """Describe critics with these options; a table has no layers, and stays as it is."""
        if isinstance(critic.torso, Table):
            return critic
        return replace(critic.normalized(self.critic_normalization), dropout=self.critic_dropout)


def actor_critic(
    obs_spec: Spec, action_spec: Spec, config: AnyConfig, *, algorithm: str
) -> dict[str, NetworkSpec]:
    """Describe an actor and a critic, or one network with the heads of both.

    Args:
      obs_spec: one observation.
      action_spec: one action.
      config: a `ConvolutionConfig` with `hidden_sizes`, `cell`, `cell_size`, `initial_std`,
        `state_dependent_std` and `shared_torso`, as `PPOConfig` documents them.
      algorithm: its name, for messages.

    Returns:
      `actor` and `critic`, or `actor_critic` where `shared_torso`.
    """
    torso = default_torso(obs_spec, config.hidden_sizes, config)
    cell = None if config.cell == "none" else RecurrentCell(config.cell, config.cell_size)
    actor = policy_heads(
        action_spec,
        algorithm=algorithm,
        initial_std=config.initial_std,
        state_dependent_std=config.state_dependent_std,
    )
    value = ("value", value_head())
    if config.shared_torso:
        return {"actor_critic": NetworkSpec(obs_spec, torso, (*actor, value), cell)}
    return {
        "actor": NetworkSpec(obs_spec, torso, actor, cell),
        "critic": NetworkSpec(obs_spec, torso, (value,), cell),
    }


def soft_actor_critic(
    obs_spec: Spec, unit: Box | Discrete, config: AnyConfig, num_critics: int = TWIN
) -> dict[str, NetworkSpec | Network]:
    """Describe a stochastic actor, an ensemble of critics and a log temperature.

    Args:
      obs_spec: one observation; images are read by convolutions.
      unit: actions as `core.rl.distributions.unit_actions` describes them.
      config: has `hidden_sizes` and `initial_temperature`, is a `ConvolutionConfig`, and may be a
        `CriticConfig`.
      num_critics: members of the ensemble.
    """
    temperature = scalar(math.log(config.initial_temperature), "log")
    if isinstance(unit, Discrete):
        torso = default_torso(obs_spec, config.hidden_sizes, config, activation="relu")
        logits, q = ("logits", policy_head(unit.num_values)), ("q", q_head(unit.num_values))
        critic = NetworkSpec(obs_spec, torso, (q,), ensemble_size=num_critics)
        return {
            "actor": NetworkSpec(obs_spec, torso, (logits,)),
            "critic": _critic_config(config).apply(critic),
            "temperature": temperature,
        }
    return {
        **continuous_actor_critic(obs_spec, unit, config, ("mean", "log_std"), num_critics),
        "temperature": temperature,
    }


def continuous_actor_critic(
    obs_spec: Spec, unit: Box, config: AnyConfig, heads: tuple[str, ...], num_critics: int
) -> dict[str, NetworkSpec]:
    """Describe an actor, and an ensemble of critics of observations and actions.

    Args:
      obs_spec: one observation; images are read by convolutions.
      unit: actions within [-1, 1], as `core.rl.distributions.unit_box` describes them.
      config: a `ConvolutionConfig` with `hidden_sizes`; it may be a `CriticConfig`.
      heads: of the actor, of one number for each action dimension.
      num_critics: members of the ensemble.
    """
    hidden_sizes = config.hidden_sizes
    torso: Torso = MLP(hidden_sizes=hidden_sizes, activation="relu")
    if images(obs_spec):
        torso = default_torso(obs_spec, hidden_sizes, config, activation="relu")
    head, q = Head(size=unit.shape[0], scale=0.01), (("q", value_head()),)
    critic = NetworkSpec((obs_spec, unit), torso, q, ensemble_size=num_critics)
    return {
        "actor": NetworkSpec(obs_spec, torso, tuple((name, head) for name in heads)),
        "critic": _critic_config(config).apply(critic),
    }


def _critic_config(config: AnyConfig) -> CriticConfig:
    return config if isinstance(config, CriticConfig) else CriticConfig()


def check_parts(
    network: Network, described: Mapping[str, NetworkSpec | Network], *, algorithm: str
) -> None:
    """Check a combination of networks against what an algorithm describes; nothing is computed.

    Args:
      network: the combination, of networks that are not recurrent.
      described: the algorithm's `networks`: their inputs, heads and ensembles are needed, their
        layers are not.
      algorithm: its name, for messages.

    Raises:
      TriglotError: if a part is missing, or its outputs do not fit.
    """
    parts = require_parts(network, tuple(described), algorithm=algorithm)
    require_single_steps(algorithm, network)
    for name, spec in described.items():
        if isinstance(spec, NetworkSpec):
            needs = {head: head_spec.shape for head, head_spec in spec.heads}
            size = spec.ensemble_size
            check_heads(parts[name], spec.obs_spec, needs, algorithm=algorithm, ensemble_size=size)
