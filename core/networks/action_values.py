"""The default networks of algorithms that learn action values or their distributions."""

from typing import Any

from ..network import Network
from ..specs import Box, Discrete, Spec
from .architecture import MLP, SQRT_2, Head, NetworkSpec, Table, default_torso
from .heads import check_heads, num_actions, require_parts


def q_network(
    obs_spec: Spec, action_spec: Spec, config: Any, *, algorithm: str, head: str = "q", **how: Any
) -> dict[str, NetworkSpec]:
    """Describe a network of action values, or of return distributions by action.

    Args:
      obs_spec: one observation.
      action_spec: one action, which must be discrete.
      config: has `hidden_sizes`, `dueling` and the options of `ConvolutionConfig`.
      algorithm: its name, for messages.
      head: the name of the head.
      how: other fields of the head, such as `atoms`.

    Returns:
      The `q_network`.
    """
    torso = default_torso(obs_spec, config.hidden_sizes, config, activation="relu")
    size = num_actions(action_spec, algorithm=algorithm)
    values = Head(size=size, scale=1.0, dueling=config.dueling, **how)
    return {"q_network": NetworkSpec(obs_spec, torso, ((head, values),))}


def implicit_quantile_network(
    obs_spec: Spec, action_spec: Spec, config: Any, *, algorithm: str
) -> dict[str, NetworkSpec]:
    """Describe f, psi and phi of quantiles f(relu(psi(s)) * relu(phi(cosines of tau))).

    Args:
      obs_spec: one observation.
      action_spec: one action, which must be discrete.
      config: has `hidden_sizes`, `num_cosines`, `dueling` and the options of `ConvolutionConfig`.
      algorithm: its name, for messages.

    Returns:
      `obs_features`, psi, and `tau_features`, phi, with a head of their own name `[B, F]`, and
      `quantiles`, f, which reads their product `[B, F]` and gives `quantiles` `[B, num_actions]`;
      F is the last of `hidden_sizes`, and the others are those of psi.
    """
    *hidden_sizes, size = config.hidden_sizes
    features, linear = Head(size=size, scale=SQRT_2), MLP(hidden_sizes=())
    torso = default_torso(obs_spec, tuple(hidden_sizes), config, activation="relu")
    if isinstance(obs_spec, Discrete):
        torso = Table(init=1.0)  # at 0, a relu has no gradient
    actions = num_actions(action_spec, algorithm=algorithm)
    quantiles = Head(size=actions, scale=1.0, dueling=config.dueling)
    inputs = _implicit_inputs(obs_spec, config)
    return {
        "obs_features": NetworkSpec(obs_spec, torso, (("obs_features", features),)),
        "tau_features": NetworkSpec(inputs["tau_features"], linear, (("tau_features", features),)),
        "quantiles": NetworkSpec(inputs["quantiles"], linear, (("quantiles", quantiles),)),
    }


def check_implicit_quantile_network(
    network: Network, obs_spec: Spec, action_spec: Spec, config: Any, *, algorithm: str
) -> None:
    """Check a combination of networks against `implicit_quantile_network`; nothing is computed.

    Raises:
      TriglotError: if a part is missing or its outputs do not fit.
    """
    inputs, size = _implicit_inputs(obs_spec, config), config.hidden_sizes[-1]
    parts = require_parts(network, tuple(inputs), algorithm=algorithm)
    outputs = {"obs_features": size, "tau_features": size}
    outputs["quantiles"] = num_actions(action_spec, algorithm=algorithm)
    for name, given in inputs.items():
        check_heads(parts[name], given, {name: (outputs[name],)}, algorithm=algorithm)


def _implicit_inputs(obs_spec: Spec, config: Any) -> dict[str, Spec]:
    return {
        "obs_features": obs_spec,
        "tau_features": Box((config.num_cosines,), low=-1.0, high=1.0),
        "quantiles": Box((config.hidden_sizes[-1],), low=0.0),
    }
