"""The default networks of actor-critic algorithms, and what they require of custom ones."""

import math
from typing import Any

from ..network import Network
from ..specs import Box, Spec
from .architecture import MLP, Head, NetworkSpec, RecurrentCell, default_torso, value_head
from .combinators import scalar
from .heads import check_heads, policy_heads, require_parts, require_single_steps

TWIN = 2


def actor_critic(
    obs_spec: Spec, action_spec: Spec, config: Any, *, algorithm: str
) -> dict[str, NetworkSpec]:
    """Describe an actor and a critic, or one network with the heads of both.

    Args:
      obs_spec: one observation.
      action_spec: one action.
      config: a `ConvolutionConfig` with `hidden_sizes`, `cell`, `cell_size`, `initial_std` and
        `shared_torso`, as `PPOConfig` documents them.
      algorithm: its name, for messages.

    Returns:
      `actor` and `critic`, or `actor_critic` where `shared_torso`.
    """
    torso = default_torso(obs_spec, config.hidden_sizes, config)
    cell = None if config.cell == "none" else RecurrentCell(config.cell, config.cell_size)
    actor = policy_heads(action_spec, algorithm=algorithm, initial_std=config.initial_std)
    value = ("value", value_head())
    if config.shared_torso:
        return {"actor_critic": NetworkSpec(obs_spec, torso, (*actor, value), cell)}
    return {
        "actor": NetworkSpec(obs_spec, torso, actor, cell),
        "critic": NetworkSpec(obs_spec, torso, (value,), cell),
    }


def soft_actor_critic(obs_spec: Spec, unit: Box, config: Any) -> dict[str, NetworkSpec | Network]:
    """Describe an actor, twin critics of observations and actions, and a log temperature.

    Args:
      obs_spec: one observation.
      unit: actions within [-1, 1], as `core.rl.distributions.unit_box` describes them.
      config: has `hidden_sizes` and `initial_temperature`.
    """
    torso = MLP(hidden_sizes=config.hidden_sizes, activation="relu")
    head, value = Head(size=unit.shape[0], scale=0.01), (("q", value_head()),)
    return {
        "actor": NetworkSpec(obs_spec, torso, (("mean", head), ("log_std", head))),
        "critic": NetworkSpec((obs_spec, unit), torso, value, ensemble_size=TWIN),
        "temperature": scalar(math.log(config.initial_temperature), "log"),
    }


def check_soft_actor_critic(network: Network, obs_spec: Spec, unit: Box, *, algorithm: str) -> None:
    """Check a combination of networks against `soft_actor_critic`; nothing is computed.

    Raises:
      TriglotError: if a part is missing or its outputs do not fit.
    """
    names = ("actor", "critic", "temperature")
    parts = require_parts(network, names, algorithm=algorithm)
    require_single_steps(algorithm, network)
    policy = {"mean": unit.shape, "log_std": unit.shape}
    check_heads(parts["actor"], obs_spec, policy, algorithm=algorithm)
    seen = (obs_spec, unit)
    check_heads(parts["critic"], seen, {"q": ()}, algorithm=algorithm, ensemble_size=TWIN)
